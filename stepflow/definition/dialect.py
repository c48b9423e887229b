"""Which dialect a registry is written in (registry.md §3).

Takes: the parsed registry. Gives: the dialect, or problem SF301 or SF302.
May touch: nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepflow.definition.findings import listed
from stepflow.definition.json_text import child
from stepflow.domain.words import Dialect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stepflow.definition.findings import FileFindings
    from stepflow.domain.json import JsonObject

_GATE_KEYS = ("structuredGate", "c2")
_CHECK_KEYS = ("check", "prompt", "iterations")


def tell_dialect(registry: JsonObject, found: FileFindings) -> Dialect | None:
    """The dialect, told by the keys that only one of them has; None after a problem was reported."""
    steps = registry.get("steps")
    if not isinstance(steps, dict) or not steps:
        state = "is missing" if steps is None else "is empty" if steps == {} else "is no object"
        found.add("SF301", "/steps" if steps is not None else "", f'"steps" {state}', "Declare at least one step.")
        return None
    gate = list(_marks(steps, _GATE_KEYS))
    check = [*(["/basePath"] if "basePath" in registry else []), *_marks(steps, _CHECK_KEYS)]
    if gate and check:
        message = f"the registry mixes two dialects: {listed(gate[:1])} is of the gate dialect, "
        message += f"{listed(check[:1])} of the check dialect"
        found.add("SF302", check[0], message, "Write all steps in one dialect.")
        return None
    if not gate and not check:
        message = f"no step has {listed(_GATE_KEYS)} or {listed(_CHECK_KEYS)}, so the dialect cannot be told"
        found.add("SF301", "/steps", message, 'Give each step "c2", "c3" and a "structuredGate".')
        return None
    return Dialect.GATE if gate else Dialect.CHECK


def _marks(steps: JsonObject, keys: tuple[str, ...]) -> Iterator[str]:
    for name, step in steps.items():
        for key in keys:
            if isinstance(step, dict) and key in step:
                yield child(child("/steps", name), key)
