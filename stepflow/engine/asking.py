"""One turn of the model, with the patience that a run has for its service (flow.md §10).

Takes: a track and a request. Gives: the turn, `Stop`, or a fault that the same request would meet again.
May touch: the model and the clock, through their ports.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from stepflow.domain.attempt_event import AnswerLost, ModelTurned, ModelWaited
from stepflow.domain.conversation import ModelFault, ModelRequest, ModelTurn
from stepflow.domain.decision import Stop
from stepflow.domain.words import Outcome
from stepflow.engine.strategy import may_move

if TYPE_CHECKING:
    from stepflow.engine.track import Track

#: flow.md §10: five tries in a row at most, waiting 5 s × 2ⁿ and never more than 60 s.
MAX_TRIES = 5
FIRST_WAIT = 5.0
LONGEST_WAIT = 60.0
#: The longest wait that a service may ask of a run without a deadline.
LONGEST_ASKED = 3600.0
#: An answer that is under way when the deadline passes has this many seconds more: it will be paid for anyhow.
ANSWER_GRACE = 30.0


def ask_patiently(track: Track, request: ModelRequest) -> ModelTurn | ModelFault | Stop:
    """Faults that pass are waited out within the run's limits. What comes back is an overflow, or the refusal of a
    strategy that the run may move on from."""
    for attempt in range(1, MAX_TRIES + 1):
        started = track.ports.clock.now()
        answer = track.ports.model.ask(replace(request, seconds=_seconds_for_answer(track, started)))
        if isinstance(answer, ModelTurn):
            _record_turn(track, answer, seconds=max(0.0, track.ports.clock.now() - started))
            return answer
        if answer.usage.total:
            track.record(AnswerLost(reason=answer.reason, usage=answer.usage, cost_usd=answer.cost_usd))
        if answer.overflow or (answer.no_strategy and may_move(track, request)):
            return answer
        if not answer.transient or attempt == MAX_TRIES:
            return model_failed(_told(answer, f" ({attempt} tries)" if attempt > 1 else ""))
        if stop := _wait(track, answer, attempt):
            return stop
    raise AssertionError("unreachable: the last try returns")


def model_failed(reason: str) -> Stop:
    """The end of a run whose model gives no answer."""
    return Stop(outcome=Outcome.MODEL_FAILED, reason=reason)


def _wait(track: Track, fault: ModelFault, attempt: int) -> Stop | None:
    if stop := track.limit_reached():
        return stop
    left = _seconds_left(track, track.ports.clock.now())
    asked = fault.retry_after
    if asked is not None and asked > (LONGEST_ASKED if left is None else left):
        return model_failed(_told(fault, f". It asks for a wait of {asked:.0f} s, and {_too_long(left)}"))
    seconds = min(FIRST_WAIT * 2 ** (attempt - 1), LONGEST_WAIT) if asked is None else asked
    seconds = seconds if left is None else min(seconds, left)
    track.record(ModelWaited(reason=fault.reason, seconds=seconds, attempt=attempt, tries=MAX_TRIES, deadline_in=left))
    track.ports.clock.sleep(seconds)
    return track.limit_reached()


def _too_long(left: float | None) -> str:
    if left is None:
        return f"a run without a deadline waits {LONGEST_ASKED:.0f} s at most"
    return f"only {left:.0f} s are left before the deadline (input timeout-minutes)"


def _seconds_left(track: Track, now: float) -> float | None:
    deadline = track.facts.limits.deadline
    return None if deadline is None else max(0.0, deadline - now)


def _seconds_for_answer(track: Track, now: float) -> float | None:
    left = _seconds_left(track, now)
    return None if left is None else left + ANSWER_GRACE


def _told(fault: ModelFault, more: str) -> str:
    return f"{fault.reason.rstrip('.')}{more}{'. ' + fault.hint if fault.hint else ''}"


def _record_turn(track: Track, turn: ModelTurn, *, seconds: float) -> None:
    track.record(
        ModelTurned(
            content=list(turn.content),
            stop_reason=turn.stop_reason,
            usage=turn.usage,
            cost_usd=turn.cost_usd,
            model=turn.model,
            seconds=seconds,
        )
    )
