"""The steps of a gate registry by themselves (registry.md §5).

Takes: the registry as a model. Gives: flow steps and sections; problems SF305 to SF311 and SF109.
May touch: nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepflow.definition.findings import listed
from stepflow.definition.json_text import child
from stepflow.domain.words import StepKind

if TYPE_CHECKING:
    from stepflow.definition.findings import FileFindings
    from stepflow.definition.registry_file import GateRegistry, StepEntry
    from stepflow.domain.json import JsonObject

_KIND_OF_C2 = {
    "initial": StepKind.WORK,
    "continuation": StepKind.WORK,
    "verification": StepKind.VERIFICATION,
    "closure": StepKind.CLOSURE,
}

#: registry.md §5: what every flow step of a gated registry must have.
_GATED_KEYS = ("structuredGate", "transitions", "outputSchemaRef")


@dataclass(frozen=True, kw_only=True)
class Node:
    """A flow step or a section on its way to becoming a `Step`. `at` is its JSON Pointer in the registry."""

    id: str
    at: str
    entry: StepEntry
    kind: StepKind | None

    @property
    def initial(self) -> bool:
        """True for a step that a flow begins with, by its name (flow.md §6.1)."""
        return self.id.startswith("initial.") or self.entry.c2 == "initial"


@dataclass(frozen=True, kw_only=True)
class Nodes:
    """All steps of a registry."""

    flow: dict[str, Node]
    sections: dict[str, Node]
    gated: bool


def check_steps(registry: GateRegistry, raw: JsonObject, found: FileFindings) -> Nodes:
    """Sort the steps and check each by itself; `raw` is the file, which still has what was left out of the model."""
    nodes = [_node(key, entry) for key, entry in registry.steps.items()]
    sections = {node.id: node for node in nodes if node.id.startswith("section.")}
    flow = {node.id: node for node in nodes if node.id not in sections}
    written = {node.id: _written(raw, node.id) for node in nodes}
    gated = any("structuredGate" in written[node_id] for node_id in flow)
    for node in nodes:
        check_key(node.id, node.entry.step_id, node.at, found)
        _check_address(node, found)
    for node in flow.values():
        _check_kind(node, found, gated=gated)
        _check_gated(node, written[node.id], found, gated=gated)
        _check_command(node, found)
    for node in sections.values():
        _note_section_keys(node, written[node.id], found)
    return Nodes(flow=flow, sections=sections, gated=gated)


def check_key(
    key: str,
    step_id: str | None,
    at: str,
    found: FileFindings,
    *,
    word: str = "stepId",
) -> None:
    """An entry's `stepId`, or another `word`, equals its key (SF305)."""
    if step_id and step_id != key:
        message = f'"{word}" is "{step_id}", but the key is "{key}"'
        found.add("SF305", child(at, word), message, f'Write "{word}": "{key}", or rename the key.')


def check_part(at: str, key: str, part: str | None, found: FileFindings) -> bool:
    """A part of a prompt address cannot hold a separator (SF109). True when it is safe, or not given."""
    if not part or re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", part):
        return True
    message = f'"{key}" is "{part}", which may not stand in a path'
    found.add("SF109", child(at, key), message, "Use letters, digits, dot, underscore and hyphen only.")
    return False


def check_c3_style(at: str, c3: str | None, found: FileFindings) -> None:
    """Warn about a `c3` that is not kebab-case (SF308)."""
    if c3 and not found.at(child(at, "c3")) and not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", c3):
        message = f'"c3" is "{c3}", which is not kebab-case'
        found.add("SF308", child(at, "c3"), message, "Use small letters, digits and single hyphens.")


def _node(key: str, entry: StepEntry) -> Node:
    kind = entry.step_kind or _KIND_OF_C2.get(entry.c2 or "")
    return Node(id=key, at=child("/steps", key), entry=entry, kind=kind)


def _written(raw: JsonObject, key: str) -> JsonObject:
    steps = raw.get("steps")
    step = steps.get(key) if isinstance(steps, dict) else None
    return step if isinstance(step, dict) else {}


def _check_address(node: Node, found: FileFindings) -> None:
    entry = node.entry
    parts = {"c2": entry.c2, "c3": entry.c3, "edition": entry.edition, "adaptation": entry.adaptation}
    for key, part in parts.items():
        check_part(node.at, key, part, found)
    check_c3_style(node.at, entry.c3, found)


def _check_kind(node: Node, found: FileFindings, *, gated: bool) -> None:
    if gated and node.kind is None and not found.at(child(node.at, "stepKind")):
        message = f'step "{node.id}": its kind cannot be told from "c2": "{node.entry.c2}", and there is no "stepKind"'
        found.add("SF306", node.at, message, f'Write "stepKind": one of {listed(StepKind)}.')


def _check_gated(node: Node, written: JsonObject, found: FileFindings, *, gated: bool) -> None:
    lacking = [key for key in _GATED_KEYS if written.get(key) is None]
    if gated and lacking:
        message = f'step "{node.id}" lacks {listed(lacking)}, which every flow step of a gated registry has'
        fix = 'Add them, or begin the id with "section." if it is only a piece of prompt.'
        found.add("SF307", node.at, message, fix)


def _check_command(node: Node, found: FileFindings) -> None:
    if node.entry.runner is not None and node.kind is not StepKind.CLOSURE:
        message = f'step "{node.id}" has a "runner", but its kind is {node.kind or "not known"}, not closure'
        found.add("SF311", child(node.at, "runner"), message, 'Remove "runner", or make the step a closure.')


def _note_section_keys(node: Node, written: JsonObject, found: FileFindings) -> None:
    for key in (*_GATED_KEYS, "runner", "inputs"):
        if key in written:
            message = f'"{key}" has no effect on the section "{node.id}", which is no flow step'
            place = child(node.at, key)
            found.add("SF111", place, message, "Remove the key, or leave it.")
