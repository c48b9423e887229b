"""The steps of a registry: its dialect, their form, gates and tools, and what they hand off."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Generic, TypeVar

from pydantic.alias_generators import to_snake

from stepflow.definition.agent import MODEL_KEYS, Agent
from stepflow.definition.diagnostics import FileProblems, closest_match, hint, list_words
from stepflow.definition.file_models import GateEntry, GateRegistry, StepEntry, StepSettings
from stepflow.definition.mcp import LOCK_FILE, LockedServers
from stepflow.definition.parsing import Pointer, node_at
from stepflow.definition.schemas import SchemaFolder
from stepflow.domain.agent.agent_settings import (
    KNOWN_TOOL_NAMES,
    MCP_PREFIX,
    READ_ONLY_TOOLS,
    TOOL_SPECS_BY_NAME,
    StepCommand,
    mcp_name,
)
from stepflow.domain.agent.definition import Gate, SourceText, StepCheck, StepPrompt, Transition
from stepflow.domain.json import JsonObject
from stepflow.domain.words import INTENT_ALIASES, INTENTS_OF_KIND, Dialect, Intent, Permission, PermissionMode, StepKind
from stepflow.engine.answer_schema import Held, look_into
from stepflow.engine.prompt.variables import handoff_variable
from stepflow.errors import Severity

_GATE_KEYS = ("structuredGate", "c2")
_CHECK_KEYS = ("check", "prompt", "iterations")


def detect_dialect(registry: JsonObject, problems: FileProblems) -> Dialect | None:
    """The dialect, recognized by keys that only one of them has; None after a problem."""
    steps = registry.get("steps")
    if not isinstance(steps, dict) or not steps:
        state = "is missing" if steps is None else "is empty" if steps == {} else "is not an object"
        problems.add("SF301", "/steps" if steps is not None else "", f'"steps" {state}', "Declare at least one step.")
        return None
    if newer := next((at for at in _marks(steps, ("address",)) if isinstance(node_at(registry, at), dict)), None):
        message = 'the registry is in the form of climpt 1.14 ("address" and "kind" in steps), which is not supported'
        fix = 'Make the parts of "address" keys of the step itself ("c2", "c3", "edition", "adaptation"; "c1" of the '
        fix += 'registry), rename "kind" to "stepKind", and give each type in "entryStepMapping" one step id.'
        problems.add("SF309", newer, message, fix)
        return None
    gate = list(_marks(steps, _GATE_KEYS))
    check = [*(["/basePath"] if "basePath" in registry else []), *_marks(steps, _CHECK_KEYS)]
    if gate and check:
        message = f"the registry mixes two dialects: {list_words(gate[:1])} is of the gate dialect, "
        message += f"{list_words(check[:1])} of the check dialect"
        problems.add("SF302", check[0], message, "Write all steps in one dialect.")
        return None
    if not gate and not check:
        message = f"no step has {list_words(_GATE_KEYS)} or {list_words(_CHECK_KEYS)}, so the dialect is unclear"
        problems.add("SF301", "/steps", message, 'Give each step "c2", "c3" and a "structuredGate".')
        return None
    return Dialect.GATE if gate else Dialect.CHECK


def _marks(steps: JsonObject, keys: tuple[str, ...]) -> Iterator[str]:
    for name, step in steps.items():
        for key in keys:
            if isinstance(step, dict) and key in step:
                yield Pointer("/steps") / name / key


Entry_co = TypeVar("Entry_co", bound=StepSettings, covariant=True)


@dataclass(kw_only=True)
class Node(Generic[Entry_co]):
    """A flow step or a section before it becomes a `Step`. `at` is its JSON Pointer in the registry.

    `following` are the steps that may come right after it; `handed` maps the keys that it hands off to their places.
    """

    id: str
    at: Pointer
    entry: Entry_co
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
    prompt: StepPrompt | None = None
    guidance: tuple[SourceText, ...] = ()
    tools: tuple[str, ...] | None = None

    @property
    def command(self) -> StepCommand | None:
        """The command that answers instead of the model."""
        return self.entry.runner if isinstance(self.entry, StepEntry) else None


@dataclass(frozen=True, kw_only=True)
class Nodes(Generic[Entry_co]):
    """All steps of a registry. A registry with checks has no sections, and counts as gated."""

    flow: Mapping[str, Node[Entry_co]]
    sections: Mapping[str, Node[Entry_co]] = field(default_factory=dict)
    gated: bool = True


def check_key(key: str, written: str | None, at: Pointer, problems: FileProblems, *, word: str = "stepId") -> None:
    """Check that an entry's `stepId`, or its `word`, equals its key (SF305)."""
    if written and written != key:
        message = f'"{word}" is "{written}", but the key is "{key}"'
        problems.add("SF305", at / word, message, f'Write "{word}": "{key}", or rename the key.')


def check_c3_style(at: Pointer, c3: str, problems: FileProblems) -> None:
    """Warn about a `c3` that is not kebab-case (SF308)."""
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", c3):
        message = f'"c3" is "{c3}", which is not kebab-case'
        problems.add("SF308", at / "c3", message, "Use lowercase letters, digits and single hyphens.")


_INTENTS = frozenset(Intent)


def check_intent(word: str, node: Node[StepEntry], at: Pointer, problems: FileProblems) -> Intent | None:
    """The intent that a word names, if it fits the step's kind (SF321). A misspelled one is read as the one that is
    meant."""
    fitting = fitting_intents(node.kind)
    if word not in _INTENTS:
        near = INTENT_ALIASES.get(word) or closest_match(word, Intent)  # an answer may say the alias, no definition
        problems.report(
            "SF321", at, f'the intent "{word}" does not exist{hint(near)}', f"Use only {list_words(fitting)}."
        )
        return Intent(near) if near else None
    if word not in fitting:
        fix = f"Use only {list_words(fitting)}, or change the step's kind."
        problems.report("SF321", at, f'a {node.kind} step may not answer "{word}"', fix)
        return None
    return Intent(word)


@cache
def fitting_intents(kind: StepKind | None) -> tuple[Intent, ...]:
    """The intents of a kind in the order of the enum; all of them if the kind is unknown."""
    return tuple(one for one in Intent if kind is None or one is Intent.ABORT or one in INTENTS_OF_KIND[kind])


_KIND_OF_C2 = {
    "initial": StepKind.WORK,
    "continuation": StepKind.WORK,
    "verification": StepKind.VERIFICATION,
    "closure": StepKind.CLOSURE,
}
#: The keys that every flow step of a gated registry must have, and their fields.
_GATED_KEYS = {
    "structuredGate": "structured_gate",
    "transitions": "transitions",
    "outputSchemaRef": "output_schema_ref",
}


def read_gate_steps(
    registry: GateRegistry, schemas: SchemaFolder, problems: FileProblems, *, gated: bool, allow_spec_violations: bool
) -> Nodes[StepEntry]:
    """Separate flow steps from sections, and check each by itself. `gated` says whether any step has a gate."""
    nodes = {key: _gate_node(key, entry) for key, entry in registry.steps.items()}
    sections = {key: node for key, node in nodes.items() if key.startswith("section.")}
    flow = {key: node for key, node in nodes.items() if key not in sections}
    for node in nodes.values():
        check_key(node.id, node.entry.step_id, node.at, problems)
        check_c3_style(node.at, node.entry.c3, problems)
    for node in flow.values():
        _check_flow_step(node, problems, gated=gated)
        if node.entry.output_schema_ref is not None:
            node.schema = schemas.by_ref(node.entry.output_schema_ref, node.at / "outputSchemaRef")
        if node.entry.structured_gate is not None:
            node.gate = _GateReader(node, node.entry.structured_gate, problems).read(allow_spec_violations)
            at = node.at / "structuredGate" / "handoffFields"
            node.handed = {path: at / index for index, path in enumerate(node.gate.handoff_fields)}
    for node in sections.values():
        for key in (*_GATED_KEYS, "runner", "inputs", "approval", "tools", *MODEL_KEYS):
            if to_snake(key) in node.entry.model_fields_set:
                message = f'"{key}" has no effect on the section "{node.id}", which is not a flow step'
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


def _check_flow_step(node: Node[StepEntry], problems: FileProblems, *, gated: bool) -> None:
    if gated and node.kind is None:
        message = f'its kind is not clear from "c2": "{node.entry.c2}", and there is no "stepKind"'
        problems.report("SF306", node.at, message, f'Write "stepKind": one of {list_words(StepKind)}.')
    lacking = [key for key, name in _GATED_KEYS.items() if getattr(node.entry, name) is None]
    if gated and lacking:
        message = f'step "{node.id}" lacks {list_words(lacking)}, which every flow step of a gated registry has'
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
        #: What `intentSchemaRef` points to, and the words if that is an enum of strings.
        pointer = entry.intent_schema_ref
        pointed = node_at(node.schema, pointer[1:]) if node.schema is not None and pointer.startswith("#/") else None
        self.pointed = pointed if isinstance(pointed, dict) else None
        words = self.pointed.get("enum") if self.pointed else None
        is_enum = isinstance(words, list) and all(isinstance(word, str) for word in words)
        self.words = list(map(str, words)) if isinstance(words, list) and is_enum else []

    def read(self, allow_spec_violations: bool) -> Gate:
        for index, word in enumerate(self.allowed):
            intent = check_intent(word, self.node, self.at / "allowedIntents" / index, self.problems)
            self.allowed[index] = intent or word
        self._check_names()
        self._check_jump()
        self._check_pointer()
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
            lists_abort=Intent.ABORT in self.words,
        )

    def _check_names(self) -> None:
        seen: dict[str, str] = {}
        for index, path in enumerate(self.entry.handoff_fields):
            field_at = self.at / "handoffFields" / index
            key = path.rpartition(".")[2]
            if key in seen:
                message = f'the handoff fields "{seen[key]}" and "{path}" both hand off "{key}"'
                self.problems.report("SF327", field_at, message, "Hand off fields whose last parts differ.")
            seen.setdefault(key, path)

    def _check_jump(self) -> None:
        rules, target = self.node.entry.transitions, self.entry.target_field
        if Intent.JUMP in self.allowed and not target and rules is not None and Intent.JUMP not in rules:
            message = '"jump" is allowed, but neither "targetField" nor a rule says where to'
            self.problems.report("SF330", self.at, message, 'Set "targetField", or add a rule for "jump".')
        if target and Intent.JUMP not in self.allowed:
            message = '"targetField" is only read for "jump", which is not allowed here'
            self.problems.report("SF331", self.at / "targetField", message, 'Remove "targetField", or allow "jump".')

    def _check_pointer(self) -> None:
        pointer, field_at = self.entry.intent_schema_ref, self.at / "intentSchemaRef"
        enum, allowed = set(self.words) - {Intent.ABORT}, set(self.allowed) - {Intent.ABORT}
        if not pointer.startswith("#/"):
            message = f'"intentSchemaRef" is "{pointer}", which does not begin with "#/"'
            fix = 'Write a pointer such as "#/properties/next_action/properties/action".'
            self.problems.report("SF325", field_at, message, fix)
        elif not self.words and self.node.schema is not None:
            message = f'"intentSchemaRef" "{pointer}" leads to no enum of strings in the answer schema'
            fix = "Point it at the schema node whose enum lists the intents."
            self.problems.report("SF325", field_at, message, fix)
        elif self.words and self.allowed and enum != allowed:
            extra, missing = list_words(sorted(enum - allowed)), list_words(sorted(allowed - enum))
            message = f'the enum at "{pointer}" differs from "allowedIntents": '
            message += f"extra in the enum {extra}, missing in the enum {missing}"
            these, or_these = list_words(self.words), list_words(self.allowed)
            fix = f'Give the enum and "allowedIntents" the same words: {these}, or {or_these}.'
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
            self.problems.report("SF321", field_at, message, f"Use one of {list_words(self.allowed)}.")
        elif self.entry.fail_fast:
            message = '"fallbackIntent" is only used with "failFast": false'
            self.problems.report("SF331", field_at, message, "Remove the key, or leave it.")

    def _check_fields(self, schema: JsonObject) -> None:
        """Report each path that no answer can have, or that the schema does not declare (SF325, SF332, SF333)."""
        entry = self.entry
        self._check_intent_field(schema, entry.intent_field)
        if entry.target_field and Intent.JUMP in self.allowed:
            held = look_into(schema, entry.target_field)
            if not held.blocked and not held.takes_text():
                held = replace(held, blocked=f'"{entry.target_field}" takes no string')
            self._check_held(held, self.at / "targetField", entry.target_field)
        for index, path in enumerate(entry.handoff_fields):
            self._check_held(look_into(schema, path), self.at / "handoffFields" / index, path)

    def _check_intent_field(self, schema: JsonObject, path: str) -> None:
        held, at, pointer = look_into(schema, path), self.at / "intentField", self.entry.intent_schema_ref
        words = tuple(word for word in self.allowed if word in _INTENTS)
        if held.blocked or not held.takes_text(words):
            why = held.blocked or f'"{path}" takes none of the allowed intents'
            near = _path_of(pointer) if self.pointed and self.pointed.get("enum") else None
            fix = f'Write "{near}".' if near and near != path else _DECLARE
            self.problems.report("SF332", at, f'no answer can contain an intent at "{path}": {why}', fix)
        elif self.words and not any(node is self.pointed for node in held.nodes):
            message = f'"intentSchemaRef" "{pointer}" leads to another enum than that of "{path}"'
            own = "".join(f"/properties/{part}" for part in path.split("."))
            is_there = node_at(schema, own) is not None
            fix = f'Write "#{own}".' if is_there else 'Point it at the schema node that "intentField" reads.'
            self.problems.report("SF325", self.at / "intentSchemaRef", message, fix)
        else:
            self._check_held(held, at, path)

    def _check_held(self, held: Held, at: Pointer, path: str) -> None:
        if held.blocked:
            message = f'no answer can contain "{path}": {held.blocked}'
            self.problems.report("SF333", at, message, _DECLARE, severity=Severity.ERROR)
        elif held.undeclared:
            message = f'an answer may not contain "{path}": {held.undeclared}, and services allow only what is declared'
            self.problems.report("SF333", at, message, _DECLARE)


def _path_of(pointer: str) -> str | None:
    """The dotted path for a pointer that goes through properties only."""
    match = re.fullmatch(r"#((?:/properties/[^/]+)+)", pointer)
    return match[1].removeprefix("/properties/").replace("/properties/", ".") if match else None


_DECLARE = "Declare the path in the answer schema, or correct it here."


class StepTools:
    """Reads the `tools` of steps."""

    def __init__(self, agent: Agent, locked: LockedServers, problems: FileProblems) -> None:
        self.agent, self.locked, self.problems = agent, locked, problems
        self.mode = agent.runner.boundaries.permission_mode
        written = agent.runner.boundaries.allowed_tools
        self.allowed = tuple(name for name in TOOL_SPECS_BY_NAME if written is None or {name, "*"} & {*written})
        #: What a name in `tools` may stand for.
        self.names = {"*": self.allowed, **{name: (name,) for name in self.allowed}, **locked.offered}
        self.names |= {name: (name,) for names in locked.offered.values() for name in names}
        # The prefixes of tool names about which nothing is known.
        unpinned = (one for one in agent.mcp_servers if f"{MCP_PREFIX}{one.name}" not in locked.offered)
        self.unknown = (*([] if agent.known else [MCP_PREFIX]), *(mcp_name(one.name, "") for one in unpinned))

    def read(self, nodes: Collection[Node[StepSettings]]) -> None:
        """Give each step its tools. Also reports skills and servers that no step can use."""
        for node in nodes:
            node.tools = self._of_step(node)
        asking = [node.tools for node in nodes if node.command is None]
        reading = [names for names in asking if "Read" in (self.allowed if names is None else names)]
        if self.problems.broken("steps"):
            return  # they may use what no other step does
        if self.agent.file.skills and not reading:
            message = 'skills are read with the tool "Read", which no step has'
            self.agent.problems.add("SF116", "/skills", message, 'Allow "Read".')
        if all(problem.code != "SF356" for problem in self.problems.diagnostics.collected):
            named = {name for names in asking for name in names or ()}
            for server, offered in self.locked.offered.items():
                if named.isdisjoint(offered):
                    at = Pointer("/mcpServers") / server.removeprefix(MCP_PREFIX)
                    fix = f'Write "{server}" into "tools" of the steps that need it, or remove it.'
                    self.agent.problems.report("SF111", at, "no step names a tool of it", fix)

    def _of_step(self, node: Node[StepSettings]) -> tuple[str, ...] | None:
        at = node.at / "tools"
        if node.entry.tools is None or node.command:
            return None
        plan = (node.entry.permission_mode or self.mode) is PermissionMode.PLAN
        named = (self._names(tool, at / index, plan=plan) for index, tool in enumerate(node.entry.tools))
        return tuple(dict.fromkeys(name for names in named for name in names))

    def _names(self, tool: str, at: Pointer, *, plan: bool) -> tuple[str, ...]:
        """The tools that are meant; empty after a problem."""
        if tool in self.names and not (plan and tool not in {"*", *READ_ONLY_TOOLS}):
            return self.names[tool]
        if tool in self.names:
            message = f'"permissionMode" is "plan", which leaves it no tool "{tool}"'
            fix = f"Remove it, or give the step another mode: this one leaves {list_words(sorted(READ_ONLY_TOOLS))}."
        elif tool in KNOWN_TOOL_NAMES:
            message = f'agent.json does not allow the tool "{tool}"'
            fix = 'Add it to "allowedTools" there, or remove it here.'
        elif any(f"{tool}__".startswith(server) for server in self.unknown):
            return ()  # why nothing is known of it was reported
        else:
            all_of_it = tool.removesuffix("__*")
            near = all_of_it if all_of_it in self.names else closest_match(tool, self.names)
            message = f'the tool "{tool}" is not known{hint(near)}'
            fix = f"Use {list_words((*self.allowed, *self.locked.offered))}, or one tool that {LOCK_FILE} has."
        self.problems.report("SF356", at, message, fix)
        return ()


def name_handoffs(nodes: Nodes[StepSettings], problems: FileProblems) -> dict[str, tuple[str, str]]:
    """The step and key of each handoff variable. Two with the same name are reported (SF327)."""
    owners: dict[str, tuple[str, str]] = {}
    for node in nodes.flow.values():
        noun = "field" if node.gate else "key"
        for key, at in node.handed.items():
            name = handoff_variable(node.id, key)
            other_id, other_key = owners.setdefault(name, (node.id, key))
            if other_id == node.id and other_key.rpartition(".")[2] == key.rpartition(".")[2]:
                continue  # one key, or two of one step with one last name, which is reported already
            message = f'the handoff {noun} "{key}" would be the variable "{name}", '
            message += f'as "{other_key}" of step "{other_id}" already is'
            problems.report("SF327", at, message, f"Rename one of the {noun}s or steps.")
    return owners
