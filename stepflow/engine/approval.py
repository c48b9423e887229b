"""Before a step that asks for it the run ends, until somebody has approved what the steps before it handed on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from stepflow.domain.approval import LONGEST_PLAN, MOST_PLAN_LINES, ApprovalAnswered, ApprovalAsked, plan_text
from stepflow.domain.definition import AgentDefinition
from stepflow.domain.json import JsonValue
from stepflow.domain.state import RunState
from stepflow.domain.text import count
from stepflow.domain.words import Outcome, Permission
from stepflow.engine.context import FlowContext, FlowStopped

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


def required_approver(agent: AgentDefinition, state: RunState) -> Permission:
    """The permission of whoever may let the step begin: what the step or the transition to it demands, the higher of
    both; `none` where neither does. A step that is repeated has begun, and only the transition counts."""
    step, source = agent.steps[state.step_id], agent.steps.get(state.source)
    own = step.approval if state.source != step.id else None
    taken = source.approvals.get(state.transition) if source else None
    return max(own or Permission.NONE, taken or Permission.NONE, key=lambda permission: permission.rank)


def demand_approval(context: FlowContext) -> None:
    """End the run before a step that nobody has approved yet."""
    state, facts = context.state, context.facts
    approver = required_approver(context.agent, state)
    if approver is Permission.NONE or state.step_id in state.approved:
        return
    if state.rejection is not None:
        raise FlowStopped(Outcome.REFUSED, state.rejection)
    _demand_shown_whole(state)
    digest = approval_digest(
        state.step_id,
        definition=context.agent.digest,
        base_commit=facts.base_commit,
        issue_text=facts.context_text,
        handoff=state.handoff,
    )
    if facts.approvals_given:
        context.record(ApprovalAnswered(step_id=state.step_id, actor="a rehearsal", digest=digest))
        return
    limits = facts.limits
    context.record(
        ApprovalAsked(
            step_id=state.step_id,
            by=approver,
            digest=digest,
            iterations_left=max(0, limits.iterations - state.iteration),
            usd_left=None if limits.usd is None else max(0.0, limits.usd - state.cost_usd),
            tokens_left=None if limits.tokens is None else max(0, limits.tokens - state.usage.total),
        )
    )
    who = f"somebody with the permission {approver}"
    raise FlowStopped(Outcome.AWAITING_APPROVAL, f'step "{state.step_id}" begins when {who} approves {digest}')


def _demand_shown_whole(state: RunState) -> None:
    """End the run where nobody could be shown all of what they would approve."""
    plan = plan_text(state.handoff)
    lines = plan.count("\n") + 1
    if len(plan) > LONGEST_PLAN or lines > MOST_PLAN_LINES:
        raise FlowStopped(
            Outcome.REFUSED,
            f'the plan before step "{state.step_id}" is too long to be approved: it has {len(plan):,} characters in '
            f"{count(lines, 'line')}, and {LONGEST_PLAN:,} characters in {MOST_PLAN_LINES:,} lines are shown whole. "
            "Let the steps before it hand on less: fewer handoff fields, or a maxLength in their schemas.",
        )
