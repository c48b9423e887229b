"""Ask the model for one turn: wait out faults that pass (flow.md §10), and choose how structured output is asked for.

A change of strategy within a conversation costs the cached prefix once; within a run there are two changes per model at
most, and what stands before the conversation stays the same from then on."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from stepflow.domain.conversation import ModelFault, ModelRequest, ModelTurn
from stepflow.domain.event import AnswerLost, ModelTurned, ModelWaited, StrategyChosen
from stepflow.domain.words import Outcome, Strategy, StructuredOutput
from stepflow.engine.answer import has_shape
from stepflow.engine.context import FlowStopped

if TYPE_CHECKING:
    from stepflow.domain.json import JsonObject
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
    """Faults that pass are waited out within the run's limits. What comes back is an overflow, or the refusal of a
    strategy that the run may move on from."""
    for attempt in range(1, MAX_TRIES + 1):
        started = context.ports.clock.now()
        left = _seconds_left(context, started)
        answer = context.ports.model.ask(replace(request, seconds=None if left is None else left + ANSWER_GRACE))
        if isinstance(answer, ModelTurn):
            _record_turn(context, answer, seconds=max(0.0, context.ports.clock.now() - started))
            return answer
        if answer.usage.total:
            context.record(AnswerLost(reason=answer.reason, usage=answer.usage, cost_usd=answer.cost_usd))
        if answer.overflow or (answer.no_strategy and may_change_strategy(context, request)):
            return answer
        if not answer.transient or attempt == MAX_TRIES:
            raise model_failed(_describe_fault(answer, f" ({attempt} tries)" if attempt > 1 else ""))
        _wait(context, answer, attempt)
    raise AssertionError("unreachable: the last try returns")


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
        )
    )


_NEXT = {Strategy.NATIVE: Strategy.TOOL, Strategy.TOOL: Strategy.PROMPT}


def strategy_for(context: FlowContext, model: str) -> Strategy:
    """The way in which this model is asked now."""
    given = context.facts.structured_output
    if given is StructuredOutput.AUTO:
        return context.state.strategies.get(model, Strategy.NATIVE)
    return Strategy(given)


def may_change_strategy(context: FlowContext, request: ModelRequest) -> bool:
    """Whether the answer may be asked for in another way."""
    automatic = context.facts.structured_output is StructuredOutput.AUTO
    return automatic and request.schema is not None and request.strategy in _NEXT


def next_strategy(context: FlowContext, request: ModelRequest, reason: str, *, by_fault: bool) -> ModelRequest:
    """The request, asked in the next way from here on, as every later one of this model."""
    strategy = _NEXT[request.strategy]
    context.record(StrategyChosen(model=request.model, strategy=strategy, reason=reason, by_fault=by_fault))
    return replace(request, strategy=strategy)


def unheeded(request: ModelRequest, answer: JsonObject | None) -> str:
    """How an answer shows that the service did not do what it was asked; empty when it does not show that."""
    if request.schema is None:
        return ""
    match request.strategy:
        case Strategy.NATIVE if answer is None:
            return "the service answered in prose where output_config asked for JSON"
        case Strategy.NATIVE if answer is not None and not has_shape(answer, request.schema):
            return "the answer does not have the shape that output_config asked for"
        case Strategy.TOOL if answer is None and (request.insist or not request.tools):
            return "the service answered in prose where tool_choice asked for a call"
        case _:
            return ""
