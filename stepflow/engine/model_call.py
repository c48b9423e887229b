"""Ask the model for one turn, and wait out faults that pass."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from stepflow.domain.conversation import ModelFault, ModelRequest, ModelTurn, Remedy, has_images
from stepflow.domain.event import AnswerLost, ModelTurned, ModelWaited
from stepflow.domain.words import Outcome, Strategy
from stepflow.engine.cache_renewal import remember_cached
from stepflow.engine.context import FlowStopped

if TYPE_CHECKING:
    from stepflow.engine.context import FlowContext

#: flow.md §10: five tries in a row at most, waiting 5 s × 2ⁿ and never more than 60 s.
MAX_TRIES = 5
FIRST_WAIT = 5.0
LONGEST_WAIT = 60.0
#: The longest wait that a service may ask of a run without a deadline.
LONGEST_ASKED = 3600.0
#: An answer that is under way when the deadline passes has this many seconds more: it will be paid for anyhow.
ANSWER_GRACE = 30.0


def call_model(context: FlowContext, request: ModelRequest) -> ModelTurn | ModelFault:
    """Faults that pass are waited out within the run's limits. A fault that comes back has a remedy that applies to
    this request."""
    for attempt in range(1, MAX_TRIES + 1):
        started = context.ports.clock.now()
        left = _seconds_left(context, started)
        answer = context.ports.model.ask(replace(request, seconds=None if left is None else left + ANSWER_GRACE))
        if isinstance(answer, ModelTurn):
            remember_cached(context, request, answer, asked_at=started)
            _record_turn(context, answer, seconds=max(0.0, context.ports.clock.now() - started))
            return answer
        if answer.usage.total:
            context.record(AnswerLost(reason=answer.reason, usage=answer.usage, cost_usd=answer.cost_usd))
        if answer.remedy is not None and applies(answer.remedy, request):
            return answer
        if not answer.transient or attempt == MAX_TRIES:
            raise model_failed(_describe_fault(answer, f" ({attempt} tries)" if attempt > 1 else ""))
        _wait(context, answer, attempt)
    raise AssertionError("unreachable: the last try returns")


def applies(remedy: Remedy, request: ModelRequest) -> bool:
    """Whether this request can be changed so. What the model has answered to stays as it is: only the last message,
    which has no answer yet, may lose its images."""
    match remedy:
        case Remedy.SHORTEN:
            return True
        case Remedy.ASK_IN_WORDS:
            return request.schema is not None and request.strategy is Strategy.NATIVE
        case Remedy.LEAVE_OUT_IMAGES:
            return has_images(request.messages[-1])
        case Remedy.DROP_THINKING:
            return not request.drop_thinking
        case _:
            assert_never(remedy)


def model_failed(reason: str) -> FlowStopped:
    """The end of a run whose model gives no answer."""
    return FlowStopped(Outcome.MODEL_FAILED, reason)


def _wait(context: FlowContext, fault: ModelFault, attempt: int) -> None:
    context.check_limits()
    left = _seconds_left(context, context.ports.clock.now())
    retry_after = fault.retry_after
    if retry_after is not None and retry_after > (LONGEST_ASKED if left is None else left):
        raise model_failed(
            _describe_fault(fault, f". It asks for a wait of {retry_after:.0f} s, and {_too_long(left)}")
        )
    seconds = min(FIRST_WAIT * 2 ** (attempt - 1), LONGEST_WAIT) if retry_after is None else retry_after
    seconds = seconds if left is None else min(seconds, left)
    context.record(
        ModelWaited(reason=fault.reason, seconds=seconds, attempt=attempt, tries=MAX_TRIES, deadline_in=left)
    )
    context.ports.clock.sleep(seconds)
    context.check_limits()


def _too_long(left: float | None) -> str:
    if left is None:
        return f"a run without a deadline waits {LONGEST_ASKED:.0f} s at most"
    return f"only {left:.0f} s are left before the deadline (input timeout-minutes)"


def _seconds_left(context: FlowContext, now: float) -> float | None:
    deadline = context.facts.limits.deadline
    return None if deadline is None else max(0.0, deadline - now)


def _describe_fault(fault: ModelFault, more: str) -> str:
    return f"{fault.reason.rstrip('.')}{more}{'. ' + fault.hint if fault.hint else ''}"


def _record_turn(context: FlowContext, turn: ModelTurn, *, seconds: float) -> None:
    context.record(
        ModelTurned(
            content=list(turn.content),
            stop_reason=turn.stop_reason,
            usage=turn.usage,
            cost_usd=turn.cost_usd,
            model=turn.model,
            seconds=seconds,
            refusal=turn.refusal,
            cleared=turn.cleared,
            near_price_step=turn.near_price_step,
        )
    )
