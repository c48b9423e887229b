"""How a model is asked for structured output, and when it is asked in another way.

Takes: a track, a request, what came back. Gives: the strategy of a model; the request, asked in the next way.
May touch: nothing but the journal, through the track.

A change within a conversation costs the cached prefix once; within a run there are two changes per model at most, and
what stands before the conversation stays the same from then on.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from stepflow.domain.attempt_event import StrategyChosen
from stepflow.domain.words import Strategy, StructuredOutput
from stepflow.engine.gate.answer import has_shape

if TYPE_CHECKING:
    from stepflow.domain.conversation import ModelRequest
    from stepflow.domain.json import JsonObject
    from stepflow.engine.track import Track

_NEXT = {Strategy.NATIVE: Strategy.TOOL, Strategy.TOOL: Strategy.PROMPT}


def strategy_for(track: Track, model: str) -> Strategy:
    """The way in which this model is asked now."""
    given = track.facts.structured_output
    if given is StructuredOutput.AUTO:
        return track.state.strategies.get(model, Strategy.NATIVE)
    return Strategy(given)


def may_move(track: Track, request: ModelRequest) -> bool:
    """Whether the answer may be asked for in another way."""
    automatic = track.facts.structured_output is StructuredOutput.AUTO
    return automatic and request.schema is not None and request.strategy in _NEXT


def move_on(track: Track, request: ModelRequest, reason: str, *, by_fault: bool) -> ModelRequest:
    """The request, asked in the next way from here on, as every later one of this model."""
    strategy = _NEXT[request.strategy]
    track.record(StrategyChosen(model=request.model, strategy=strategy, reason=reason, by_fault=by_fault))
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
