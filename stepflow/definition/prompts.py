"""The prompts of a gate registry, and whether every variable in them can be supplied (prompts.md §4 to §6 and §11)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from stepflow.definition.agent import run_variables
from stepflow.definition.diagnostics import FileProblems, did_you_mean, listed
from stepflow.definition.file_models import InputEntry
from stepflow.definition.folder import beside
from stepflow.definition.gate_steps import Node, Nodes
from stepflow.definition.prompt_files import DEFAULT_EDITION, Address, Prompt, PromptFiles, sections_in, variables_in
from stepflow.domain.definition import Gate, Parameter, SourceText, StepInput, StepPrompt
from stepflow.domain.problem import Severity
from stepflow.domain.words import VerdictType
from stepflow.engine.prompt.render import TEMPLATE_KEYS


@dataclass(frozen=True, kw_only=True)
class Supply:
    """Where variables may come from: always there, only perhaps there, and handoff variables of some step.

    `known` is False without a readable `agent.json`: then nothing is said about who supplies what.
    """

    known: bool
    sure: frozenset[str]
    perhaps: frozenset[str]
    handoff: frozenset[str]


def supply_of(
    parameters: Iterable[Parameter], handed: Iterable[str], verdict: VerdictType | None, *, known: bool
) -> Supply:
    """What the runs of an agent supply; `handed` are the names of its handoff variables.

    The issue is an argument of every run that has one.
    """
    sure = set(run_variables(verdict))
    perhaps = {"issue"}
    for parameter in parameters:
        (sure if parameter.required or parameter.default is not None else perhaps).add(parameter.name)
    if verdict is VerdictType.POLL_STATE:
        sure.add("issue")
    return Supply(known=known, sure=frozenset(sure), perhaps=frozenset(perhaps - sure), handoff=frozenset(handed))


def check_variables(
    prompt: ResolvedPrompt,
    node: Node,
    sections: Mapping[str, tuple[Node, Prompt]],
    supply: Supply,
    problems: FileProblems,
) -> None:
    """Check the variables of one step's prompt and of the sections it takes in."""
    parts = [(node, prompt.prompt), *(sections[name] for name in prompt.sections)]
    if any(problems.at(owner.at / "uvVariables") or not text.usable for owner, text in parts):
        return  # what is declared, or what is used, is not known
    check = _Check(
        node=node,
        declared=frozenset(prompt.step.variables),
        inputs=frozenset(one.name for one in prompt.step.inputs),
        supply=supply,
        problems=problems,
    )
    for _, text in parts:
        check.used_in(text)
    check.declared_by(node, [text for _, text in parts])
    for owner, text in parts[1:]:
        check.declared_by(owner, [text])


@dataclass(frozen=True, kw_only=True)
class _Check:
    """What one step declares and gets, against which every text of its prompt is held."""

    node: Node
    declared: frozenset[str]
    inputs: frozenset[str]
    supply: Supply
    problems: FileProblems

    def used_in(self, text: Prompt) -> None:
        own = self.problems.diagnostics.of(text.source.file)
        for name, line in used_in(text).items():
            if name in self.declared:
                continue
            if name not in self.inputs and name not in self.supply.handoff:
                message = f'step "{self.node.id}": the variable "{name}" is used but not declared'
                message += did_you_mean(name, self.declared)
                fix = 'Add it to "uvVariables" of the step.'
                own.add("SF505", "", message, fix, line=line, word=f"{{uv-{name}}}")
            if name not in self.inputs:
                check_supply(self.node.id, name, self.supply, own, line=line)

    def declared_by(self, owner: Node, texts: list[Prompt]) -> None:
        used = {name for text in texts for name in used_in(text)}
        for index, name in enumerate(owner.entry.uv_variables or ()):
            at = owner.at / "uvVariables" / index
            if name not in used and texts[0].source.template is None:
                message = f'step "{owner.id}": the declared variable "{name}" is not used{did_you_mean(name, used)}'
                fix = f'Write "{{uv-{name}}}" in the prompt, or remove the declaration.'
                self.problems.add("SF506", at, message, fix)
            if name not in self.inputs:
                check_supply(owner.id, name, self.supply, self.problems, at=at)


def used_in(prompt: Prompt) -> dict[str, int]:
    """Variables and their lines in the file; a shipped template can do without any of its own."""
    if prompt.source.template is not None:
        return {}
    lines = variables_in(prompt.source.text)
    return {name: line + prompt.first_line - 1 for name, line in lines.items()}


def check_supply(
    step_id: str, name: str, supply: Supply, problems: FileProblems, *, at: str = "", line: int | None = None
) -> None:
    """Warn about a variable of a step that nothing supplies, or nothing for sure (SF507)."""
    if not supply.known or name in supply.sure or name in supply.handoff:
        return
    if name in supply.perhaps:
        state, fix = "comes only from an optional argument without a default", "Make it required, or give it a default."
    else:
        state, fix = "is supplied by nothing", "Declare a parameter, hand it off in a step, or remove it."
    known = supply.sure | supply.perhaps | supply.handoff
    hint = "" if name in supply.perhaps else did_you_mean(name, known)
    word = f"{{uv-{name}}}" if line else ""
    problems.add("SF507", at, f'step "{step_id}": the variable "{name}" {state}{hint}', fix, line=line, word=word)


_ADDRESS_KEYS = ("c2", "c3", "edition", "adaptation")


@dataclass(frozen=True, kw_only=True)
class ResolvedPrompt:
    """A step's prompt before its variables are checked: its own text, and the sections that it takes in."""

    prompt: Prompt
    step: StepPrompt
    sections: tuple[str, ...] = ()


@dataclass(kw_only=True)
class PromptResolver:
    """Finds the prompt of every step; each section is looked up when the first prompt takes it in.

    Without `files`, whose place could not be told, only what the registry itself says of prompts is checked.
    """

    files: PromptFiles | None
    nodes: Nodes
    gates: Mapping[str, Gate]
    problems: FileProblems
    sections: dict[str, Prompt] = field(default_factory=dict)

    def prompts(self) -> dict[str, ResolvedPrompt]:
        """The prompt of every flow step that asks the model."""
        prompts: dict[str, ResolvedPrompt] = {}
        for node in self.nodes.flow.values():
            if node.entry.uses_stdin:
                message = f'step "{node.id}": "usesStdin" is true, so a run without input text cannot render it'
                self.problems.add("SF511", node.at / "usesStdin", message, "Start every run with an input text.")
            inputs = tuple(self._input(node, name, entry) for name, entry in node.entry.inputs.items())
            fallback = self._fallback(node)
            prompt = None if node.entry.runner is not None else self._find(node, fallback)
            if prompt is not None:
                prompts[node.id] = self._with_sections(node, prompt, fallback, inputs)
        return prompts

    def _find(self, node: Node, fallback: Prompt | None) -> Prompt | None:
        """The text to render; None after a problem was reported, or when the address is not sound."""
        entry, files = node.entry, self.files
        unsound = any(self.problems.at(node.at / key) for key in _ADDRESS_KEYS)
        if files is None or not entry.c2 or not entry.c3 or unsound:
            return None
        address = Address(c2=entry.c2, c3=entry.c3, edition=entry.edition or DEFAULT_EDITION)
        prompt = files.find(node.id, node.kind, address, entry.adaptation, node.at)
        plain = files.path(address, None)
        if prompt is None and fallback is not None:
            message = f'step "{node.id}": the prompt file "{plain}" is missing or empty, '
            message += f'the template "{entry.fallback_key}" is used'
            self.problems.add("SF503", node.at, message, "Write the prompt file, or leave it to the template.")
            return fallback
        if prompt is None:
            self._report_none(node, plain)
        return prompt

    def _report_none(self, node: Node, path: str) -> None:
        key = node.entry.fallback_key
        if key:
            message = f'No fallback prompt found for key: "{key}" (step: {node.id}); the file "{path}" is missing too'
        else:
            message = f'step "{node.id}": the prompt file "{path}" is missing or empty, and there is no "fallbackKey"'
        near = beside(self.files.folder, path) if self.files else ""
        fix = f'Write "{path}", or name a template in "fallbackKey".'
        self.problems.add("SF501", node.at, message + near, fix)

    def _fallback(self, node: Node) -> Prompt | None:
        key = node.entry.fallback_key
        if key is None:
            return None
        if key in TEMPLATE_KEYS:
            return self.files.shipped(key) if self.files else None
        form = key.replace(".", "_").replace("-", "_")
        hint = f' (did you mean "{form}"?)' if form in TEMPLATE_KEYS else did_you_mean(key, TEMPLATE_KEYS)
        at = node.at / "fallbackKey"
        message = f'step "{node.id}": there is no fallback template "{key}"{hint}'
        self.problems.add("SF504", at, message, f"The templates are {listed(sorted(TEMPLATE_KEYS))}.")
        return None

    def _with_sections(
        self, node: Node, prompt: Prompt, fallback: Prompt | None, inputs: tuple[StepInput, ...]
    ) -> ResolvedPrompt:
        used = () if prompt.source.template else self._sections(node, prompt)
        declared = list(node.entry.uv_variables or ())
        for section in used:
            declared += self.nodes.sections[section].entry.uv_variables or ()
        step = StepPrompt(
            source=prompt.source,
            fallback=fallback.source if fallback else None,
            fallback_key=node.entry.fallback_key,
            variables=tuple(dict.fromkeys(declared)),
            inputs=inputs,
            uses_stdin=bool(node.entry.uses_stdin),
        )
        return ResolvedPrompt(prompt=prompt, step=step, sections=used)

    def _sections(self, node: Node, prompt: Prompt) -> tuple[str, ...]:
        used: list[str] = []
        for name, line in sections_in(prompt.source.text).items():
            if name in self.nodes.sections:
                used.append(name)
                self._section(name)
            else:
                message = f'step "{node.id}": "{{section:{name}}}" names no section'
                message += did_you_mean(name, self.nodes.sections)
                fix = f"The sections are {listed(self.nodes.sections)}."
                self._no_section(prompt, (name, line), message, fix)
        return tuple(used)

    def _section(self, name: str) -> None:
        node = self.nodes.sections[name]
        if name in self.sections:
            return
        prompt = self._find(node, self._fallback(node)) or Prompt(source=SourceText(text="", file=""), usable=False)
        self.sections[name] = prompt
        for inner, line in sections_in(prompt.source.text).items():
            message = f'the section "{name}" holds "{{section:{inner}}}", but sections do not nest'
            fix = "Put both sections into the step's prompt."
            self._no_section(prompt, (inner, line), message, fix)

    def _no_section(self, prompt: Prompt, placeholder: tuple[str, int], message: str, fix: str) -> None:
        name, line = placeholder
        own = self.problems.diagnostics.of(prompt.source.file)
        at = line + prompt.first_line - 1
        own.add("SF509", "", message, fix, line=at, word=f"{{section:{name}}}")

    def _input(self, node: Node, name: str, entry: InputEntry) -> StepInput:
        at = node.at / "inputs" / name
        step_id, key = _source(entry.from_ or "", self.nodes)
        if entry.from_ and not step_id:
            message = f'step "{node.id}": the input "{name}" is from "{entry.from_}", which is not "<step id>.<key>"'
            fix = "Write the step's id, a dot, and the handoff key."
            self.problems.add("SF510", at / "from", message, fix, severity=Severity.ERROR)
        elif entry.from_ and not self._hands_off(step_id, key):
            state = f'step "{step_id}" does not hand off "{key}"'
            if step_id not in self.nodes.flow:
                state = f'there is no step "{step_id}"{did_you_mean(step_id, self.nodes.flow)}'
            message = f'step "{node.id}": the input "{name}" is from "{entry.from_}", but {state}'
            fix = "Name a step and one of its handoff fields."
            self.problems.add("SF510", at / "from", message, fix)
        return StepInput(name=name, step_id=step_id, key=key, required=entry.required, default=entry.default)

    def _hands_off(self, step_id: str, key: str) -> bool:
        gate = self.gates.get(step_id)
        return gate is not None and any(key in (path, path.rpartition(".")[2]) for path in gate.handoff_fields)


def _source(origin: str, nodes: Nodes) -> tuple[str, str]:
    """Step id and key of `inputs.<name>.from`: the longest known id counts, else all before the last dot."""
    above = origin.rpartition(".")[0]
    step_id = above
    while step_id and step_id not in nodes.flow:
        step_id = step_id.rpartition(".")[0]
    step_id = step_id or above
    return step_id, origin[len(step_id) + 1 :] if step_id else ""
