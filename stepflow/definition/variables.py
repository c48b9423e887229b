"""Can every variable of every prompt be supplied (prompts.md §4 and §11)?

Takes: the prompts that were found, gates and parameters. Gives: problems SF505 to SF507.
May touch: nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepflow.definition.findings import did_you_mean
from stepflow.definition.json_text import child
from stepflow.definition.placeholders import variables_in
from stepflow.definition.run_variables import run_variables
from stepflow.domain.words import VerdictType

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from stepflow.definition.findings import FileFindings
    from stepflow.definition.prompt_files import Prompt
    from stepflow.definition.prompts import FoundPrompt
    from stepflow.definition.steps import Node
    from stepflow.domain.parameter import Parameter


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
    prompt: FoundPrompt, node: Node, sections: Mapping[str, tuple[Node, Prompt]], supply: Supply, found: FileFindings
) -> None:
    """Check the variables of one step's prompt and of the sections it takes in."""
    parts = [(node, prompt.prompt), *(sections[name] for name in prompt.sections)]
    if any(found.at(child(owner.at, "uvVariables")) or not text.usable for owner, text in parts):
        return  # what is declared, or what is used, is not known
    check = _Check(
        node=node,
        declared=frozenset(prompt.step.variables),
        inputs=frozenset(one.name for one in prompt.step.inputs),
        supply=supply,
        found=found,
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
    found: FileFindings

    def used_in(self, text: Prompt) -> None:
        own = self.found.findings.of(text.source.file)
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
            at = child(child(owner.at, "uvVariables"), index)
            if name not in used and texts[0].source.template is None:
                message = f'step "{owner.id}": the declared variable "{name}" is not used{did_you_mean(name, used)}'
                fix = f'Write "{{uv-{name}}}" in the prompt, or remove the declaration.'
                self.found.add("SF506", at, message, fix)
            if name not in self.inputs:
                check_supply(owner.id, name, self.supply, self.found, at=at)


def used_in(prompt: Prompt) -> dict[str, int]:
    """Variables and their lines in the file; a shipped template can do without any of its own."""
    if prompt.source.template is not None:
        return {}
    lines = variables_in(prompt.source.text)
    return {name: line + prompt.first_line - 1 for name, line in lines.items()}


def check_supply(
    step_id: str, name: str, supply: Supply, found: FileFindings, *, at: str = "", line: int | None = None
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
    found.add("SF507", at, f'step "{step_id}": the variable "{name}" {state}{hint}', fix, line=line, word=word)
