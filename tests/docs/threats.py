"""The generated tables of docs/threat-model.md, made from the attacks that `make e2e-security` tries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepflow.sandbox.options import LAYERS
from tests.docs.readme import ROOT
from tests.e2e.security.attacks import ATTACKS, NEEDS_NO_NEW_PRIVS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

THREAT_MODEL = ROOT / "docs" / "threat-model.md"
#: Stops the same as the layer `network`, so it is told by what comes through where the network is open.
_FILTER = "seccomp"


def threat_tables() -> dict[str, list[Sequence[str]]]:
    """Head and rows of each table."""
    by_case = sorted(ATTACKS, key=lambda attack: attack.case)
    return {
        "layers": [("only this layer off", "what comes through"), *_by_layer()],
        "attacks": [
            ("case", "attempt", "stopped by"),
            *((str(attack.case), attack.name, _barriers(attack.stopped_by)) for attack in by_case),
        ],
    }


def _by_layer() -> Iterable[Sequence[str]]:
    for layer in LAYERS:
        yield f"`{layer}`", " · ".join(_opened_by(layer))


def _opened_by(layer: str) -> list[str]:
    if layer == "no_new_privs":
        lost = sorted(NEEDS_NO_NEW_PRIVS)
        own = [attack.name for attack in ATTACKS if attack.comes_through({layer}) and not attack.comes_through(lost)]
        return [*own, f"and all of {', '.join(map(_name, lost))}, which the kernel gives to nobody without it"]
    off = {layer, "network"} if layer == _FILTER else {layer}
    return [
        attack.name
        for attack in ATTACKS
        if attack.comes_through(off) and (layer != _FILTER or _FILTER in attack.stopped_by)
    ]


def _barriers(barriers: tuple[str, ...]) -> str:
    return " or ".join(" and ".join(map(_name, barrier.split("+"))) for barrier in barriers)


def _name(layer: str) -> str:
    return f"`{layer}`" if layer in LAYERS else layer
