"""The check dialect of registries: its models, whose fields `fields.yaml` describes, its steps, and where their prompts
are."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from stepflow.definition.diagnostics import FileProblems, did_you_mean, list_words
from stepflow.definition.file_models import AtLeastZero, Registry, StepSettings
from stepflow.definition.folder import beside
from stepflow.definition.parsing import Pointer
from stepflow.definition.prompts import Supply, check_stdin, values_in
from stepflow.definition.shapes import inside
from stepflow.definition.steps import Node, Nodes, check_key
from stepflow.definition.texts import DEFAULT_EDITION, Address, PromptFiles
from stepflow.domain.agent.agent_settings import NULL_ALLOWED, AtLeastOne, Code, FileModel, PathPart, refuse
from stepflow.domain.agent.definition import OutcomeRule, SourceText, StepCheck, StepPrompt
from stepflow.domain.json import JsonObject, JsonValue
from stepflow.domain.words import Dialect, Intent, StepKind
from stepflow.engine.prompt.render import INPUT_TEXT
from stepflow.engine.prompt.variables import handoff_variable

_PROMPT_PATH = inside('the prompt path "{}"', "Name a file under the base path.")


class PromptEntry(FileModel):
    """A prompt by path, or by its C3L address."""

    path: Annotated[str, _PROMPT_PATH] | None = None
    fallback: Annotated[str, _PROMPT_PATH] | None = None
    c1: PathPart | None = None
    c2: PathPart | None = None
    c3: PathPart | None = None
    edition: PathPart | None = None
    adaptation: PathPart | None = None

    @model_validator(mode="after")
    def _check_reference(self) -> Self:
        given = [key for key in ("c1", "c2", "c3", "edition", "adaptation") if getattr(self, key) is not None]
        fault = ""
        if self.path is not None and given:
            fault = f'has both "path" and "{given[0]}"'
        elif self.path is None and not (self.c1 and self.c2 and self.c3):
            fault = 'has neither "path" nor "c1", "c2" and "c3"'
        if fault:
            fix = 'Write {"c1": "steps", "c2": "phase", "c3": "<name>"}, or {"path": "<file>"}.'
            raise refuse("SF701", f"the prompt reference {fault}", fix)
        return self


class TransitionEntry(FileModel):
    """What an outcome leads to."""

    next: Annotated[str | None, NULL_ALLOWED] = None
    fallback: Annotated[str | None, NULL_ALLOWED] = None
    retry: bool = False
    max_retries: Annotated[AtLeastZero, Code(wrong="SF705")] = 0
    complete: bool = False


class CheckEntry(FileModel):
    """`check` of a step."""

    prompt: Annotated[PromptEntry | None, Code(wrong="SF701", inside=True)] = None
    response_format: dict[str, JsonValue] | None = None
    on_pass: TransitionEntry | None = None
    on_fail: TransitionEntry | None = None


class IterationsEntry(FileModel):
    """`iterations` of a step."""

    min: AtLeastOne = 1
    max: AtLeastOne = 1

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.min > self.max:
            message = f'"iterations" has min {self.min}, which is more than max {self.max}'
            raise refuse("SF705", message, "Make min at most max.")
        return self


class HandoffEntry(FileModel):
    """One of `handoff`."""

    key: Annotated[str, Code("SF708", "SF708"), Field(pattern=r"^[A-Za-z0-9_-]+$")]
    description: str | None = None


class CheckStepEntry(StepSettings):
    """One value of `steps`."""

    no_effect = frozenset({"variables", "customVariables", "description"})
    id: str | None = None
    prompt: Annotated[PromptEntry | None, Code("SF701", "SF701", inside=True)]
    iterations: Annotated[IterationsEntry, Code(wrong="SF705", inside=True)] = IterationsEntry()
    check: Annotated[CheckEntry | None, Code("SF702", "SF702")]
    handoff: list[HandoffEntry] = Field(default_factory=list)


class CheckRegistry(Registry):
    """`steps_registry.json` of the check dialect."""

    dialect = Dialect.CHECK

    no_effect: ClassVar[frozenset[str]] = frozenset({"editions"})
    default_c1: ClassVar[str] = "steps"
    prompts_base: Annotated[Annotated[str, inside('"basePath" is "{}", which')] | None, Field(alias="basePath")] = None
    steps: dict[str, CheckStepEntry]


CheckNodes = Nodes[CheckStepEntry]
_ID_FORM = re.compile(r"s_[0-9a-fA-F]{4,8}")


def read_check_steps(registry: CheckRegistry, problems: FileProblems) -> CheckNodes:
    """Check each step by itself."""
    steps = registry.steps
    return Nodes(flow={step_id: _check_node(step_id, entry, steps, problems) for step_id, entry in steps.items()})


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
        else:
            keys[one.key] = at / "handoff" / index
    low, high = entry.iterations.min, entry.iterations.max
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
        kind=StepKind.CLOSURE if completes else StepKind.WORK,
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
        message = 'neither "onPass" nor "onFail" of the check says what follows'
        problems.report("SF702", at, message, 'Write "onPass", for example {"next": "<step id>"}.')
        return
    for key, entry in outcomes.items():
        for name, target in (("next", entry.next), ("fallback", entry.fallback)) if entry else ():
            if target is not None and target not in steps and target not in problems.broken("steps"):
                message = f'"{name}" names "{target}", which does not exist{did_you_mean(target, steps)}'
                problems.report("SF703", at / key / name, message, f"Name a step; there are {list_words(steps)}.")
        for name, why in _find_unreached(entry, high) if entry else ():
            message = f'"{name}" of "{key}" is never reached, because {why}'
            problems.report("SF709", at / key / name, message, "Remove the key, or leave it.")
        if not rules[key] and not (key == "onFail" and high > 1):
            message = f"nothing says what follows a {key[2:].lower()}, so it ends the run as failed"
            fix = f'Give "{key}" one of "next", "fallback", "retry" and "complete".'
            problems.report("SF706", at / key if entry else at, message, fix)


def _outcome_rules(entry: TransitionEntry, most_runs: int) -> Iterator[OutcomeRule]:
    """What follows an outcome, in the order in which its keys are read. The step runs at most `most_runs` times in one
    visit; 1, the default, only says that it does not repeat by itself: `maxRetries` alone limits `retry` then."""
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
    """The rule; it leads back to the step only while the step may run once more in this visit."""
    leads_back = rule.intent is Intent.REPEAT or rule.target == step_id
    return replace(rule, runs_below=most_runs) if leads_back and most_runs > 1 else rule


def _find_unreached(entry: TransitionEntry, most_runs: int) -> Iterator[tuple[str, str]]:
    """The keys that are never reached in the order of reading, each with the reason."""
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
    """The answer schema that the engine builds; None when it reads nothing from the step's own answer."""
    asks = entry.check is not None and entry.check.prompt is not None
    if asks and not check.handoff_keys:
        return None
    properties: JsonObject = {} if asks else {"result": _RESULT}
    required: list[JsonValue] = ["result"] if check.is_demanded and not asks else []
    properties["message"] = {"type": "string", "description": "what was done or found"}
    if check.handoff_keys:
        described = {one.key: one.description for one in entry.handoff}
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
    """Add second names for `<id>_<key>`: with the id without its `s_`, and with the prompt's `c3` if no other step has
    it.

    `owners` holds the handoff variables so far and receives the added ones; `reserved` names mean something else. A
    second name that clashes with either is left out.
    """
    prefixes = [(node, node.id[2:]) for node in nodes.flow.values() if node.id.startswith("s_") and node.id != "s_"]
    named = [(node, node.entry.prompt.c3) for node in nodes.flow.values() if node.entry.prompt and node.entry.prompt.c3]
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


@dataclass(frozen=True, kw_only=True)
class CheckPrompts:
    """Finds the prompts of the steps of a registry in the check dialect."""

    files: PromptFiles
    nodes: CheckNodes
    supply: Supply
    problems: FileProblems

    def read(self) -> dict[str, SourceText]:
        """Give every step its prompt; a check that asks a question gets that as its own prompt. There are no
        sections."""
        for node in self.nodes.flow.values():
            check_stdin(node, self.problems)
            node.prompt = self._prompt(node, node.entry.prompt, node.at / "prompt")
            asked = node.entry.check.prompt if node.entry.check else None
            if node.check is not None and (question := self._prompt(node, asked, node.at / "check" / "prompt")):
                node.check = replace(node.check, prompt=question)
        return {}

    def _prompt(self, node: Node[CheckStepEntry], entry: PromptEntry | None, at: Pointer) -> StepPrompt | None:
        if entry is None:
            return None
        if entry.path is None and entry.fallback is not None:
            self.problems.note_idle(at / "fallback", '"fallback" has no effect with an address, only with a "path"')
        if entry.path is not None:
            paths = [self.files.below_base(path) for path in (entry.path, entry.fallback) if path]
            prompt = next((prompt for path in paths if (prompt := self.files.read(path)) is not None), None)
        else:
            edition = entry.edition or DEFAULT_EDITION
            address = Address(c1=entry.c1, c2=entry.c2 or "", c3=entry.c3 or "", edition=edition)
            paths = [self.files.path(address, None)]
            prompt = self.files.find(node.kind, address, entry.adaptation, at)
        if prompt is None:
            named = " and ".join(f'"{path}"' for path in paths)
            what = f"file {named} is" if len(paths) == 1 else f"files {named} are"
            message = f"the prompt {what} missing or empty{beside(self.files.folder, paths[0])}"
            self.problems.report("SF501", at, message, f'Write "{paths[0]}".')
            return None
        uses_stdin = bool(node.entry.uses_stdin)
        known = {*self.supply.names, INPUT_TEXT} if uses_stdin else self.supply.names
        for name, tag in values_in(self.supply.tags_of(prompt, node.id, known, self.problems)).items():
            is_supplied = name == INPUT_TEXT or (tag.is_asked and self.supply.has(name))
            if not is_supplied and (gap := self.supply.find_gap(node.id, name)):
                prompt.report("SF507", tag, *gap, self.problems)
        return StepPrompt(source=prompt.source, uses_stdin=uses_stdin)
