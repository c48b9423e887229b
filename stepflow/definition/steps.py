"""The dialect of a registry, and what the steps of both have: their form, intents, tools, and what they hand off."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from stepflow.definition.agent import Agent
from stepflow.definition.diagnostics import FileProblems, closest_match, hint, listed
from stepflow.definition.file_models import StepEntry, StepSettings
from stepflow.definition.files.json_text import Pointer, node_at
from stepflow.definition.mcp import LOCK_FILE, LockedServers
from stepflow.domain.definition import Gate, StepCheck, Transition
from stepflow.domain.json import JsonObject
from stepflow.domain.mcp import MCP_PREFIX, mcp_name
from stepflow.domain.tools import KNOWN_TOOL_NAMES, READ_ONLY_TOOLS, TOOL_SPECS_BY_NAME
from stepflow.domain.words import INTENT_ALIASES, INTENTS_OF_KIND, Dialect, Intent, Permission, PermissionMode, StepKind
from stepflow.engine.prompt.variables import handoff_variable

_GATE_KEYS = ("structuredGate", "c2")
_CHECK_KEYS = ("check", "prompt", "iterations")


def detect_dialect(registry: JsonObject, problems: FileProblems) -> Dialect | None:
    """The dialect, told by the keys that only one of them has; None after a problem was reported."""
    steps = registry.get("steps")
    if not isinstance(steps, dict) or not steps:
        state = "is missing" if steps is None else "is empty" if steps == {} else "is no object"
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
        message = f"the registry mixes two dialects: {listed(gate[:1])} is of the gate dialect, "
        message += f"{listed(check[:1])} of the check dialect"
        problems.add("SF302", check[0], message, "Write all steps in one dialect.")
        return None
    if not gate and not check:
        message = f"no step has {listed(_GATE_KEYS)} or {listed(_CHECK_KEYS)}, so the dialect cannot be told"
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
    """A flow step or a section on its way to becoming a `Step`. `at` is its JSON Pointer in the registry.

    `following` are the steps that may come right after it, `handed` the keys that it hands off, each with its place.
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


@dataclass(frozen=True, kw_only=True)
class Nodes:
    """All steps of a registry with gates."""

    flow: dict[str, Node[StepEntry]]
    sections: dict[str, Node[StepEntry]]
    gated: bool


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


@dataclass(frozen=True, kw_only=True)
class StepTools:
    """Reads what steps name in `tools`."""

    agent: Agent
    locked: LockedServers
    problems: FileProblems

    def of_steps(self, nodes: Sequence[Node[StepSettings]]) -> dict[str, tuple[str, ...] | None]:
        """The tools of each step by its id, None where it names none; with what nobody can use reported."""
        tools = {node.id: self._of_step(node) for node in nodes}
        asking = [tools[node.id] for node in nodes if not _is_command(node)]
        reading = [names for names in asking if "Read" in (self._allowed if names is None else names)]
        if self.agent.file.skills and not reading:
            message = 'skills are read with the tool "Read", which no step has'
            self.agent.problems.add("SF116", "/skills", message, 'Allow "Read".')
        if not self.problems.failed_at(r"/steps/[^/]+/tools(/.*)?"):
            named = {name for names in asking for name in names or ()}
            for server, offered in self.locked.offered.items():
                if named.isdisjoint(offered):
                    at = Pointer("/mcpServers") / server.removeprefix(MCP_PREFIX)
                    fix = f'Write "{server}" into "tools" of the steps that need it, or remove it.'
                    self.agent.problems.report("SF111", at, "no step names a tool of it", fix)
        return tools

    @property
    def _allowed(self) -> tuple[str, ...]:
        allowed = self.agent.runner.boundaries.allowed_tools
        return tuple(name for name in TOOL_SPECS_BY_NAME if allowed is None or name in allowed or "*" in allowed)

    def _of_step(self, node: Node[StepSettings]) -> tuple[str, ...] | None:
        at = node.at / "tools"
        if node.entry.tools is None:
            return None
        if _is_command(node):
            message = '"tools" has no effect where a command answers instead of the model'
            self.problems.report("SF111", at, message, "Remove the key, or leave it.")
            return None
        mode = node.entry.permission_mode or self.agent.runner.boundaries.permission_mode
        plan = mode is PermissionMode.PLAN
        named = (self._names(tool, at / index, plan=plan) for index, tool in enumerate(node.entry.tools))
        return tuple(dict.fromkeys(name for names in named for name in names))

    def _names(self, tool: str, at: Pointer, *, plan: bool) -> tuple[str, ...]:
        """The tools that are meant; none after a problem."""
        names = {"*": self._allowed, **{name: (name,) for name in self._allowed}, **self.locked.offered}
        names |= {name: (name,) for name in self.locked.tools}
        if tool in names and not (plan and tool not in {"*", *READ_ONLY_TOOLS}):
            return names[tool]
        if tool in names:
            message = f'"permissionMode" is "plan", which leaves it no tool "{tool}"'
            fix = f"Remove it, or give the step another mode: this one leaves {listed(sorted(READ_ONLY_TOOLS))}."
        elif tool in KNOWN_TOOL_NAMES:
            message = f'agent.json does not allow the tool "{tool}"'
            fix = 'Add it to "allowedTools" there, or remove it here.'
        elif any(f"{tool}__".startswith(server) for server in self._unpinned):
            return ()  # why nothing is known of it was reported
        else:
            all_of_it = tool.removesuffix("__*")
            near = all_of_it if all_of_it in names else closest_match(tool, names)
            message = f'the tool "{tool}" is not known{hint(near)}'
            fix = f"Use {listed((*self._allowed, *self.locked.offered))}, or one tool that {LOCK_FILE} has."
        self.problems.report("SF356", at, message, fix)
        return ()

    @property
    def _unpinned(self) -> Iterator[str]:
        """What the names of tools begin with that nothing is known of."""
        if not self.agent.known:
            yield MCP_PREFIX
        for server in self.agent.mcp_servers:
            if f"{MCP_PREFIX}{server.name}" not in self.locked.offered:
                yield mcp_name(server.name, "")


def _is_command(node: Node[StepSettings]) -> bool:
    return isinstance(node.entry, StepEntry) and node.entry.runner is not None


def name_handoffs(
    nodes: Mapping[str, Node[StepSettings]], noun: str, problems: FileProblems
) -> dict[str, tuple[str, str]]:
    """The step and key that each handoff variable stands for. Two that get one name are reported (SF327)."""
    owners: dict[str, tuple[str, str]] = {}
    for node in nodes.values():
        for key, at in node.handed.items():
            name = handoff_variable(node.id, key)
            other_id, other_key = owners.setdefault(name, (node.id, key))
            if other_id == node.id and other_key.rpartition(".")[2] == key.rpartition(".")[2]:
                continue  # one key, or two of one step with one last name, which is reported already
            message = f'the handoff {noun} "{key}" would be the variable "{name}", '
            message += f'as "{other_key}" of step "{other_id}" already is'
            problems.report("SF327", at, message, f"Rename one of the {noun}s or steps.")
    return owners
