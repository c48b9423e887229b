"""The context that every part of the flow shares: agent, facts, ports, state, and what may end a run before its next
step: its limits, and an approval that nobody has given.

What bounds one failure is counted where it happens: format retries in `attempt.py`, attempts in `judge.py`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar, cast

from stepflow.domain.agent.agent_settings import ClimbCause, ModelChanged, Rung
from stepflow.domain.agent.definition import AgentDefinition, Step
from stepflow.domain.checkout import TreeState
from stepflow.domain.conversation import ModelRequest
from stepflow.domain.effect import LONGEST_PLAN, MOST_PLAN_LINES, ApprovalAnswered, ApprovalAsked, plan_text
from stepflow.domain.end import End
from stepflow.domain.event import Event, FlowEnded, Noted
from stepflow.domain.flow import Decided, RunState, advance
from stepflow.domain.json import JsonObject, JsonValue
from stepflow.domain.run import Limits, RunFacts
from stepflow.domain.text import count, usd
from stepflow.domain.words import Outcome, Permission
from stepflow.engine.prompt.variables import Variables, step_variables
from stepflow.engine.resumption import WrittenEvents
from stepflow.ports import Ports

E = TypeVar("E", bound=Event)


class FlowStopped(Exception):
    """Ends the run without success. Raised anywhere in the engine; the loop records it."""

    def __init__(self, end: End, *, answer: JsonObject | None = None) -> None:
        super().__init__(end.reason)
        self.end, self.answer = end, answer


@dataclass(frozen=True, kw_only=True)
class Answered:
    """The answer of a finished attempt and its intent: one that was read, or the engine's own `repeat`."""

    answer: JsonObject
    decision: Decided


@dataclass(frozen=True, kw_only=True)
class CachedRequest:
    """A request that the service has cached, and when it was last used, in seconds since the epoch."""

    request: ModelRequest
    used_at: float


@dataclass(kw_only=True)
class FlowContext:
    """The agent, the facts, the ports, and the state, which every recorded event advances."""

    agent: AgentDefinition
    facts: RunFacts
    ports: Ports
    state: RunState
    #: The events of a resumed run's first iteration that are in the journal already.
    written: WrittenEvents = field(default_factory=WrittenEvents)
    #: By step, the request that the service may still have cached. The journal does not hold this.
    cached: dict[str, CachedRequest] = field(default_factory=dict)

    def record(self, event: E) -> E:
        """Append the event to the journal unless it is there, then advance the state. Return the event as the journal
        has it."""
        written = self.written.take(event)
        if written is None:
            self.ports.journal.append(event)
        else:
            event = cast(E, written)
        self.state = advance(self.state, event)
        return event

    def recall(self, *kinds: type[E]) -> E | None:
        """Return the next event that the journal has, if it is of one of these kinds, and advance the state."""
        event = self.written.next
        return self.record(event) if isinstance(event, kinds) else None

    def note(self, level: str, message: str, data: JsonObject | None = None) -> None:
        """Record a log entry that no other event covers."""
        self.record(Noted(level=level, message=message, data=data or {}))

    def note_missing(self, step: Step, paths: Iterable[str]) -> None:
        """Log the handoff fields that an answer lacks."""
        for path in paths:
            self.note("warning", f'[StepFlow] Handoff field "{path}" missing', {"step": step.id})

    def variables(self, step: Step) -> Variables:
        """Return the variables that the step's prompts can use now."""
        facts = self.facts
        return step_variables(self.agent, step, facts, self.state, facts.limits.iterations)

    def current_rung(self, step: Step) -> Rung:
        """Return the step's current rung on its ladder of models. A run begins on the first rung and only climbs."""
        ladder = self.agent.ladder_of(step, self.facts.model)
        return ladder.find(self.state.rungs.get(ladder.owner))

    def find_change(self, step: Step, cause: ClimbCause, reason: str) -> ModelChanged | None:
        """Return the change to the step's next model, for the caller to record; None if there is none for this
        cause."""
        ladder, rung = self.agent.ladder_of(step, self.facts.model), self.current_rung(step)
        above = None if step.command else ladder.above(rung, cause)
        if above is None:
            return None
        return ModelChanged(
            step_id=step.id,
            owner=ladder.owner,
            before=str(rung),
            to=str(above),
            fallback=above.fallback,
            cause=cause,
            reason=reason,
        )

    def check_limits(self, *, next_step: str | None = None) -> None:
        """Stop the run when a limit forbids the next iteration (at `next_step`) or the next model turn."""
        if end := check_limits(self.state, self.facts.limits, self.ports.clock.now(), next_step=next_step):
            raise FlowStopped(end)

    def end(
        self, end: End, answer: JsonObject | None, *, validated: bool = False, closing: TreeState | None = None
    ) -> FlowEnded:
        """Record the end of the flow and return it."""
        state = self.state
        ended = FlowEnded(
            **vars(end),
            step_id=state.step_id,
            answer=answer,
            validated=validated,
            iterations=state.iteration,
            handoff=state.handoff,
            closing=closing,
        )
        self.record(ended)
        return ended


def check_limits(state: RunState, limits: Limits, now: float, *, next_step: str | None = None) -> End | None:
    """Return the end that a limit demands. Called before each iteration (with the step that would begin) and before
    each model turn (without one)."""
    if limits.deadline is not None and now >= limits.deadline:
        return End(outcome=Outcome.TIMED_OUT, reason="the deadline passed (limits.minutes)")
    if limits.tokens is not None and state.usage.total >= limits.tokens:
        used = f"{state.usage.total:,} of {limits.tokens:,} tokens are used (limits.tokens)"
        return End(outcome=Outcome.BUDGET_EXHAUSTED, reason=used)
    if limits.usd is not None and state.cost_usd >= limits.usd:
        return End(outcome=Outcome.BUDGET_EXHAUSTED, reason=_describe_spending(state.cost_usd, limits.usd, limits))
    reached = ""
    if next_step is None:
        if limits.turns is not None and state.turns >= limits.turns:
            reached = f'step "{state.step_id}" took {count(limits.turns, "model turn")} (maxTurnsPerStep)'
    elif state.iteration >= limits.iterations:
        reached = f"the limit of {count(limits.iterations, 'iteration')} is reached (limits.iterations)"
    elif limits.visits is not None and state.visits.get(next_step, 0) >= limits.visits:
        reached = f'step "{next_step}" has run {count(limits.visits, "time")} (maxVisitsPerStep)'
    return End(outcome=Outcome.LIMIT_REACHED, reason=reached) if reached else None


def _describe_spending(cost: float, limit: float, limits: Limits) -> str:
    before = limits.spent_before
    if limits.usd_by_agent:
        return f"{usd(cost)} of {usd(limit)} are spent (maxUsd in agent.json)"
    if before is None:
        return f"{usd(cost)} of {usd(limit)} are spent (limits.usd)"
    whole = f"{usd(before + cost)} of {usd(before + limit)} are spent by all runs on this issue"
    return f"{whole}, {usd(cost)} of it by this one (limits.usd-per-issue)"


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
        raise FlowStopped(End(outcome=Outcome.REFUSED, reason=state.rejection))
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
    reason = f'step "{state.step_id}" begins when {who} approves {digest}'
    raise FlowStopped(End(outcome=Outcome.AWAITING_APPROVAL, reason=reason))


def _refuse_long_plan(state: RunState) -> None:
    """End the run if the plan is too long to show in full to the person who approves it."""
    plan = plan_text(state.handoff)
    lines = plan.count("\n") + 1
    if len(plan) > LONGEST_PLAN or lines > MOST_PLAN_LINES:
        reason = (
            f'the plan before step "{state.step_id}" is too long to approve: it has {len(plan):,} characters in '
            f"{count(lines, 'line')}, and {LONGEST_PLAN:,} characters in {MOST_PLAN_LINES:,} lines can be shown. "
            "Let the steps before it hand on less: fewer handoff fields, or a maxLength in their schemas."
        )
        raise FlowStopped(End(outcome=Outcome.REFUSED, reason=reason))
