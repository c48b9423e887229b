"""The limits of a whole run, as one pure function that is asked before anything is spent.

What bounds one failure is counted where it happens: schema failures in `attempt.py`, attempts in `judge.py`.
"""

from __future__ import annotations

from stepflow.domain.decision import Stop
from stepflow.domain.run import Limits
from stepflow.domain.state import RunState
from stepflow.domain.text import count, usd
from stepflow.domain.words import Outcome


def check_limits(state: RunState, limits: Limits, now: float, *, next_step: str | None = None) -> Stop | None:
    """Asked before each iteration (with the step that would begin) and before each model turn (without one)."""
    return _spent(state, limits, now) or (
        _turns_left(state, limits) if next_step is None else _iterations_left(state, limits, next_step)
    )


def _spent(state: RunState, limits: Limits, now: float) -> Stop | None:
    if limits.deadline is not None and now >= limits.deadline:
        return Stop(outcome=Outcome.TIMED_OUT, reason="the deadline passed (input timeout-minutes)")
    if limits.tokens is not None and state.usage.total >= limits.tokens:
        used = f"{state.usage.total:,} of {limits.tokens:,} tokens are used (input budget-tokens)"
        return Stop(outcome=Outcome.BUDGET_EXHAUSTED, reason=used)
    if limits.usd is not None and state.cost_usd >= limits.usd:
        return Stop(outcome=Outcome.BUDGET_EXHAUSTED, reason=_dollars(state.cost_usd, limits.usd, limits.spent_before))
    return None


def _dollars(cost: float, limit: float, before: float | None) -> str:
    if before is None:
        return f"{usd(cost)} of {usd(limit)} are spent (input budget-usd)"
    whole = f"{usd(before + cost)} of {usd(before + limit)} are spent by all runs on this issue"
    return f"{whole}, {usd(cost)} of it by this one (input budget-usd-per-issue)"


def _iterations_left(state: RunState, limits: Limits, next_step: str) -> Stop | None:
    if state.iteration >= limits.iterations:
        return _stop_at_limit(f"the limit of {count(limits.iterations, 'iteration')} is reached (max-iterations)")
    if limits.visits is not None and state.visits.get(next_step, 0) >= limits.visits:
        return _stop_at_limit(f'step "{next_step}" has run {count(limits.visits, "time")} (maxVisitsPerStep)')
    return None


def _turns_left(state: RunState, limits: Limits) -> Stop | None:
    if limits.turns is not None and state.turns >= limits.turns:
        return _stop_at_limit(f'step "{state.step_id}" took {count(limits.turns, "model turn")} (maxTurnsPerStep)')
    return None


def _stop_at_limit(reason: str) -> Stop:
    return Stop(outcome=Outcome.LIMIT_REACHED, reason=reason)
