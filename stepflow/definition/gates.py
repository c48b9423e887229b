"""The steps of a registry with gates, and whether an answer that fits a step's schema can hold what its gate reads."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from pydantic.alias_generators import to_snake

from stepflow.definition.agent import MODEL_KEYS
from stepflow.definition.diagnostics import FileProblems, listed
from stepflow.definition.file_models import GateEntry, GateRegistry, StepEntry
from stepflow.definition.files.json_text import Pointer, node_at
from stepflow.definition.schemas import SchemaFolder
from stepflow.definition.steps import Node, Nodes, check_c3_style, check_intent, check_key, check_part
from stepflow.domain.definition import Gate
from stepflow.domain.json import JsonObject, JsonValue
from stepflow.domain.problem import Severity
from stepflow.domain.words import Intent, StepKind

_KIND_OF_C2 = {
    "initial": StepKind.WORK,
    "continuation": StepKind.WORK,
    "verification": StepKind.VERIFICATION,
    "closure": StepKind.CLOSURE,
}


#: What every flow step of a gated registry must have.
_GATED_KEYS = ("structuredGate", "transitions", "outputSchemaRef")


def read_gate_steps(
    registry: GateRegistry, schemas: SchemaFolder | None, problems: FileProblems, *, allow_spec_violations: bool
) -> Nodes:
    """Sort the steps and check each by itself."""
    nodes = {key: _gate_node(key, entry) for key, entry in registry.steps.items()}
    sections = {key: node for key, node in nodes.items() if key.startswith("section.")}
    flow = {key: node for key, node in nodes.items() if key not in sections}
    gated = any(_has(node, "structuredGate", problems) for node in flow.values())
    for node in nodes.values():
        check_key(node.id, node.entry.step_id, node.at, problems)
        for part in ("c2", "c3", "edition", "adaptation"):
            check_part(node.at, part, getattr(node.entry, part), problems)
        check_c3_style(node.at, node.entry.c3, problems)
    for node in flow.values():
        _check_flow_step(node, problems, gated=gated)
        if schemas is not None and node.entry.output_schema_ref is not None:
            node.schema = schemas.by_ref(node.entry.output_schema_ref, node.at / "outputSchemaRef")
        if node.entry.structured_gate is not None:
            node.gate = _GateReader(node, node.entry.structured_gate, problems).read(allow_spec_violations)
            at = node.at / "structuredGate" / "handoffFields"
            node.handed = {path: at / index for index, path in enumerate(node.gate.handoff_fields)}
    for node in sections.values():
        for key in (*_GATED_KEYS, "runner", "inputs", "approval", "tools", *MODEL_KEYS):
            if to_snake(key) in node.entry.model_fields_set:
                message = f'"{key}" has no effect on the section "{node.id}", which is no flow step'
                problems.add("SF111", node.at / key, message, "Remove the key, or leave it.")
    return Nodes(flow=flow, sections=sections, gated=gated)


def _gate_node(key: str, entry: StepEntry) -> Node[StepEntry]:
    return Node(
        id=key,
        at=Pointer("/steps") / key,
        entry=entry,
        kind=entry.step_kind or _KIND_OF_C2.get(entry.c2),
        initial=key.startswith("initial.") or entry.c2 == "initial",
    )


def _has(node: Node[StepEntry], key: str, problems: FileProblems) -> bool:
    """Whether a step has something under a key, if only something of a wrong type, which is reported."""
    return getattr(node.entry, to_snake(key)) is not None or problems.at(node.at / key)


def _check_flow_step(node: Node[StepEntry], problems: FileProblems, *, gated: bool) -> None:
    if gated and node.kind is None and not problems.at(node.at / "stepKind"):
        message = f'its kind cannot be told from "c2": "{node.entry.c2}", and there is no "stepKind"'
        problems.report("SF306", node.at, message, f'Write "stepKind": one of {listed(StepKind)}.')
    lacking = [key for key in _GATED_KEYS if not _has(node, key, problems)]
    if gated and lacking:
        message = f'step "{node.id}" lacks {listed(lacking)}, which every flow step of a gated registry has'
        fix = 'Add them, or begin the id with "section." if it is only a piece of prompt.'
        problems.add("SF307", node.at, message, fix)
    if node.entry.runner is not None and node.kind is not StepKind.CLOSURE:
        message = f'step "{node.id}" has a "runner", but its kind is {node.kind or "not known"}, not closure'
        problems.add("SF311", node.at / "runner", message, 'Remove "runner", or make the step a closure.')


class _GateReader:
    """Reads and checks the gate of one step."""

    def __init__(self, node: Node[StepEntry], entry: GateEntry, problems: FileProblems) -> None:
        self.node, self.entry, self.problems = node, entry, problems
        self.at = node.at / "structuredGate"
        self.allowed = list(entry.allowed_intents)

    def read(self, allow_spec_violations: bool) -> Gate:
        for index, word in enumerate(self.allowed):
            intent = check_intent(word, self.node, self.at / "allowedIntents" / index, self.problems)
            self.allowed[index] = intent or word
        self._check_paths()
        self._check_jump()
        words = self._enum()
        self._check_pointer(words)
        if self.node.schema is not None:
            self._check_fields(self.node.schema)
        self._check_fail_fast(allow_spec_violations)
        entry, known = self.entry, list(Intent)
        allowed = tuple(dict.fromkeys(Intent(word) for word in self.allowed if word in known))
        fallback = Intent(entry.fallback_intent) if entry.fallback_intent in known else None
        return Gate(
            allowed=tuple(intent for intent in allowed if intent is not Intent.ABORT),
            intent_field=entry.intent_field,
            target_field=entry.target_field,
            handoff_fields=tuple(entry.handoff_fields),
            fail_fast=entry.fail_fast,
            fallback_intent=None if entry.fail_fast else fallback or (allowed[0] if allowed else None),
            lists_abort=Intent.ABORT in (words or ()),
        )

    def _check_paths(self) -> None:
        entry, names = self.entry, "Write names with dots between them."
        if entry.intent_field and entry.intent_field.strip() and not is_dotted(entry.intent_field):
            message = f'"intentField" is "{entry.intent_field}", which is no dotted path'
            fix = 'Write names with dots, as in "next_action.action".'
            self.problems.report("SF324", self.at / "intentField", message, fix)
        if entry.target_field is not None and not is_dotted(entry.target_field):
            message = f'"targetField" is "{entry.target_field}", which is no dotted path'
            self.problems.report("SF106", self.at / "targetField", message, names)
        seen: dict[str, str] = {}
        for index, path in enumerate(entry.handoff_fields):
            field_at = self.at / "handoffFields" / index
            if not is_dotted(path):
                self.problems.report("SF106", field_at, f'the handoff field "{path}" is no dotted path', names)
            key = path.rpartition(".")[2]
            if key in seen:
                message = f'the handoff fields "{seen[key]}" and "{path}" both hand over "{key}"'
                self.problems.report("SF327", field_at, message, "Hand over fields whose last names differ.")
            seen.setdefault(key, path)

    def _check_jump(self) -> None:
        rules, target = self.node.entry.transitions, self.entry.target_field
        if Intent.JUMP in self.allowed and not target and rules is not None and Intent.JUMP not in rules:
            message = '"jump" is allowed, but neither "targetField" nor a rule says where to'
            self.problems.report("SF330", self.at, message, 'Set "targetField", or add a rule for "jump".')
        if target and Intent.JUMP not in self.allowed:
            message = '"targetField" is only read for "jump", which is not allowed here'
            self.problems.report("SF331", self.at / "targetField", message, 'Remove "targetField", or allow "jump".')

    def _enum(self) -> list[str] | None:
        """The words of the enum that `intentSchemaRef` leads to; None when it leads to no enum of texts."""
        pointer, schema = self.entry.intent_schema_ref, self.node.schema
        node = node_at(schema, pointer[1:]) if schema is not None and pointer.startswith("#/") else None
        words = node.get("enum") if isinstance(node, dict) else None
        if not isinstance(words, list) or not words:
            return None
        texts = [word for word in words if isinstance(word, str)]
        return texts if len(texts) == len(words) else None

    def _check_pointer(self, words: list[str] | None) -> None:
        pointer, field_at = self.entry.intent_schema_ref, self.at / "intentSchemaRef"
        enum, allowed = set(words or ()) - {Intent.ABORT}, set(self.allowed) - {Intent.ABORT}
        if not pointer.strip():
            return  # SF325 was reported with the shape
        if not pointer.startswith("#/"):
            message = f'"intentSchemaRef" is "{pointer}", which does not begin with "#/"'
            fix = 'Write a pointer such as "#/properties/next_action/properties/action".'
            self.problems.report("SF325", field_at, message, fix)
        elif words is None and self.node.schema is not None:
            message = f'"intentSchemaRef" "{pointer}" leads to no enum of texts in the answer schema'
            fix = "Point it at the schema node whose enum lists the intents."
            self.problems.report("SF325", field_at, message, fix)
        elif words is not None and self.allowed and enum != allowed:
            extra, missing = listed(sorted(enum - allowed)), listed(sorted(allowed - enum))
            message = f'the enum at "{pointer}" differs from "allowedIntents": '
            message += f"extra in the enum {extra}, missing in the enum {missing}"
            fix = f'Give the enum and "allowedIntents" the same words: {listed(words)}, or {listed(self.allowed)}.'
            self.problems.report("SF326", field_at, message, fix)

    def _check_fail_fast(self, allow_spec_violations: bool) -> None:
        if not self.entry.fail_fast:
            code, fix = "SF328", 'Remove "failFast": false.'
            if allow_spec_violations:
                code, fix = "SF329", "Remove it before real use."
            message = '"failFast" is false, so an answer without an intent would not stop the run'
            self.problems.report(code, self.at / "failFast", message, fix)
        word = self.entry.fallback_intent
        if word is None:
            return
        field_at = self.at / "fallbackIntent"
        intent = check_intent(word, self.node, field_at, self.problems)
        if intent != word:
            return  # what it names was reported
        if word not in self.allowed and intent is not Intent.ABORT:
            message = f'"fallbackIntent" is "{word}", which is not among "allowedIntents"'
            self.problems.report("SF321", field_at, message, f"Use one of {listed(self.allowed)}.")
        elif self.entry.fail_fast:
            message = '"fallbackIntent" is only used with "failFast": false'
            self.problems.report("SF331", field_at, message, "Remove the key, or leave it.")

    def _check_fields(self, schema: JsonObject) -> None:
        """Report each path that no answer can hold, or that the schema does not declare (SF325, SF332, SF333)."""
        entry = self.entry
        if entry.intent_field and is_dotted(entry.intent_field):
            self._check_intent_field(schema, entry.intent_field)
        if entry.target_field and is_dotted(entry.target_field) and Intent.JUMP in self.allowed:
            held = look_into(schema, entry.target_field)
            if not held.blocked and not held.takes_text():
                held = replace(held, blocked=f'"{entry.target_field}" takes no text')
            self._check_held(held, self.at / "targetField", entry.target_field)
        for index, path in enumerate(entry.handoff_fields):
            if is_dotted(path):
                self._check_held(look_into(schema, path), self.at / "handoffFields" / index, path)

    def _check_intent_field(self, schema: JsonObject, path: str) -> None:
        held, at, pointer = look_into(schema, path), self.at / "intentField", self.entry.intent_schema_ref
        words = tuple(word for word in self.allowed if word in list(Intent))
        pointed = node_at(schema, pointer[1:]) if pointer.startswith("#/") else None
        if held.blocked or not held.takes_text(words):
            why = held.blocked or f'"{path}" takes none of the allowed intents'
            near = _path_of(pointer) if isinstance(pointed, dict) and pointed.get("enum") else None
            fix = f'Write "{near}".' if near and near != path else _DECLARE
            self.problems.report("SF332", at, f'no answer can hold an intent at "{path}": {why}', fix)
        elif isinstance(pointed, dict) and not any(node is pointed for node in held.nodes):
            if not self.problems.at(self.at / "intentSchemaRef"):
                message = f'"intentSchemaRef" "{pointer}" leads to another enum than that of "{path}"'
                own = "".join(f"/properties/{part}" for part in path.split("."))
                is_there = node_at(schema, own) is not None
                fix = f'Write "#{own}".' if is_there else 'Point it at the schema node that "intentField" reads.'
                self.problems.report("SF325", self.at / "intentSchemaRef", message, fix)
        else:
            self._check_held(held, at, path)

    def _check_held(self, held: Held, at: Pointer, path: str) -> None:
        if held.blocked:
            message = f'no answer can hold "{path}": {held.blocked}'
            self.problems.report("SF333", at, message, _DECLARE, severity=Severity.ERROR)
        elif held.undeclared:
            message = f'an answer may not hold "{path}": {held.undeclared}, and services allow only what is declared'
            self.problems.report("SF333", at, message, _DECLARE)


def _path_of(pointer: str) -> str | None:
    """The dotted path that a pointer through properties alone leads to."""
    match = re.fullmatch(r"#((?:/properties/[^/]+)+)", pointer)
    return match[1].removeprefix("/properties/").replace("/properties/", ".") if match else None


def is_dotted(path: str) -> bool:
    """Whether a text is names with dots between them."""
    return all(part and part == part.strip() for part in path.split("."))


_DECLARE = "Declare the path in the answer schema, or correct it here."


#: Schemas that must hold together. Alternatives are several of them.
_All = tuple[JsonObject, ...]


#: A schema with more alternatives is not looked into.
_MOST = 200


@dataclass(frozen=True, kw_only=True)
class Held:
    """What a fitting answer can hold at a path. `nodes` are the schemas that describe it.

    `blocked` says why it can hold nothing there, empty when it can. `undeclared` says that it can although the schema
    does not name it: a service that enforces the schema lets nothing through then.
    """

    nodes: tuple[JsonObject, ...] = ()
    blocked: str = ""
    undeclared: str = ""
    alternatives: tuple[_All, ...] = ()

    def takes_text(self, words: tuple[str, ...] = ()) -> bool:
        """Whether a text can be there, one of these words if any are given."""
        return any(_takes_text(schemas, words) for schemas in self.alternatives)


class _TooMany(Exception):
    """More alternatives than are looked into."""


def look_into(schema: JsonObject, path: str) -> Held:
    """What fitting answers can hold at a dotted path."""
    try:
        alternatives, undeclared, walked = _expanded(schema), "", ""
        for part in path.split("."):
            steps = [_step(schemas, part) for schemas in alternatives]
            reasons = [step for step in steps if isinstance(step, str)]
            inner = [step for step in steps if not isinstance(step, str)]
            where = f'"{walked}"' if walked else "the answer"
            if not inner:
                return Held(blocked=f"{where} {reasons[0]}" if reasons else f"{where} can have no value")
            if not undeclared and not any(inner):
                undeclared = f'{where} does not declare "{part}"'
            walked = f"{walked}.{part}" if walked else part
            alternatives = [one for schemas in inner for one in _combined(schemas)]
            if not alternatives:
                return Held(blocked=f'"{walked}" can have no value')
        nodes = tuple(node for schemas in alternatives for node in schemas)
        return Held(nodes=nodes, undeclared=undeclared, alternatives=tuple(alternatives))
    except _TooMany:
        return Held(alternatives=((),))


def _combined(schemas: tuple[JsonValue, ...]) -> list[_All]:
    """The alternatives of schemas that must hold together."""
    combined: list[_All] = [()]
    for schema in schemas:
        combined = [(*one, *other) for one in combined for other in _expanded(schema)]
        if len(combined) > _MOST:
            raise _TooMany
    return combined


def _expanded(schema: JsonValue) -> list[_All]:
    """The alternatives that a schema allows; conditions by `if` are not looked at."""
    if not isinstance(schema, dict):
        return [] if schema is False else [()]
    if schema.get("not") in (True, {}):
        return []
    members = schema.get("allOf")
    combined = [(schema, *one) for one in _combined(tuple(members if isinstance(members, list) else ()))]
    for key in ("anyOf", "oneOf"):
        options = schema.get(key)
        if isinstance(options, list):
            choices = [one for option in options for one in _expanded(option)]
            combined = [(*one, *other) for one in combined for other in choices]
        if len(combined) > _MOST:
            raise _TooMany
    return combined


def _step(schemas: _All, part: str) -> tuple[JsonValue, ...] | str:
    """The schemas of a part of what these describe, none when none of them names it; or why it cannot be there."""
    inner: list[JsonValue] = []
    for schema in schemas:
        is_item = part.isdecimal() and _allows_type(schema, "array") and not _allows_type(schema, "object")
        if not is_item and not _allows_type(schema, "object"):
            return f"is {_type_words(schema)}, which has no parts"
        values = schema["enum"] if "enum" in schema else [schema["const"]] if "const" in schema else None
        if isinstance(values, list) and not any(isinstance(value, dict) and part in value for value in values):
            return f'can have no "{part}"'
        if is_item:
            inner.append(_item(schema, int(part)))
            continue
        if not _allows_name(schema, part):
            return f'allows no property of the name "{part}"'
        named = _named(schema, part)
        if schema.get("maxProperties") == 0 or (named == [False] and not schema.get("properties")):
            return "is an object that can hold nothing"
        if False in named:
            return (
                f'forbids "{part}"' if part in _object(schema.get("properties")) else f'is closed and has no "{part}"'
            )
        inner += named
    is_closed = any(schema.get("unevaluatedProperties") is False for schema in schemas)
    return f'is closed and has no "{part}"' if is_closed and not inner else tuple(inner)


def _named(schema: JsonObject, part: str) -> list[JsonValue]:
    """What a schema says of a property; nothing when it does not speak of it."""
    properties, patterns = _object(schema.get("properties")), _object(schema.get("patternProperties"))
    named = [properties[part]] if part in properties else []
    named += [inner for pattern, inner in patterns.items() if _matches(pattern, part)]
    rest = schema.get("additionalProperties")
    return named or ([rest] if isinstance(rest, dict) or rest is False else [])


def _item(schema: JsonObject, index: int) -> JsonValue:
    """What an array's schema says of one item; False where it can have none there."""
    most, listed, others = schema.get("maxItems"), schema.get("prefixItems"), schema.get("items", True)
    if isinstance(most, int) and index >= most:
        return False
    if isinstance(others, list):  # as draft 7 has it
        listed, others = others, schema.get("additionalItems", True)
    return listed[index] if isinstance(listed, list) and index < len(listed) else others


def _allows_name(schema: JsonObject, part: str) -> bool:
    names = schema.get("propertyNames", True)
    return any(_takes_text(schemas, (part,)) for schemas in _expanded(names))


def _matches(pattern: str, part: str) -> bool:
    try:
        return re.search(pattern, part) is not None
    except re.error:
        return True


def _object(value: JsonValue) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _allows_type(schema: JsonObject, kind: str) -> bool:
    written = schema.get("type")
    return written is None or written == kind or (isinstance(written, list) and kind in written)


def _type_words(schema: JsonObject) -> str:
    written = schema.get("type")
    return " or ".join(map(str, written)) if isinstance(written, list) else f"of the type {written}"


def _takes_text(schemas: _All, words: tuple[str, ...]) -> bool:
    for schema in schemas:
        values = schema["enum"] if "enum" in schema else [schema["const"]] if "const" in schema else None
        texts = [value for value in values if isinstance(value, str)] if isinstance(values, list) else None
        if not _allows_type(schema, "string") or texts == []:
            return False
        if texts is not None and words and not set(texts) & set(words):
            return False
    return True
