"""The prompts of a registry and the system prompt, and whether every variable in them can be supplied."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from stepflow.definition.agent import Agent
from stepflow.definition.diagnostics import LIKE_PATHS, FileProblems, closest_match, did_you_mean, hint, list_words
from stepflow.definition.file_models import InputEntry, StepEntry, StepSettings
from stepflow.definition.folder import AgentFolder, FileRefused, Why, beside, file_code
from stepflow.definition.steps import Node, Nodes
from stepflow.definition.texts import DEFAULT_EDITION, Address, Prompt, PromptFiles, shipped_prompt, split_prompt
from stepflow.domain.agent.agent_settings import Parameter
from stepflow.domain.agent.definition import SourceText, StepInput, StepPrompt
from stepflow.domain.words import VerdictType
from stepflow.engine.prompt.render import INPUT_TEXT, TEMPLATE_KEYS
from stepflow.engine.prompt.template import Tag, Use
from stepflow.engine.prompt.variables import handoff_variable, run_variable_names, system_names
from stepflow.errors import Severity

_SUPPLY = "Declare a parameter, hand it off in a step, or remove it."


def closest_variable(path: str, names: Collection[str]) -> str | None:
    """The variable that a name or a dotted path probably means: one spelled similarly, or a handoff with that key."""
    parts = path.removeprefix("uv.").split(".")
    by_key = (name for name in names if name.endswith(f"_{parts[-1]}") and name not in run_variable_names(None))
    flat = re.sub(r"[^A-Za-z0-9_-]", "_", "_".join(parts))
    for near in (flat, *sorted(by_key, key=len), closest_match(flat, names), parts[0]):
        if near in names:
            return near
    return None


@dataclass(frozen=True, kw_only=True)
class TagReporter:
    """Reports the tags of one prompt that stay as text, or insert nothing (SF512, SF516).

    `owner` says whose prompt it is, `names` are the variables that it may use; `plain` ones have no parts. `advice` is
    what to do about an unknown name.
    """

    prompt: Prompt
    owner: str
    names: Collection[str]
    plain: Collection[str]
    problems: FileProblems
    advice: str = "Declare a parameter, hand it off in a step"

    def report(self, tags: Iterable[Tag], *, takes_sections: bool = False) -> None:
        """Report each spelling once."""
        for tag in {tag.written: tag for tag in reversed(tuple(tags))}.values():
            match tag.use:
                case Use.UNKNOWN if tag.is_explicit and "." in tag.path:
                    self._add_malformed(tag)
                case Use.UNKNOWN:
                    self._add_unknown(tag)
                case Use.FAULT:
                    self._add(tag, tag.fault, "Correct it")
                case Use.SECTION if not takes_sections:
                    self._add(
                        tag, "stays as text: only prompts of steps with gates can include sections", "Write the text"
                    )
                case Use.VALUE if "." in tag.path.removeprefix("uv.") and tag.name in self.plain:
                    self._add(tag, f'inserts nothing: "{tag.name}" has no parts', f'Write "{{uv-{tag.name}}}"')

    def _add_malformed(self, tag: Tag) -> None:
        near = closest_variable(tag.path, self.names)
        message = f'{self.owner}"{tag.written}" is not a variable: a name has letters, digits, "_" and "-"{hint(near)}'
        fix = f'Write "{{uv-{near or re.sub("[^A-Za-z0-9_-]", "_", tag.path)}}}".'
        self.prompt.report("SF512", tag, message, fix, self.problems)

    def _add_unknown(self, tag: Tag) -> None:
        near = closest_variable(tag.path, self.names)
        if tag.path == INPUT_TEXT:
            self._add(tag, 'stays as text: the step does not have "usesStdin"', 'Set "usesStdin": true')
        elif tag.path in self.names:
            self._add(tag, "stays as text in a code block", f'Write "{{uv-{tag.path}}}" for its value')
        elif not tag.in_code or (near and tag.written.startswith("{{")):  # other code is as it is meant to be
            is_block = "#" in tag.written
            state = "asks for what nothing supplies" if is_block else "stays as text: nothing supplies it"
            meant = tag.written.replace(tag.path, near or "") if is_block else f"{{uv-{near}}}"
            self._add(tag, state + hint(near), f'Write "{meant}"' if near else self.advice)

    def _add(self, tag: Tag, state: str, fix: str) -> None:
        fix = f'{fix}, or write "\\{tag.written}" if the text is meant.'
        self.prompt.report("SF516", tag, f'{self.owner}"{tag.written}" {state}', fix, self.problems)


class Supply:
    """Where the variables of an agent's runs come from: `sure` ones always have a value, those in `perhaps` may have
    one, and `handoff` ones get it from a step. `names` are all of them, and the `plain` ones are single values without
    parts.

    Some handoff variables are `lost` to a step: (step, variable) → the first step of a run in which they have no value
    there. `known` is False without a readable `agent.json`: no problem says who supplies what then.
    """

    def __init__(
        self,
        parameters: Mapping[str, Parameter],
        handoff: Iterable[str],
        verdict: VerdictType | None,
        *,
        lost: Mapping[tuple[str, str], str],
        known: bool,
    ) -> None:
        self.known, self.lost, self.handoff = known, lost, frozenset(handoff)
        given = {name for name, one in parameters.items() if one.required or one.default is not None}
        # The issue is an argument of every run that has one.
        issue = {"issue"} if verdict is VerdictType.POLL_STATE else set[str]()
        self.sure = run_variable_names(verdict) | given | issue
        self.perhaps = frozenset({"issue", *parameters}) - self.sure
        self.names = self.sure | self.perhaps | self.handoff
        self.plain = (self.sure | self.perhaps) - self.handoff

    def tags_of(
        self, prompt: Prompt, step_id: str, names: Collection[str], problems: FileProblems, *, sections: bool = False
    ) -> Sequence[Tag]:
        """The tags of a step's prompt, after those that nothing fills were reported. With `sections` it may include
        sections."""
        tags = prompt.tags(names, is_open=not self.known)
        owner = f'step "{step_id}": '
        reporter = TagReporter(prompt=prompt, owner=owner, names=names, plain=self.plain, problems=problems)
        reporter.report(tags, takes_sections=sections)
        return tags

    def has(self, name: str) -> bool:
        """Whether something may supply the variable."""
        return not self.known or name in self.names

    def find_gap(self, step_id: str, name: str) -> tuple[str, str] | None:
        """Why a variable of a step has no value, or not in every run (SF507), and what to do; None when it has one."""
        begin = self.lost.get((step_id, name))
        if not self.known or name in self.sure or (name in self.handoff and begin is None):
            return None
        if begin is not None:
            state = f'has no value in a follow-up that begins at "{begin}"'
            fix = 'Let it begin at an earlier step, or, in a registry with gates, give the value a default by "inputs".'
        elif name in self.perhaps:
            state = "comes only from an optional argument without a default"
            fix = "Make it required, or give it a default."
        else:
            near = closest_variable(name, self.names)
            state = f"is supplied by nothing{hint(near)}"
            fix = f'Write "{near}", or declare a parameter.' if near else _SUPPLY
        return f'step "{step_id}": the variable "{name}" {state}', fix


def _sections_in(prompt: Prompt) -> dict[str, Tag]:
    """The sections that a prompt includes, each with its first tag."""
    if "section:" not in prompt.source.text:
        return {}
    return {tag.name: tag for tag in reversed(prompt.tags()) if tag.use is Use.SECTION}


def values_in(tags: Sequence[Tag]) -> dict[str, Tag]:
    """The variables in tags, each with its first tag, preferably one outside of a block that tests the variable."""
    values = [tag for tag in reversed(tags) if tag.use is Use.VALUE and tag.name not in ("this", "@index")]
    return {tag.name: tag for tag in sorted(values, key=lambda tag: not tag.is_asked)}


def check_stdin(node: Node[StepSettings], problems: FileProblems) -> None:
    """Warn about a step that cannot be rendered in a run without input text (SF511)."""
    if node.entry.uses_stdin:
        message = '"usesStdin" is true, so a run without input text cannot render it'
        problems.report("SF511", node.at / "usesStdin", message, "Start every run with an input text.")


@dataclass(kw_only=True)
class GatePrompts:
    """Finds the prompt of every step; each section is looked up when the first prompt includes it."""

    files: PromptFiles
    nodes: Nodes[StepEntry]
    supply: Supply
    problems: FileProblems
    sections: dict[str, Prompt] = field(default_factory=dict)

    def read(self) -> dict[str, SourceText]:
        """Give every flow step that asks the model its prompt, and return the sections that these prompts include."""
        for node in self.nodes.flow.values():
            check_stdin(node, self.problems)
            inputs = tuple(self._input(node, name, entry) for name, entry in node.entry.inputs.items())
            fallback = self._fallback(node)
            prompt = None if node.entry.runner is not None else self._find(node, fallback)
            if prompt is None:
                continue
            parts = [(node, prompt), *self._sections_of(node, prompt)]
            declared = [name for owner, _ in parts for name in owner.entry.uv_variables or ()]
            taken = [name for one in inputs for name in (one.name, handoff_variable(one.step_id, one.key))]
            node.prompt = StepPrompt(
                source=prompt.source,
                fallback=fallback.source if fallback else None,
                fallback_key=node.entry.fallback_key,
                variables=tuple(dict.fromkeys(declared)),
                inputs=inputs,
                uses_stdin=bool(node.entry.uses_stdin),
                names=frozenset({*declared, *taken} - self.supply.names),
            )
            self._check_variables(parts, node.prompt)
        return {name: section.source for name, section in self.sections.items()}

    def _find(self, node: Node[StepEntry], fallback: Prompt | None) -> Prompt | None:
        """The text to render; None after a problem was reported, or when the address is not sound."""
        entry, files = node.entry, self.files
        if node.kind is None and node.gate is not None:
            return None
        address = Address(c2=entry.c2, c3=entry.c3, edition=entry.edition or DEFAULT_EDITION)
        prompt = files.find(node.kind, address, entry.adaptation, node.at)
        if prompt is not None:
            return prompt
        path, key = files.path(address, None), entry.fallback_key
        if fallback is not None:
            message = f'the prompt file "{path}" is missing or empty, the template "{key}" is used'
            fix = "Write the prompt file, or leave it to the template."
            self.problems.report("SF503", node.at, message, fix)
            return fallback
        message = f'step "{node.id}": the prompt file "{path}" is missing or empty, and there is no "fallbackKey"'
        if key:
            message = f'No fallback prompt found for key: "{key}" (step: {node.id}); the file "{path}" is missing too'
        fix = f'Write "{path}", or name a template in "fallbackKey".'
        self.problems.add("SF501", node.at, message + beside(files.folder, path), fix)
        return None

    def _fallback(self, node: Node[StepEntry]) -> Prompt | None:
        key = node.entry.fallback_key
        if key is None:
            return None
        if key in TEMPLATE_KEYS:
            return shipped_prompt(key)
        form = key.replace(".", "_").replace("-", "_")
        near = form if form in TEMPLATE_KEYS else closest_match(key, TEMPLATE_KEYS)
        fix = f"The templates are {list_words(sorted(TEMPLATE_KEYS))}."
        message = f'there is no fallback template "{key}"{hint(near)}'
        self.problems.report("SF504", node.at / "fallbackKey", message, fix)
        return None

    def _sections_of(self, node: Node[StepEntry], prompt: Prompt) -> list[tuple[Node[StepEntry], Prompt]]:
        known = self.nodes.sections
        sections: list[tuple[Node[StepEntry], Prompt]] = []
        for name, tag in _sections_in(prompt).items():
            if name in known:
                sections.append((known[name], self._section(name)))
            elif name not in self.problems.broken("steps"):
                message = f'step "{node.id}": "{{section:{name}}}" names no section{did_you_mean(name, known)}'
                prompt.report("SF509", tag, message, f"The sections are {list_words(known)}.", self.problems)
        return sections

    def _section(self, name: str) -> Prompt:
        if name not in self.sections:
            node = self.nodes.sections[name]
            prompt = self._find(node, self._fallback(node)) or Prompt(source=SourceText(text="", file=""), usable=False)
            self.sections[name] = prompt
            for inner, tag in _sections_in(prompt).items():
                message = f'the section "{name}" contains "{{section:{inner}}}", but sections do not nest'
                prompt.report("SF509", tag, message, "Put both sections into the step's prompt.", self.problems)
        return self.sections[name]

    def _check_variables(self, parts: list[tuple[Node[StepEntry], Prompt]], step: StepPrompt) -> None:
        """Check the variables of a prompt and of its sections, each with the step or section that declares them."""
        if not all(text.usable for _, text in parts):
            return  # what is used is not known
        node = parts[0][0]
        inputs = {one.name for one in step.inputs}
        inputs |= {handoff_variable(one.step_id, one.key) for one in step.inputs if one.default is not None}
        input_text = {INPUT_TEXT} if step.uses_stdin else set[str]()
        names = self.supply.names.union(step.names, input_text)
        used: dict[str, set[str]] = {}
        meant: set[str] = set()  # by names that are misspelled
        for owner, text in parts:
            tags = self.supply.tags_of(text, node.id, names, self.problems, sections=True)
            used[owner.id] = {tag.name for tag in tags if tag.use is Use.VALUE}
            declared = {*step.variables, *inputs, *input_text}
            undeclared = {name: tag for name, tag in values_in(tags).items() if name not in declared}
            meant |= {near for name in undeclared if (near := closest_match(name, step.variables))}
            self._check_undeclared(node, text, undeclared, step.variables)
        every = set[str]().union(*used.values())
        for owner, text in parts:
            own_uses = every if owner is node else used[owner.id]
            self._check_declared(owner, text, inputs, own_uses | meant)
        for one in step.inputs:
            value = handoff_variable(one.step_id, one.key)
            is_lost = (node.id, value) in self.supply.lost and (one.required or one.name in every)
            if one.default is None and is_lost and (gap := self.supply.find_gap(node.id, value)):
                self.problems.add("SF507", node.at / "inputs" / one.name, *gap)

    def _check_undeclared(
        self, node: Node[StepEntry], text: Prompt, undeclared: Mapping[str, Tag], variables: Collection[str]
    ) -> None:
        """Report the variables in a text that are not declared (SF505), or that nothing supplies (SF507)."""
        # A broken step may hand off any variable.
        knows_handoff = not self.problems.broken("steps")
        for name, tag in undeclared.items():
            near = closest_match(name, variables)
            if name not in self.supply.handoff and (near or (knows_handoff and self.supply.has(name))):
                message = f'step "{node.id}": the variable "{name}" is used but not declared{hint(near)}'
                fix = f'Write "{{uv-{near}}}".' if near else 'Add it to "uvVariables" of the step.'
                text.report("SF505", tag, message, fix, self.problems)
            is_supplied = near or (tag.is_asked and self.supply.has(name))
            if not is_supplied and (gap := self.supply.find_gap(node.id, name)):
                text.report("SF507", tag, *gap, self.problems)

    def _check_declared(self, owner: Node[StepEntry], text: Prompt, inputs: set[str], used: set[str]) -> None:
        for index, name in enumerate(owner.entry.uv_variables or ()):
            at = owner.at / "uvVariables" / index
            is_used = name in used or text.source.template is not None
            if not is_used and (name in inputs or self.supply.has(name)):
                message = f'the declared variable "{name}" is not used{did_you_mean(name, used)}'
                fix = f'Write "{{uv-{name}}}" in the prompt, or remove the declaration.'
                self.problems.report("SF506", at, message, fix)
            elif name not in inputs and (gap := self.supply.find_gap(owner.id, name)):
                self.problems.add("SF507", at, *gap)

    def _input(self, node: Node[StepEntry], name: str, entry: InputEntry) -> StepInput:
        """An input; its `from` is a step and a key: the longest known id, else everything before the last dot, is the
        step."""
        origin, flow, at = entry.from_, self.nodes.flow, node.at / "inputs" / name / "from"
        broken = self.problems.broken("steps")
        above = step_id = origin.rpartition(".")[0]
        while step_id and step_id not in flow and step_id not in broken:
            step_id = step_id.rpartition(".")[0]
        step_id = step_id or above
        key = origin[len(step_id) + 1 :] if step_id else ""
        gate = flow[step_id].gate if step_id in flow else None
        keys = [one for path in gate.handoff_fields for one in (path, path.rpartition(".")[2])] if gate else []
        if not step_id:
            message = f'the input "{name}" is from "{origin}", which is not "<step id>.<key>"'
            fix = "Write the step's id, a dot, and the handoff key."
            self.problems.report("SF510", at, message, fix, severity=Severity.ERROR)
        elif key not in keys and step_id not in broken:
            state = f'step "{step_id}" does not hand off "{key}"'
            if step_id not in flow:
                state = f'there is no step "{step_id}"{did_you_mean(step_id, flow)}'
            message = f'the input "{name}" is from "{origin}", but {state}'
            self.problems.report("SF510", at, message, "Name a step and one of its handoff fields.")
        return StepInput(name=name, step_id=step_id, key=key, required=entry.required, default=entry.default)


_SYSTEM_PATH = "/runner/flow/systemPromptPath"


def read_system_prompt(agent: Agent, folder: AgentFolder) -> SourceText | None:
    """The system prompt, the agent's own or the shipped one; None when it cannot be read."""
    path = agent.runner.flow.system_prompt_path
    if path is None:
        return shipped_prompt("system").source
    fix = 'Name a file of the agent folder, or leave "systemPromptPath" out.'
    try:
        _, text, first_line = split_prompt(folder.read(path))
    except FileRefused as refused:
        texts = [one for one in folder.files() if one.endswith(".md")] if refused.why is Why.MISSING else []
        message = f'the system prompt: "{path}" {refused.message}{did_you_mean(path, texts, LIKE_PATHS)}'
        agent.problems.add(file_code(refused), _SYSTEM_PATH, message, fix)
        return None
    if not text:
        agent.problems.add("SF102", _SYSTEM_PATH, f'the system prompt: the file "{path}" is empty', fix)
    prompt = Prompt(source=SourceText(text=text, file=path), first_line=first_line)
    if agent.known:
        _check_system_prompt(prompt, agent)
    return prompt.source


def _check_system_prompt(prompt: Prompt, agent: Agent) -> None:
    """Report variables that are not the same in every step of a run: they stay as text in the system prompt."""
    names = system_names(agent.file.parameters)
    reporter = TagReporter(
        prompt=prompt,
        owner="the system prompt: ",
        names=names,
        plain=names,
        problems=agent.problems,
        advice="Write it in the prompt of a step",
    )
    reporter.report(prompt.tags(names, is_closed=True))
