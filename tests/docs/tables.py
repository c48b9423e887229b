"""The tables of the documents, made from what they describe. `python -m tests.docs.tables --write` puts them in."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

import yaml
from pydantic_core import PydanticUndefined

from stepflow.domain.words import Outcome, exit_code
from stepflow.report.wording import advice
from stepflow.run.start.input_maps import LimitsInput, ModelInput, StartInput, TelemetryInput
from stepflow.run.start.input_values import InputMap
from stepflow.sandbox.isolation import LAYERS
from tests.docs.page import REFERENCE_PAGE, ROOT
from tests.e2e.security.attacks import ATTACKS, NEEDS_NO_NEW_PRIVS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

#: The inputs with keys that have a table of their own.
MAPS = {"limits": LimitsInput, "start": StartInput, "model": ModelInput, "telemetry": TelemetryInput}
#: Filled in by the runner.
NOT_FOR_PEOPLE = ("host",)
THREAT_MODEL = ROOT / "docs" / "threat-model.md"
#: Stops the same as the layer `network`, so it is told by what comes through where the network is open.
_FILTER = "seccomp"


def tables() -> dict[str, str]:
    """Every generated part of the reference page."""
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    return {
        "inputs": table(("input", "default", "what it does"), _inputs(action["inputs"])),
        **{name: table(("key", "default", "what it is"), _keys(kind)) for name, kind in MAPS.items()},
        "outputs": table(("output", "what it holds"), _outputs(action["outputs"])),
        "outcomes": table(("outcome", "exit code", "what the summary tells you to do"), _outcomes()),
    }


def _inputs(inputs: dict[str, Any]) -> Iterable[Sequence[str]]:
    for name, described in inputs.items():
        if name not in NOT_FOR_PEOPLE:
            default = f"`{described['default']}`" if described.get("default") else ""
            yield f"`{name}`", default, described["description"]


def _keys(kind: type[InputMap]) -> Iterable[Sequence[str]]:
    for name, field in kind.model_fields.items():
        yield f"`{field.alias}`", _default(field.default), " ".join((field.description or "").split())
        assert field.description, f"{kind.__name__}.{name} needs a docstring"


def _default(value: object) -> str:
    words = (value if isinstance(value, tuple) else (value,)) if value not in (None, False, PydanticUndefined) else ()
    return ", ".join(f"`{word:g}`" if isinstance(word, float | int) else f"`{word}`" for word in words)


def _outputs(outputs: dict[str, Any]) -> Iterable[Sequence[str]]:
    return ((f"`{name}`", described["description"]) for name, described in outputs.items())


def _outcomes() -> Iterable[Sequence[str]]:
    return ((f"`{outcome}`", str(exit_code(outcome)), advice(outcome)) for outcome in Outcome)


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


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def documents() -> dict[Path, Mapping[str, str]]:
    """Every document with generated parts, and these by name."""
    threats = {name: table(head, rows) for name, (head, *rows) in threat_tables().items()}
    return {REFERENCE_PAGE: tables(), THREAT_MODEL: threats}


def written(document: Path) -> str:
    """The document with its tables as they should be."""
    text = document.read_text(encoding="utf-8")
    for name, rows in documents()[document].items():
        part = re.compile(rf"(<!-- {name}: begin[^\n]*-->\n)(.*?)(<!-- {name}: end -->)", re.S)
        text, replaced = part.subn(lambda match, rows=rows: f"{match[1]}\n{rows}\n{match[3]}", text)
        assert replaced == 1, f"{document.name} has {replaced} parts {name}"
    return text


if __name__ == "__main__":
    for document in documents():
        text = written(document)
        if "--write" in sys.argv:
            document.write_text(text, encoding="utf-8")
        elif text != document.read_text(encoding="utf-8"):
            sys.exit(f"{document.name} is not up to date: make docs")
