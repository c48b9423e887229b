"""Can every variable of every prompt be supplied (prompts.md §4 and §11)?

Takes: the prompts that were found, gates and parameters. Gives: problems SF505 to SF507.
May touch: nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepflow.domain.words import VerdictType
from stepflow.load.findings import nearest
from stepflow.load.gates import handoff_name
from stepflow.load.json_text import child
from stepflow.load.placeholders import variables_in
from stepflow.load.run_variables import run_variables

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from stepflow.domain.definition import Gate, Parameter
    from stepflow.load.findings import FileFindings
    from stepflow.load.prompt_files import Prompt
    from stepflow.load.prompts import FoundPrompt
    from stepflow.load.steps import Node


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
    parameters: Iterable[Parameter], gates: Mapping[str, Gate], verdict: VerdictType | None, *, known: bool
) -> Supply:
    """What the runs of an agent supply. The issue is an argument of every run that has one."""
    sure = set(run_variables(verdict))
    perhaps = {"issue"}
    for parameter in parameters:
        (sure if parameter.required or parameter.default is not None else perhaps).add(parameter.name)
    if verdict is VerdictType.POLL_STATE:
        sure.add("issue")
    handoff = {handoff_name(step_id, path) for step_id, gate in gates.items() for path in gate.handoff_fields}
    return Supply(known=known, sure=frozenset(sure), perhaps=frozenset(perhaps - sure), handoff=frozenset(handoff))


def check_variables(
    node: Node, found_prompt: FoundPrompt, sections: Mapping[str, Prompt], supply: Supply, found: FileFindings
) -> None:
    """Check the variables of one prompt and of the sections it takes in."""
    texts = [found_prompt.prompt, *(sections[name] for name in found_prompt.sections)]
    if found.at(child(node.at, "uvVariables")) or not all(prompt.usable for prompt in texts):
        return  # what is declared, or what is used, is not known
    used = {name: (prompt, line) for prompt in reversed(texts) for name, line in _used(prompt).items()}
    declared = set(found_prompt.step.variables)
    inputs = {one.name for one in found_prompt.step.inputs}
    own = node.entry.uv_variables or []
    for name, (prompt, line) in used.items():
        place = found.findings.of(prompt.source.file)
        if name not in declared and name not in inputs and name not in supply.handoff:
            message = f'step "{node.id}": the variable "{name}" is used but not declared{nearest(name, declared)}'
            place.add("SF505", "", message, 'Add it to "uvVariables" of the step.', line=line)
        if name not in own and name not in inputs:
            _check_supply(node, name, supply, place, line=line)
    for index, name in enumerate(own):
        at = child(child(node.at, "uvVariables"), index)
        if name not in used and found_prompt.prompt.source.template is None:
            message = f'step "{node.id}": the declared variable "{name}" is not used{nearest(name, used)}'
            found.add("SF506", at, message, f'Write "{{uv-{name}}}" in the prompt, or remove the declaration.')
        if name not in inputs:
            _check_supply(node, name, supply, found, at=at)


def _used(prompt: Prompt) -> dict[str, int]:
    """Variables and their lines in the file; a shipped template can do without any of its own."""
    if prompt.source.template is not None:
        return {}
    lines = variables_in(prompt.source.text)
    return {name: line + prompt.first_line - 1 for name, line in lines.items()}


def _check_supply(
    node: Node, name: str, supply: Supply, found: FileFindings, *, at: str = "", line: int | None = None
) -> None:
    if not supply.known or name in supply.sure or name in supply.handoff:
        return
    if name in supply.perhaps:
        state, fix = "comes only from an optional argument without a default", "Make it required, or give it a default."
    else:
        state, fix = "is supplied by nothing", "Declare a parameter, hand it off in a step, or remove it."
    known = supply.sure | supply.perhaps | supply.handoff
    hint = "" if name in supply.perhaps else nearest(name, known)
    found.add("SF507", at, f'step "{node.id}": the variable "{name}" {state}{hint}', fix, line=line)
