"""The steps of a registry by themselves: those with gates, and those with checks (registry.md §5 and §6)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from pydantic.alias_generators import to_snake

from stepflow.definition.diagnostics import FileProblems, closest_match, did_you_mean, hint, listed
from stepflow.definition.file_models import (
    CheckEntry,
    CheckRegistry,
    CheckStepEntry,
    GateEntry,
    GateRegistry,
    StepEntry,
    TransitionEntry,
)
from stepflow.definition.files.json_text import Pointer, node_at
from stepflow.definition.gate_paths import GatePaths, is_dotted
from stepflow.definition.models import MODEL_KEYS
from stepflow.definition.schemas import Schemas
from stepflow.domain.definition import Gate, OutcomeRule, StepCheck, Transition
from stepflow.domain.json import JsonObject, JsonValue
from stepflow.domain.words import INTENT_ALIASES, INTENTS_OF_KIND, Intent, Permission, StepKind
from stepflow.engine.prompt.variables import handoff_variable

_KIND_OF_C2 = {
    "initial": StepKind.WORK,
    "continuation": StepKind.WORK,
    "verification": StepKind.VERIFICATION,
    "closure": StepKind.CLOSURE,
}

#: registry.md §5: what every flow step of a gated registry must have.
_GATED_KEYS = ("structuredGate", "transitions", "outputSchemaRef")

Entry = TypeVar("Entry", StepEntry, CheckStepEntry)


@dataclass(kw_only=True)
class Node(Generic[Entry]):
    """A flow step or a section on its way to becoming a `Step`. `at` is its JSON Pointer in the registry.

    `following` are the steps that may come right after it, `handed` the keys that it hands off, each with its place.
    """

    id: str
    at: Pointer
    entry: Entry
    kind: StepKind | None
    initial: bool = False
    schema: JsonObject | None = None
    gate: Gate | None = None
    check: StepCheck | None = None
    edges: dict[Intent, Transition] = field(default_factory=dict)
    approvals: dict[str, Permission] = field(default_factory=dict)
    following: set[str] = field(default_factory=set)
    handed: dict[str, Pointer] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Nodes:
    """All steps of a registry with gates."""

    flow: dict[str, Node[StepEntry]]
    sections: dict[str, Node[StepEntry]]
    gated: bool


def read_gate_steps(
    registry: GateRegistry, schemas: Schemas | None, problems: FileProblems, *, allow_spec_violations: bool
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


def check_key(key: str, written: str | None, at: Pointer, problems: FileProblems, *, word: str = "stepId") -> None:
    """An entry's `stepId`, or another `word`, equals its key (SF305)."""
    if written and written != key:
        message = f'"{word}" is "{written}", but the key is "{key}"'
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


def _gate_node(key: str, entry: StepEntry) -> Node[StepEntry]:
    return Node(
        id=key,
        at=Pointer("/steps") / key,
        entry=entry,
        kind=entry.step_kind or _KIND_OF_C2.get(entry.c2 or ""),
        initial=key.startswith("initial.") or entry.c2 == "initial",  # flow.md §6.1
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


def check_intent(word: str, node: Node[StepEntry], at: Pointer, problems: FileProblems) -> Intent | None:
    """The intent a word names, when it fits the step's kind (SF321). One that is nearly named is read as named."""
    fitting = fitting_intents(node.kind)
    if word not in list(Intent):
        near = INTENT_ALIASES.get(word) or closest_match(word, Intent)  # an answer may say the alias, no definition
        problems.report("SF321", at, f'the intent "{word}" does not exist{hint(near)}', f"Use only {listed(fitting)}.")
        return Intent(near) if near else None
    if word not in fitting:
        fix = f"Use only {listed(fitting)}, or change the step's kind."
        problems.report("SF321", at, f'a {node.kind} step may not answer "{word}"', fix)
        return None
    return Intent(word)


def fitting_intents(kind: StepKind | None) -> list[Intent]:
    """The intents of a kind in the order of the enum; all of them while the kind is not known."""
    return [one for one in Intent if kind is None or one is Intent.ABORT or one in INTENTS_OF_KIND[kind]]


class _GateReader:
    """Reads and checks the gate of one step."""

    def __init__(self, node: Node[StepEntry], entry: GateEntry, problems: FileProblems) -> None:
        self.node, self.entry, self.problems = node, entry, problems
        self.at = node.at / "structuredGate"
        self.allowed = list(entry.allowed_intents or ())

    def read(self, allow_spec_violations: bool) -> Gate:
        for index, word in enumerate(self.allowed):
            intent = check_intent(word, self.node, self.at / "allowedIntents" / index, self.problems)
            self.allowed[index] = intent or word
        self._check_paths()
        self._check_jump()
        words = self._enum()
        self._check_pointer(words)
        if self.node.schema is not None:
            paths = GatePaths(
                schema=self.node.schema,
                entry=self.entry,
                allowed=tuple(self.allowed),
                at=self.at,
                problems=self.problems,
            )
            paths.check()
        self._check_fail_fast(allow_spec_violations)
        entry, known = self.entry, list(Intent)
        allowed = tuple(dict.fromkeys(Intent(word) for word in self.allowed if word in known))
        fallback = Intent(entry.fallback_intent) if entry.fallback_intent in known else None
        return Gate(
            allowed=tuple(intent for intent in allowed if intent is not Intent.ABORT),
            intent_field=entry.intent_field or "",
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
        pointer, schema = self.entry.intent_schema_ref or "", self.node.schema
        node = node_at(schema, pointer[1:]) if schema is not None and pointer.startswith("#/") else None
        words = node.get("enum") if isinstance(node, dict) else None
        if not isinstance(words, list) or not words:
            return None
        texts = [word for word in words if isinstance(word, str)]
        return texts if len(texts) == len(words) else None

    def _check_pointer(self, words: list[str] | None) -> None:
        pointer, field_at = self.entry.intent_schema_ref or "", self.at / "intentSchemaRef"
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


CheckNodes = dict[str, Node[CheckStepEntry]]
_ID_FORM = re.compile(r"s_[0-9a-fA-F]{4,8}")


def read_check_steps(registry: CheckRegistry, problems: FileProblems) -> CheckNodes:
    """Check each step by itself."""
    return {step_id: _check_node(step_id, entry, registry.steps, problems) for step_id, entry in registry.steps.items()}


def _check_node(
    step_id: str, entry: CheckStepEntry, steps: Mapping[str, CheckStepEntry], problems: FileProblems
) -> Node[CheckStepEntry]:
    at = Pointer("/steps") / step_id
    check_key(step_id, entry.id, at, problems, word="id")
    if not _ID_FORM.fullmatch(step_id):
        message = f'the id "{step_id}" is not "s_" and 4 to 8 hexadecimal digits'
        problems.add("SF704", at, message, 'Use an id such as "s_a8f3"; the name of the step can say what it does.')
    keys: dict[str, Pointer] = {}
    for index, one in enumerate(entry.handoff):
        if one.key in keys:
            message = f'the handoff key "{one.key}" is declared twice'
            problems.report("SF708", at / "handoff" / index / "key", message, "Declare each key once.")
        elif one.key:
            keys[one.key] = at / "handoff" / index
    low, high = entry.iterations.min, entry.iterations.max
    if low > high and not problems.at(at / "iterations"):
        message = f'"iterations" has min {low}, which is more than max {high}'
        problems.report("SF705", at / "iterations", message, "Make min at most max.")
    written = entry.check or CheckEntry()
    outcomes = {"onPass": written.on_pass, "onFail": written.on_fail}
    rules = {key: tuple(_outcome_rules(outcome, high)) if outcome else () for key, outcome in outcomes.items()}
    if entry.check:
        _check_outcomes(at / "check", outcomes, rules, problems, steps=steps, high=high)
    on_pass, on_fail = (tuple(_within(high, rule, step_id) for rule in rules[key]) for key in ("onPass", "onFail"))
    if low > 1:
        on_pass = (OutcomeRule(intent=Intent.REPEAT, transition="repeat", runs_below=low), *on_pass)
    if high > 1 and not on_fail:
        on_fail = (OutcomeRule(intent=Intent.REPEAT, transition="repeat", runs_below=high),)
    is_demanded = written.response_format is not None
    check = StepCheck(on_pass=on_pass, on_fail=on_fail, is_demanded=is_demanded, handoff_keys=tuple(keys))
    completes = any(rule.intent is Intent.CLOSING for rule in check.rules)
    return Node(
        id=step_id,
        at=at,
        entry=entry,
        kind=StepKind.CLOSURE if completes else StepKind.WORK,  # registry.md §7
        schema=_built_schema(entry, check),
        check=check,
        following={rule.target or step_id for rule in check.rules if rule.intent is not Intent.CLOSING},
        handed=keys,
    )


def _check_outcomes(
    at: Pointer,
    outcomes: Mapping[str, TransitionEntry | None],
    rules: Mapping[str, tuple[OutcomeRule, ...]],
    problems: FileProblems,
    *,
    steps: Mapping[str, CheckStepEntry],
    high: int,
) -> None:
    """Report an outcome that leads nowhere, and keys that are never reached."""
    if not any(rules.values()):
        if not problems.failed_at(f"{re.escape(at)}/on(Pass|Fail)(/.*)?"):
            message = 'neither "onPass" nor "onFail" of the check says what follows'
            problems.report("SF702", at, message, 'Write "onPass", for example {"next": "<step id>"}.')
        return
    for key, entry in outcomes.items():
        for name, target in (("next", entry.next), ("fallback", entry.fallback)) if entry else ():
            if target is not None and target not in steps:
                message = f'"{name}" names "{target}", which does not exist{did_you_mean(target, steps)}'
                problems.report("SF703", at / key / name, message, f"Name a step; there are {listed(steps)}.")
        for name, why in _unreached(entry, high) if entry else ():
            message = f'"{name}" of "{key}" is never reached, because {why}'
            problems.report("SF709", at / key / name, message, "Remove the key, or leave it.")
        if not rules[key] and not (key == "onFail" and high > 1) and not problems.at(at / key):
            message = f"nothing says what follows a {key[2:].lower()}, so it ends the run as failed"
            fix = f'Give "{key}" one of "next", "fallback", "retry" and "complete".'
            problems.report("SF706", at / key if entry else at, message, fix)


def _outcome_rules(entry: TransitionEntry, most_runs: int) -> Iterator[OutcomeRule]:
    """What follows, in the order of reading (registry.md §6.2). The step runs at most `most_runs` times in one visit;
    1, the default, only says that it does not repeat by itself: then `maxRetries` alone limits `retry`."""
    if entry.complete:
        yield OutcomeRule(intent=Intent.CLOSING, transition="complete")
    elif entry.next is not None:
        yield OutcomeRule(intent=Intent.NEXT, transition="next", target=entry.next)
    else:
        if entry.retry:
            most = entry.max_retries or None
            yield OutcomeRule(intent=Intent.REPEAT, transition="retry", retries_below=most)
        if entry.fallback is not None and (entry.max_retries or not entry.retry or most_runs > 1):
            yield OutcomeRule(intent=Intent.JUMP, transition="fallback", target=entry.fallback)


def _within(most_runs: int, rule: OutcomeRule, step_id: str) -> OutcomeRule:
    """The rule, which leads back to the step only while it may run once more in this visit."""
    leads_back = rule.intent is Intent.REPEAT or rule.target == step_id
    return replace(rule, runs_below=most_runs) if leads_back and most_runs > 1 else rule


def _unreached(entry: TransitionEntry, most_runs: int) -> Iterator[tuple[str, str]]:
    """The written keys that the order of reading never comes to, each with the reason."""
    given = {
        "next": entry.next is not None,
        "retry": entry.retry,
        "maxRetries": entry.max_retries > 0,
        "fallback": entry.fallback is not None,
    }
    if entry.complete or entry.next is not None:
        first = "complete" if entry.complete else "next"
        yield from ((name, f'"{first}" comes first') for name in given if given[name] and name != first)
    elif not entry.retry and given["maxRetries"]:
        yield "maxRetries", 'there is no "retry": true'
    elif entry.retry and not given["maxRetries"] and given["fallback"] and most_runs == 1:
        yield "fallback", '"retry" has no limit of its own'


def _built_schema(entry: CheckStepEntry, check: StepCheck) -> JsonObject | None:
    """The answer schema that the engine builds; None when nothing is read from the step's own answer."""
    asks = entry.check is not None and entry.check.prompt is not None
    if asks and not check.handoff_keys:
        return None
    properties: JsonObject = {} if asks else {"result": _RESULT}
    required: list[JsonValue] = ["result"] if check.is_demanded and not asks else []
    properties["message"] = {"type": "string", "description": "what was done or found"}
    if check.handoff_keys:
        described = {one.key: one.description for one in entry.handoff if one.key}
        keys: JsonObject = {key: {"description": text} if text else {} for key, text in described.items()}
        properties["handoff"] = {"type": "object", "required": list(described), "properties": keys}
        required.append("handoff")
    return {"type": "object", "required": required, "properties": properties}


_RESULT: JsonObject = {
    "enum": ["ok", "ng", "pass", "fail", True, False],
    "description": "ok: the step has done what it was asked; ng: it has not",
}


def add_aliases(
    nodes: CheckNodes, owners: dict[str, tuple[str, str]], reserved: frozenset[str], problems: FileProblems
) -> None:
    """Add the names beside `<id>_<key>`: the id without its `s_`, and the prompt's `c3` if no other step has it.

    `owners` are the handoff variables that there are, and get those that are added; `reserved` names mean something
    else. A second name that clashes with one of them is left out.
    """
    prefixes = [(node, node.id[2:]) for node in nodes.values() if node.id.startswith("s_") and node.id != "s_"]
    named = [(node, node.entry.prompt.c3) for node in nodes.values() if node.entry.prompt and node.entry.prompt.c3]
    times = Counter(c3 for _, c3 in named)
    for node, prefix in (*prefixes, *(one for one in named if times[one[1]] == 1)):
        for key, named_at in node.handed.items():
            name, own = handoff_variable(prefix, key), (node.id, key)
            owner = owners.setdefault(name, own)
            if owner == own and name not in reserved:
                node.aliases.setdefault(name, key)
            else:
                other = f'"{owner[1]}" of step "{owner[0]}"' if owner != own else "another variable"
                message = f'"{key}" is not known as "{name}" too, since that is {other}'
                problems.report("SF111", named_at, message, f'Use "{handoff_variable(node.id, key)}" in prompts.')
