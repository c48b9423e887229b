"""The steps of a check registry: their outcomes, handoff variables and prompts (registry.md §6, prompts.md §6.2)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from stepflow.definition.diagnostics import FileProblems, did_you_mean, listed
from stepflow.definition.file_models import CheckEntry, CheckRegistry, CheckStepEntry, PromptEntry, TransitionEntry
from stepflow.definition.folder import beside, unsafe_reason
from stepflow.definition.gate_steps import check_key, check_part, name_handoffs
from stepflow.definition.graph import Entries, check_reached, reached_from
from stepflow.definition.json_text import Pointer
from stepflow.definition.prompt_files import (
    DEFAULT_EDITION,
    Address,
    Prompt,
    PromptFiles,
)
from stepflow.definition.prompts import Supply, check_supply, used_in
from stepflow.domain.definition import OutcomeRule, StepPrompt
from stepflow.domain.json import JsonObject, JsonValue
from stepflow.domain.words import Intent, StepKind
from stepflow.engine.prompt.variables import handoff_variable


@dataclass(frozen=True, kw_only=True)
class Outcomes:
    """Reads what the two outcomes of one check lead to."""

    step_id: str
    at: Pointer
    check: CheckEntry
    steps: Mapping[str, CheckStepEntry]
    problems: FileProblems

    def check_rules(self, high: int) -> None:
        """Report an outcome that leads nowhere, and keys that are never reached."""
        if not self.rules("onPass") and not self.rules("onFail"):
            if not self.problems.failed_at(f"{re.escape(self.at)}/on(Pass|Fail)(/.*)?"):
                message = f'step "{self.step_id}": neither "onPass" nor "onFail" of the check says what follows'
                fix = 'Write "onPass", for example {"next": "<step id>"}.'
                self.problems.add("SF702", self.at, message, fix)
            return
        for key in ("onPass", "onFail"):
            self._check_targets(key)
            self._note_unreached(key)
            if not self.rules(key) and not (key == "onFail" and high > 1):
                self._warn_nothing(key)

    def _entry(self, key: str) -> TransitionEntry | None:
        return self.check.on_pass if key == "onPass" else self.check.on_fail

    def rules(self, key: str) -> tuple[OutcomeRule, ...]:
        """What follows, in the order of reading (registry.md §6.2)."""
        entry = self._entry(key)
        return tuple(_rules(entry)) if entry is not None else ()

    def _warn_nothing(self, key: str) -> None:
        outcome = "pass" if key == "onPass" else "fail"
        entry, place = self._entry(key), self.at / key
        message = f'step "{self.step_id}": nothing says what follows a {outcome}, so it ends the run as failed'
        if not self.problems.at(place):
            fix = f'Give "{key}" one of "next", "fallback", "retry" and "complete".'
            self.problems.add("SF706", self.at if entry is None else place, message, fix)

    def _check_targets(self, key: str) -> None:
        entry = self._entry(key)
        for name, target in (("next", entry.next), ("fallback", entry.fallback)) if entry else ():
            if target is not None and target not in self.steps:
                message = f'step "{self.step_id}": "{name}" names "{target}", which does not exist'
                message += did_you_mean(target, self.steps)
                place = self.at / key / name
                self.problems.add("SF703", place, message, f"Name a step; there are {listed(self.steps)}.")

    def _note_unreached(self, key: str) -> None:
        entry = self._entry(key)
        for name, why in _unreached(entry) if entry else ():
            message = f'step "{self.step_id}": "{name}" of "{key}" is never reached, because {why}'
            place = self.at / key / name
            self.problems.add("SF709", place, message, "Remove the key, or leave it.")


def _rules(entry: TransitionEntry) -> Iterator[OutcomeRule]:
    if entry.complete:
        yield OutcomeRule(intent=Intent.CLOSING, transition="complete")
    elif entry.next is not None:
        yield OutcomeRule(intent=Intent.NEXT, transition="next", target=entry.next)
    else:
        if entry.retry:
            most = entry.max_retries or None
            yield OutcomeRule(intent=Intent.REPEAT, transition="retry", retries_below=most)
        if entry.fallback is not None and not (entry.retry and not entry.max_retries):
            yield OutcomeRule(intent=Intent.JUMP, transition="fallback", target=entry.fallback)


def _unreached(entry: TransitionEntry) -> Iterator[tuple[str, str]]:
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
    elif entry.retry and not given["maxRetries"] and given["fallback"]:
        yield "fallback", '"retry" has no limit of its own'


_ID_FORM = re.compile(r"s_[0-9a-fA-F]{4,8}")


@dataclass(frozen=True, kw_only=True)
class CheckNode:
    """A step on its way into the graph. `at` is its JSON Pointer in the registry."""

    id: str
    at: Pointer
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


def check_check_steps(registry: CheckRegistry, problems: FileProblems) -> dict[str, CheckNode]:
    """Check each step by itself."""
    return {step_id: _node(step_id, entry, registry, problems) for step_id, entry in registry.steps.items()}


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
    descriptions = {one.key: one.description for one in node.entry.handoff if one.key}
    properties: JsonObject = {key: {"description": text} if text else {} for key, text in descriptions.items()}
    return {"type": "object", "required": list(descriptions), "properties": properties}


def _node(step_id: str, entry: CheckStepEntry, registry: CheckRegistry, problems: FileProblems) -> CheckNode:
    at = Pointer("/steps") / step_id
    check_key(step_id, entry.id, at, problems, word="id")
    _check_id(step_id, at, problems)
    _check_handoff(step_id, entry, at, problems)
    low, high = entry.iterations.min, entry.iterations.max
    if low > high and not problems.at(at / "iterations"):
        message = f'step "{step_id}": "iterations" has min {low}, which is more than max {high}'
        problems.add("SF705", at / "iterations", message, "Make min at most max.")
    if entry.check is None:
        return CheckNode(id=step_id, at=at, entry=entry)
    reading = Outcomes(step_id=step_id, at=at / "check", check=entry.check, steps=registry.steps, problems=problems)
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


def _check_id(step_id: str, at: Pointer, problems: FileProblems) -> None:
    if not _ID_FORM.fullmatch(step_id):
        message = f'the id "{step_id}" is not "s_" and 4 to 8 hexadecimal digits'
        problems.add("SF704", at, message, 'Use an id such as "s_a8f3"; the name of the step can say what it does.')


def _check_handoff(step_id: str, entry: CheckStepEntry, at: Pointer, problems: FileProblems) -> None:
    seen: set[str] = set()
    for index, one in enumerate(entry.handoff):
        if one.key and one.key in seen:
            place = at / "handoff" / index / "key"
            message = f'step "{step_id}": the handoff key "{one.key}" is declared twice'
            problems.add("SF708", place, message, "Declare each key once.")
        seen.add(one.key or "")


def check_check_graph(nodes: Mapping[str, CheckNode], entries: Entries, problems: FileProblems) -> None:
    """What no run can reach (SF346), and entries from which none can complete (SF707)."""
    following = {node.id: node.targets for node in nodes.values()}
    check_reached(following, entries, problems)
    for at, step_id in entries.by_pointer.items():
        reached = reached_from((step_id,), following)
        if not any(nodes[one].kind is StepKind.CLOSURE for one in reached):
            message = f'no step with "complete" can be reached from the entry step "{step_id}"'
            problems.add("SF707", at, message, 'Let an outcome "complete" the run.')


#: Step id → variable → the key that it stands for.
Aliases = dict[str, dict[str, str]]


def name_handoff(nodes: Mapping[str, CheckNode], reserved: frozenset[str], problems: FileProblems) -> Aliases:
    """The names beside `<id>_<key>`: the id without its `s_`, and the prompt's `c3` if no other step has it.

    `taken` are names that mean something else; a second form that clashes with one of them, or with an earlier name,
    is left out.
    """
    keys = (
        (node.id, key, node.at / "handoff" / index)
        for node in nodes.values()
        for index, key in enumerate(node.handoff_keys)
    )
    owners = name_handoffs(keys, problems, noun="key")
    aliases: Aliases = {step_id: {} for step_id in nodes}
    for node, prefix in (*_ids_without_prefix(nodes), *_only_c3(nodes)):
        for index, key in enumerate(node.handoff_keys):
            name = handoff_variable(prefix, key)
            owner = owners.setdefault(name, (node.id, key))
            if owner == (node.id, key) and name not in reserved:
                aliases[node.id].setdefault(name, key)
            elif owner != (node.id, key) or name in reserved:
                other = f'"{owner[1]}" of step "{owner[0]}"' if owner != (node.id, key) else "another variable"
                message = f'step "{node.id}": "{key}" is not known as "{name}" too, since that is {other}'
                place = node.at / "handoff" / index
                problems.add("SF111", place, message, f'Use "{handoff_variable(node.id, key)}" in prompts.')
    return aliases


def _ids_without_prefix(nodes: Mapping[str, CheckNode]) -> Iterator[tuple[CheckNode, str]]:
    for node in nodes.values():
        short = node.id.removeprefix("s_")
        if short and short != node.id:
            yield node, short


def _only_c3(nodes: Mapping[str, CheckNode]) -> Iterator[tuple[CheckNode, str]]:
    named = {node.id: node.entry.prompt.c3 for node in nodes.values() if node.entry.prompt and node.entry.prompt.c3}
    times = Counter(named.values())
    for step_id, c3 in named.items():
        if times[c3] == 1:
            yield nodes[step_id], c3


_PARTS = ("c1", "c2", "c3", "edition", "adaptation")


@dataclass(frozen=True, kw_only=True)
class CheckPromptResolver:
    """Finds the prompts of the steps and of their checks."""

    files: PromptFiles
    supply: Supply
    problems: FileProblems

    def own(self, node: CheckNode) -> StepPrompt | None:
        """The step's own prompt; None after a problem was reported."""
        if node.entry.uses_stdin:
            message = f'step "{node.id}": "usesStdin" is true, so a run without input text cannot render it'
            self.problems.add("SF511", node.at / "usesStdin", message, "Start every run with an input text.")
        return self._prompt(node, node.entry.prompt, node.at / "prompt")

    def question(self, node: CheckNode) -> StepPrompt | None:
        """The prompt of the step's check, if it has one."""
        check = node.entry.check
        return self._prompt(node, check.prompt if check else None, node.at / "check" / "prompt")

    def _prompt(self, node: CheckNode, entry: PromptEntry | None, at: Pointer) -> StepPrompt | None:
        if entry is None or not self._sound(node, entry, at):
            return None
        prompt = self._by_path(node, entry, at) if entry.path is not None else self._by_address(node, entry, at)
        if prompt is None:
            return None
        own = self.problems.diagnostics.of(prompt.source.file)
        for name, line in used_in(prompt).items():
            check_supply(node.id, name, self.supply, own, line=line)
        return StepPrompt(source=prompt.source, uses_stdin=bool(node.entry.uses_stdin), bare_names=True)

    def _sound(self, node: CheckNode, entry: PromptEntry, at: Pointer) -> bool:
        """Whether the reference is a path or an address, and safe."""
        given = [key for key in _PARTS if getattr(entry, key) is not None]
        fault = ""
        if entry.path is not None and given:
            fault = f'has both "path" and "{given[0]}"'
        elif entry.path is None and not (entry.c1 and entry.c2 and entry.c3):
            fault = 'has neither "path" nor "c1", "c2" and "c3"'
        if fault and not self.problems.at(at):
            fix = 'Write {"c1": "steps", "c2": "phase", "c3": "<name>"}, or {"path": "<file>"}.'
            self.problems.add("SF701", at, f'step "{node.id}": the prompt reference {fault}', fix)
        if entry.path is None and entry.fallback is not None:
            message = f'step "{node.id}": "fallback" has no effect beside an address, only beside a "path"'
            place = at / "fallback"
            self.problems.add("SF111", place, message, "Remove the key, or leave it.")
        parts = [check_part(at, key, getattr(entry, key), self.problems) for key in _PARTS]
        paths = [self._safe(node, getattr(entry, key), at / key) for key in ("path", "fallback")]
        return not fault and all(parts) and all(paths) and not self.problems.at(at)

    def _safe(self, node: CheckNode, path: str | None, at: Pointer) -> bool:
        reason = unsafe_reason(path) if path is not None else None
        if reason:
            message = f'step "{node.id}": the prompt path "{path}" {reason}'
            self.problems.add("SF109", at, message, "Name a file under the base path.")
        return reason is None

    def _by_path(self, node: CheckNode, entry: PromptEntry, at: Pointer) -> Prompt | None:
        named = [self.files.below_base(path) for path in (entry.path, entry.fallback) if path]
        prompt = next((prompt for path in named if (prompt := self.files.read(path)) is not None), None)
        if prompt is None:
            self._report_none(node, named, at)
        return prompt

    def _by_address(self, node: CheckNode, entry: PromptEntry, at: Pointer) -> Prompt | None:
        edition = entry.edition or DEFAULT_EDITION
        address = Address(c1=entry.c1, c2=entry.c2 or "", c3=entry.c3 or "", edition=edition)
        prompt = self.files.find(node.id, node.kind, address, entry.adaptation, at)
        if prompt is None:
            self._report_none(node, [self.files.path(address, None)], at)
        return prompt

    def _report_none(self, node: CheckNode, paths: list[str], at: Pointer) -> None:
        named = " and ".join(f'"{path}"' for path in paths)
        what = f"file {named} is" if len(paths) == 1 else f"files {named} are"
        near = beside(self.files.folder, paths[0])
        message = f'step "{node.id}": the prompt {what} missing or empty{near}'
        self.problems.add("SF501", at, message, f'Write "{paths[0]}".')
