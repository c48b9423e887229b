"""Before a step that asks for it the run ends, until somebody has approved what the steps before it handed on."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from stepflow.domain.approval import ApprovalAsked
from stepflow.domain.words import Outcome
from stepflow.engine.context import FlowStopped

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepflow.domain.definition import Step
    from stepflow.domain.json import JsonValue
    from stepflow.engine.context import FlowContext

#: Hexadecimal digits that people copy into a comment.
DIGITS = 20


def approval_digest(
    step_id: str,
    *,
    definition: str,
    base_commit: str,
    issue_text: str,
    handoff: Mapping[str, Mapping[str, JsonValue]],
) -> str:
    """What an approval is bound to, as one word."""
    bound = [step_id, definition, base_commit, issue_text, {step: {**values} for step, values in handoff.items()}]
    return hashlib.sha256(json.dumps(bound, sort_keys=True).encode()).hexdigest()[:DIGITS]


def demand_approval(context: FlowContext, step: Step) -> None:
    """End the run before a step that nobody has approved yet."""
    state, facts = context.state, context.facts
    if step.approval is None or step.id in state.approved:
        return
    if state.rejection is not None:
        raise FlowStopped(Outcome.REFUSED, state.rejection)
    digest = approval_digest(
        step.id,
        definition=context.agent.digest,
        base_commit=facts.base_commit,
        issue_text=facts.context_text,
        handoff=state.handoff,
    )
    limits = facts.limits
    context.record(
        ApprovalAsked(
            step_id=step.id,
            by=step.approval,
            digest=digest,
            iterations_left=limits.iterations - state.iteration,
            usd_left=None if limits.usd is None else limits.usd - state.cost_usd,
            tokens_left=None if limits.tokens is None else limits.tokens - state.usage.total,
        )
    )
    who = f"somebody with the permission {step.approval}"
    raise FlowStopped(Outcome.AWAITING_APPROVAL, f'step "{step.id}" begins when {who} approves {digest}')
