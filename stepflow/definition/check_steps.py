"""The steps of a check registry by themselves (registry.md §6.1 and §6.2).

Takes: the registry as a model. Gives: what each outcome of a step leads to, its kind and its built answer schema;
problems SF305, SF704, SF705 and SF708.
May touch: nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepflow.definition.check_outcomes import Outcomes
from stepflow.definition.json_text import child
from stepflow.definition.steps import check_key
from stepflow.domain.check import OutcomeRule
from stepflow.domain.json import JsonObject, JsonValue
from stepflow.domain.words import Intent, StepKind

if TYPE_CHECKING:
    from stepflow.definition.check_file import CheckRegistry, CheckStepEntry
    from stepflow.definition.findings import FileFindings

_ID_FORM = re.compile(r"s_[0-9a-fA-F]{4,8}")


@dataclass(frozen=True, kw_only=True)
class CheckNode:
    """A step on its way into the graph. `at` is its JSON Pointer in the registry."""

    id: str
    at: str
    entry: CheckStepEntry
    on_pass: tuple[OutcomeRule, ...] = ()
    on_fail: tuple[OutcomeRule, ...] = ()

    @property
    def kind(self) -> StepKind:
        """A step that may complete the run is a closure; every other one works (registry.md §7)."""
        ends = any(rule.intent is Intent.CLOSING for rule in (*self.on_pass, *self.on_fail))
        return StepKind.CLOSURE if ends else StepKind.WORK

    @property
    def handoff_keys(self) -> tuple[str, ...]:
        """The sound keys that the step hands off, each once."""
        return tuple(dict.fromkeys(one.key for one in self.entry.handoff if one.key))

    @property
    def targets(self) -> set[str]:
        """The steps that may come right after this one."""
        return {rule.target or self.id for rule in (*self.on_pass, *self.on_fail) if rule.intent is not Intent.CLOSING}


def check_check_steps(registry: CheckRegistry, found: FileFindings) -> dict[str, CheckNode]:
    """Check each step by itself."""
    return {step_id: _node(step_id, entry, registry, found) for step_id, entry in registry.steps.items()}


def built_schema(node: CheckNode) -> JsonObject | None:
    """The answer schema that the engine builds; None when nothing is read from the step's own answer."""
    check = node.entry.check
    asks = check is not None and check.prompt is not None
    if asks and not node.handoff_keys:
        return None
    demanded = check is not None and check.response_format is not None
    result: JsonObject = {} if asks else {"result": _RESULT}
    required: list[JsonValue] = ["result"] if demanded and not asks else []
    required += ["handoff"] if node.handoff_keys else []
    handoff: JsonObject = {"handoff": _handoff(node)} if node.handoff_keys else {}
    return {
        "type": "object",
        "required": required,
        "properties": {**result, "message": {"type": "string", "description": "what was done or found"}, **handoff},
    }


_RESULT: JsonObject = {
    "enum": ["ok", "ng", "pass", "fail", True, False],
    "description": "ok: the step has done what it was asked; ng: it has not",
}


def _handoff(node: CheckNode) -> JsonObject:
    told = {one.key: one.description for one in node.entry.handoff if one.key}
    properties: JsonObject = {key: {"description": text} if text else {} for key, text in told.items()}
    return {"type": "object", "required": list(told), "properties": properties}


def _node(step_id: str, entry: CheckStepEntry, registry: CheckRegistry, found: FileFindings) -> CheckNode:
    at = child("/steps", step_id)
    check_key(step_id, entry.id, at, found, word="id")
    _check_id(step_id, at, found)
    _check_handoff(step_id, entry, at, found)
    low, high = entry.iterations.min, entry.iterations.max
    if low > high and not found.at(child(at, "iterations")):
        message = f'step "{step_id}": "iterations" has min {low}, which is more than max {high}'
        found.add("SF705", child(at, "iterations"), message, "Make min at most max.")
    if entry.check is None:
        return CheckNode(id=step_id, at=at, entry=entry)
    reading = Outcomes(step_id=step_id, at=child(at, "check"), check=entry.check, steps=registry.steps, found=found)
    reading.check_rules(high)
    on_pass, on_fail = reading.rules("onPass"), reading.rules("onFail")
    again = OutcomeRule(intent=Intent.REPEAT, transition="repeat", runs_below=low)
    spent = OutcomeRule(intent=Intent.REPEAT, transition="repeat", runs_below=high)
    return CheckNode(
        id=step_id,
        at=at,
        entry=entry,
        on_pass=(again, *on_pass) if low > 1 else on_pass,
        on_fail=on_fail or ((spent,) if high > 1 else ()),
    )


def _check_id(step_id: str, at: str, found: FileFindings) -> None:
    if not _ID_FORM.fullmatch(step_id):
        message = f'the id "{step_id}" is not "s_" and 4 to 8 hexadecimal digits'
        found.add("SF704", at, message, 'Use an id such as "s_a8f3"; the name of the step can say what it does.')


def _check_handoff(step_id: str, entry: CheckStepEntry, at: str, found: FileFindings) -> None:
    seen: set[str] = set()
    for index, one in enumerate(entry.handoff):
        if one.key and one.key in seen:
            place = f"{child(at, 'handoff')}/{index}/key"
            message = f'step "{step_id}": the handoff key "{one.key}" is declared twice'
            found.add("SF708", place, message, "Declare each key once.")
        seen.add(one.key or "")
