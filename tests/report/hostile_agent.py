"""An agent whose every name tries to be more than a name."""

from __future__ import annotations

from dataclasses import replace

from stepflow.domain.agent.definition import AgentDefinition, Branch, Target
from stepflow.domain.words import Intent, StepKind
from tests.report.plausible_run import AGENT, STEPS


def hostile_agent(text: str, other: str) -> AgentDefinition:
    """Two steps whose ids, validators and conditions are hostile text, with every kind of arrow between them."""
    first, second = f"{text}1", f"{other}2"
    condition = replace(
        STEPS[3].validation.conditions[0],
        validator=STEPS[3].validation.conditions[0].validator.model_copy(update={"name": text}),
    )
    closure = replace(
        STEPS[3],
        id=second,
        name=other,
        edges={Intent.CLOSING: Target(step_id=None), Intent.REPEAT: Target(step_id=first)},
        validation=replace(STEPS[3].validation, conditions=(condition,)),
    )
    branch = Branch(condition=text, targets={other: second}, default=first)
    work = replace(STEPS[2], id=first, name=text, kind=StepKind.VERIFICATION, edges={Intent.NEXT: branch})
    return replace(AGENT, name=text, entry_step=first, steps={first: work, second: closure})
