"""The steps of a gate registry by themselves, and their gates (registry.md §5)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from stepflow.definition.diagnostics import FileProblems, did_you_mean, listed
from stepflow.definition.file_models import GateEntry, GateRegistry, StepEntry
from stepflow.definition.json_text import Pointer
from stepflow.definition.schemas import node_at
from stepflow.domain.definition import Gate
from stepflow.domain.json import JsonObject
from stepflow.domain.words import INTENT_ALIASES, INTENTS_OF_KIND, Intent, StepKind
from stepflow.engine.prompt.variables import handoff_variable

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
    at: Pointer
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


def check_steps(registry: GateRegistry, raw: JsonObject, problems: FileProblems) -> Nodes:
    """Sort the steps and check each by itself; `raw` is the file, which still has what was left out of the model."""
    nodes = [_node(key, entry) for key, entry in registry.steps.items()]
    sections = {node.id: node for node in nodes if node.id.startswith("section.")}
    flow = {node.id: node for node in nodes if node.id not in sections}
    written = {node.id: _written(raw, node.id) for node in nodes}
    gated = any("structuredGate" in written[node_id] for node_id in flow)
    for node in nodes:
        check_key(node.id, node.entry.step_id, node.at, problems)
        _check_address(node, problems)
    for node in flow.values():
        _check_kind(node, problems, gated=gated)
        _check_gated(node, written[node.id], problems, gated=gated)
        _check_command(node, problems)
    for node in sections.values():
        _note_section_keys(node, written[node.id], problems)
    return Nodes(flow=flow, sections=sections, gated=gated)


def check_key(
    key: str,
    step_id: str | None,
    at: Pointer,
    problems: FileProblems,
    *,
    word: str = "stepId",
) -> None:
    """An entry's `stepId`, or another `word`, equals its key (SF305)."""
    if step_id and step_id != key:
        message = f'"{word}" is "{step_id}", but the key is "{key}"'
        problems.add("SF305", at / word, message, f'Write "{word}": "{key}", or rename the key.')


def check_part(at: Pointer, key: str, part: str | None, problems: FileProblems) -> bool:
    """A part of a prompt address cannot hold a separator (SF109). True when it is safe, or not given."""
    if not part or re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", part):
        return True
    message = f'"{key}" is "{part}", which may not stand in a path'
    problems.add("SF109", at / key, message, "Use letters, digits, dot, underscore and hyphen only.")
    return False


def check_c3_style(at: Pointer, c3: str | None, problems: FileProblems) -> None:
    """Warn about a `c3` that is not kebab-case (SF308)."""
    if c3 and not problems.at(at / "c3") and not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", c3):
        message = f'"c3" is "{c3}", which is not kebab-case'
        problems.add("SF308", at / "c3", message, "Use small letters, digits and single hyphens.")


def _node(key: str, entry: StepEntry) -> Node:
    kind = entry.step_kind or _KIND_OF_C2.get(entry.c2 or "")
    return Node(id=key, at=Pointer("/steps") / key, entry=entry, kind=kind)


def _written(raw: JsonObject, key: str) -> JsonObject:
    steps = raw.get("steps")
    step = steps.get(key) if isinstance(steps, dict) else None
    return step if isinstance(step, dict) else {}


def _check_address(node: Node, problems: FileProblems) -> None:
    entry = node.entry
    parts = {"c2": entry.c2, "c3": entry.c3, "edition": entry.edition, "adaptation": entry.adaptation}
    for key, part in parts.items():
        check_part(node.at, key, part, problems)
    check_c3_style(node.at, entry.c3, problems)


def _check_kind(node: Node, problems: FileProblems, *, gated: bool) -> None:
    if gated and node.kind is None and not problems.at(node.at / "stepKind"):
        message = f'step "{node.id}": its kind cannot be told from "c2": "{node.entry.c2}", and there is no "stepKind"'
        problems.add("SF306", node.at, message, f'Write "stepKind": one of {listed(StepKind)}.')


def _check_gated(node: Node, written: JsonObject, problems: FileProblems, *, gated: bool) -> None:
    lacking = [key for key in _GATED_KEYS if written.get(key) is None]
    if gated and lacking:
        message = f'step "{node.id}" lacks {listed(lacking)}, which every flow step of a gated registry has'
        fix = 'Add them, or begin the id with "section." if it is only a piece of prompt.'
        problems.add("SF307", node.at, message, fix)


def _check_command(node: Node, problems: FileProblems) -> None:
    if node.entry.runner is not None and node.kind is not StepKind.CLOSURE:
        message = f'step "{node.id}" has a "runner", but its kind is {node.kind or "not known"}, not closure'
        problems.add("SF311", node.at / "runner", message, 'Remove "runner", or make the step a closure.')


def _note_section_keys(node: Node, written: JsonObject, problems: FileProblems) -> None:
    for key in (*_GATED_KEYS, "runner", "inputs"):
        if key in written:
            message = f'"{key}" has no effect on the section "{node.id}", which is no flow step'
            place = node.at / key
            problems.add("SF111", place, message, "Remove the key, or leave it.")


def check_gates(
    nodes: Nodes,
    schemas: Mapping[str, JsonObject],
    problems: FileProblems,
    *,
    allow_spec_violations: bool,
) -> dict[str, Gate]:
    """The gate of each flow step that has one."""
    gates: dict[str, Gate] = {}
    for node in nodes.flow.values():
        entry = node.entry.structured_gate
        if entry is not None:
            at = node.at / "structuredGate"
            schema = schemas.get(node.id)
            words = _enum_of(entry, schema)
            _check_gate(node, entry, at, problems)
            _check_pointer(node, at, schema, problems)
            _check_fail_fast(node, entry, at, problems, allowed=allow_spec_violations)
            gates[node.id] = _gate(entry, lists_abort=Intent.ABORT in (words or ()))
    _check_handoff_names(gates, nodes, problems)
    return gates


def check_intent(word: str, node: Node, at: Pointer, problems: FileProblems) -> Intent | None:
    """The intent a word names, when it exists and fits the step's kind (SF321)."""
    if word not in list(Intent):
        alias = INTENT_ALIASES.get(word)  # an answer may say it, no definition
        hint = f' (did you mean "{alias}"?)' if alias else did_you_mean(word, Intent)
        message = f'step "{node.id}": the intent "{word}" does not exist{hint}'
        problems.add("SF321", at, message, f"Use only {listed(fitting_intents(node.kind))}.")
        return None
    intent = Intent(word)
    if intent not in fitting_intents(node.kind):
        message = f'step "{node.id}": a {node.kind} step may not answer "{word}"'
        problems.add("SF321", at, message, f"Use only {listed(fitting_intents(node.kind))}, or change the step's kind.")
        return None
    return intent


def fitting_intents(kind: StepKind | None) -> list[Intent]:
    """The intents of a kind in the order of the enum; all of them while the kind is not known."""
    return [one for one in Intent if kind is None or one is Intent.ABORT or one in INTENTS_OF_KIND[kind]]


def _check_gate(node: Node, entry: GateEntry, at: Pointer, problems: FileProblems) -> None:
    allowed = entry.allowed_intents or []
    for index, word in enumerate(allowed):
        check_intent(word, node, at / "allowedIntents" / index, problems)
    _check_paths(node, entry, at, problems)
    rules = node.entry.transitions
    if Intent.JUMP in allowed and not entry.target_field and rules is not None and Intent.JUMP not in rules:
        message = f'step "{node.id}": "jump" is allowed, but neither "targetField" nor a rule says where to'
        problems.add("SF330", at, message, 'Set "targetField", or add a rule for "jump".')
    if entry.target_field and Intent.JUMP not in allowed:
        message = f'step "{node.id}": "targetField" is only read for "jump", which is not allowed here'
        place = at / "targetField"
        problems.add("SF331", place, message, 'Remove "targetField", or allow "jump".')


def _check_paths(node: Node, entry: GateEntry, at: Pointer, problems: FileProblems) -> None:
    if entry.intent_field and entry.intent_field.strip() and not _dotted(entry.intent_field):
        message = f'step "{node.id}": "intentField" is "{entry.intent_field}", which is no dotted path'
        problems.add("SF324", at / "intentField", message, 'Write names with dots, as in "next_action.action".')
    if entry.target_field is not None and not _dotted(entry.target_field):
        message = f'step "{node.id}": "targetField" is "{entry.target_field}", which is no dotted path'
        problems.add("SF106", at / "targetField", message, "Write names with dots between them.")
    seen: dict[str, str] = {}
    for index, path in enumerate(entry.handoff_fields):
        place = at / "handoffFields" / index
        if not _dotted(path):
            message = f'step "{node.id}": the handoff field "{path}" is no dotted path'
            problems.add("SF106", place, message, "Write names with dots between them.")
        key = path.rpartition(".")[2]
        if key in seen:
            message = f'step "{node.id}": the handoff fields "{seen[key]}" and "{path}" both hand over "{key}"'
            problems.add("SF327", place, message, "Hand over fields whose last names differ.")
        seen.setdefault(key, path)


def _dotted(path: str) -> bool:
    return all(part and part == part.strip() for part in path.split("."))


def _enum_of(entry: GateEntry, schema: JsonObject | None) -> list[str] | None:
    """The words of the enum that `intentSchemaRef` leads to; None when it leads to no enum of texts."""
    pointer = entry.intent_schema_ref or ""
    node = node_at(schema, pointer[1:]) if schema is not None and pointer.startswith("#/") else None
    words = node.get("enum") if isinstance(node, dict) else None
    if not isinstance(words, list) or not words:
        return None
    texts = [word for word in words if isinstance(word, str)]
    return texts if len(texts) == len(words) else None


def _check_pointer(node: Node, at: Pointer, schema: JsonObject | None, problems: FileProblems) -> None:
    entry = node.entry.structured_gate or GateEntry()
    pointer, allowed, place = entry.intent_schema_ref or "", entry.allowed_intents or [], at / "intentSchemaRef"
    words = _enum_of(entry, schema)
    if not pointer.strip():
        return  # SF325 was reported with the shape
    if not pointer.startswith("#/"):
        message = f'step "{node.id}": "intentSchemaRef" is "{pointer}", which does not begin with "#/"'
        fix = 'Write a pointer such as "#/properties/next_action/properties/action".'
        problems.add("SF325", place, message, fix)
    elif words is None and schema is not None:
        message = f'step "{node.id}": "intentSchemaRef" "{pointer}" leads to no enum of texts in the answer schema'
        fix = "Point it at the schema node whose enum lists the intents."
        problems.add("SF325", place, message, fix)
    elif words is not None and allowed and (set(words) ^ set(allowed)) - {Intent.ABORT}:
        extra = sorted(set(words) - set(allowed) - {Intent.ABORT})
        missing = sorted(set(allowed) - set(words) - {Intent.ABORT})
        message = f'step "{node.id}": the enum at "{pointer}" differs from "allowedIntents": '
        message += f"extra in the enum {listed(extra)}, missing in the enum {listed(missing)}"
        fix = f'Give the enum and "allowedIntents" the same words: {listed(words)}, or {listed(allowed)}.'
        problems.add("SF326", place, message, fix)


def _check_fail_fast(node: Node, entry: GateEntry, at: Pointer, problems: FileProblems, *, allowed: bool) -> None:
    if not entry.fail_fast:
        message = f'step "{node.id}": "failFast" is false, so an answer without an intent would not stop the run'
        code, fix = ("SF329", "Remove it before real use.") if allowed else ("SF328", 'Remove "failFast": false.')
        problems.add(code, at / "failFast", message, fix)
    word = entry.fallback_intent
    if word is None:
        return
    place = at / "fallbackIntent"
    intent = check_intent(word, node, place, problems)
    if intent and word not in (entry.allowed_intents or []) and intent is not Intent.ABORT:
        message = f'step "{node.id}": "fallbackIntent" is "{word}", which is not among "allowedIntents"'
        problems.add("SF321", place, message, f"Use one of {listed(entry.allowed_intents or [])}.")
    elif intent and entry.fail_fast:
        message = f'step "{node.id}": "fallbackIntent" is only used with "failFast": false'
        problems.add("SF331", place, message, "Remove the key, or leave it.")


def _gate(entry: GateEntry, *, lists_abort: bool) -> Gate:
    words = [word for word in entry.allowed_intents or [] if word in list(Intent)]
    allowed = tuple(dict.fromkeys(Intent(word) for word in words))
    given = Intent(entry.fallback_intent) if entry.fallback_intent in list(Intent) else None
    return Gate(
        allowed=tuple(intent for intent in allowed if intent is not Intent.ABORT),
        intent_field=entry.intent_field or "",
        target_field=entry.target_field,
        handoff_fields=tuple(entry.handoff_fields),
        fail_fast=entry.fail_fast,
        fallback_intent=None if entry.fail_fast else given or (allowed[0] if allowed else None),
        lists_abort=lists_abort,
    )


def _check_handoff_names(gates: Mapping[str, Gate], nodes: Nodes, problems: FileProblems) -> None:
    fields = (
        (step_id, path, nodes.flow[step_id].at / "structuredGate" / "handoffFields" / index)
        for step_id, gate in gates.items()
        for index, path in enumerate(gate.handoff_fields)
    )
    name_handoffs(fields, problems, noun="field")


def name_handoffs(
    handed: Iterable[tuple[str, str, Pointer]], problems: FileProblems, *, noun: str
) -> dict[str, tuple[str, str]]:
    """The step and key that each handoff variable stands for; `handed` are steps with a key each, and its place.

    Two that get one name are reported (SF327).
    """
    owners: dict[str, tuple[str, str]] = {}
    for step_id, key, at in handed:
        name = handoff_variable(step_id, key)
        other_id, other_key = owners.setdefault(name, (step_id, key))
        if other_id == step_id and other_key.rpartition(".")[2] == key.rpartition(".")[2]:
            continue  # one key, or two of one step with one last name, which is reported already
        message = f'step "{step_id}": the handoff {noun} "{key}" would be the variable "{name}", '
        message += f'as "{other_key}" of step "{other_id}" already is'
        problems.add("SF327", at, message, f"Rename one of the {noun}s or steps.")
    return owners
