"""End the run before a step that needs approval, until somebody has approved the handoff of the steps before it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from stepflow.domain.agent.definition import AgentDefinition
from stepflow.domain.approval import LONGEST_PLAN, MOST_PLAN_LINES, ApprovalAnswered, ApprovalAsked, plan_text
from stepflow.domain.json import JsonValue
from stepflow.domain.state import RunState
from stepflow.domain.text import count
from stepflow.domain.words import Outcome, Permission
from stepflow.engine.context import FlowContext, FlowStopped

#: Hexadecimal digits of a digest, which people copy into a comment.
DIGITS = 20


def approval_digest(
    step_id: str,
    *,
    definition: str,
    base_commit: str,
    issue_text: str,
    handoff: Mapping[str, Mapping[str, JsonValue]],
) -> str:
    """Hash everything that an approval is bound to."""
    bound = [step_id, definition, base_commit, issue_text, {step: {**values} for step, values in handoff.items()}]
    return hashlib.sha256(json.dumps(bound, sort_keys=True).encode()).hexdigest()[:DIGITS]


def required_approver(agent: AgentDefinition, state: RunState) -> Permission:
    """Return the permission that approving the step needs: the higher one of what the step and the transition to it
    demand, `none` if neither does. For a step that repeats, only the transition counts."""
    step, source = agent.steps[state.step_id], agent.steps.get(state.source)
    by_step = step.approval if state.source != step.id else None
    by_transition = source.approvals.get(state.transition) if source else None
    return max(by_step or Permission.NONE, by_transition or Permission.NONE, key=lambda permission: permission.rank)


def demand_approval(context: FlowContext) -> None:
    """End the run before a step that nobody has approved yet."""
    state, facts = context.state, context.facts
    approver = required_approver(context.agent, state)
    if approver is Permission.NONE or state.step_id in state.approved:
        return
    if state.rejection is not None:
        raise FlowStopped(Outcome.REFUSED, state.rejection)
    _refuse_long_plan(state)
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


def _refuse_long_plan(state: RunState) -> None:
    """End the run if the plan is too long to show in full to the person who approves it."""
    plan = plan_text(state.handoff)
    lines = plan.count("\n") + 1
    if len(plan) > LONGEST_PLAN or lines > MOST_PLAN_LINES:
        raise FlowStopped(
            Outcome.REFUSED,
            f'the plan before step "{state.step_id}" is too long to approve: it has {len(plan):,} characters in '
            f"{count(lines, 'line')}, and {LONGEST_PLAN:,} characters in {MOST_PLAN_LINES:,} lines can be shown. "
            "Let the steps before it hand on less: fewer handoff fields, or a maxLength in their schemas.",
        )
