"""One step attempt's conversation with the model, with its tool loop.

Takes: a track and the opening of the conversation. Gives: the model's final text of each exchange, or `Stop`.
May touch: the model, the tools and the clock, through their ports.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from stepflow.domain.attempt_event import ModelTurned, ModelWaited, ToolCalled, UserSpoke
from stepflow.domain.conversation import (
    Message,
    ModelFault,
    ModelRequest,
    ModelTurn,
    StopReason,
    ToolResult,
    ToolUse,
    text_block,
    tool_result_block,
)
from stepflow.domain.decision import Stop
from stepflow.domain.words import Outcome

if TYPE_CHECKING:
    from stepflow.domain.json import JsonObject
    from stepflow.flow.track import Track

#: flow.md §10: five tries in a row at most, waiting 5 s × 2ⁿ and never more than 60 s.
MAX_TRIES = 5
FIRST_WAIT = 5.0
LONGEST_WAIT = 60.0

CUT_OFF = (
    "The answer was cut off at the output limit before the call was complete, so nothing ran. Send a shorter call."
)
AGAIN_SHORTER = "Your answer was cut off at the output limit. Send the whole answer again, shorter."


@dataclass(kw_only=True)
class Conversation:
    """An open conversation. `request` holds everything said so far; `texts` the assistant's texts, in order.

    While it `may_shorten`, an answer that was cut off is asked for again, at the cost of a format retry.
    """

    track: Track
    request: ModelRequest
    texts: list[str] = field(default_factory=list)
    may_shorten: bool = True

    def say(self, text: str, *, format_retry: bool = False, errors: tuple[str, ...] = ()) -> None:
        """Add a message of the engine's."""
        self.track.record(UserSpoke(text=text, format_retry=format_retry, errors=list(errors)))
        self._add("user", (text_block(text),))

    def ask(self, question: str, schema: JsonObject) -> str | Stop:
        """One more question with an answer schema of its own; its answer is taken as it comes (flow.md §7)."""
        self.request = replace(self.request, schema=schema)
        self.may_shorten = False
        self.say(question)
        return self.listen()

    def listen(self) -> str | Stop:
        """Let the model work, tools included, until it answers without a tool call; its last text."""
        while True:
            if stop := self.track.limit_reached():
                return stop
            turn = ask_patiently(self.track, self.request)
            if isinstance(turn, Stop):
                return turn
            # The API takes no empty message back.
            if turn.content:
                self._add("assistant", turn.content)
            if turn.text:
                self.texts.append(turn.text)
            match self._after(turn):
                case None:
                    continue
                case ended:
                    return ended

    def _after(self, turn: ModelTurn) -> str | Stop | None:
        """What a turn's stop reason leads to; None asks the model again."""
        match turn.stop_reason:
            case StopReason.REFUSAL:
                return _failed("the model refused to answer")
            case StopReason.CONTEXT_EXCEEDED:
                return _failed("the conversation has outgrown the model's context window")
            case StopReason.PAUSE_TURN:
                return None
            case _ if turn.tool_uses:
                cut = turn.stop_reason is StopReason.MAX_TOKENS
                self._add("user", tuple(self._answer(use, cut=cut) for use in turn.tool_uses))
                return None
            case StopReason.MAX_TOKENS if self._may_ask_again():
                self.say(AGAIN_SHORTER, format_retry=True)
                return None
            case _:
                return turn.text

    def _may_ask_again(self) -> bool:
        step = self.track.agent.steps[self.request.step_id]
        return self.may_shorten and self.track.state.format_retries < step.format_retries

    def _answer(self, use: ToolUse, *, cut: bool) -> JsonObject:
        denied = use.name not in {tool.name for tool in self.request.tools}
        result = self._denial(use) if denied else _cut_call(use) if cut else self.track.ports.tools.run_tool(use)
        self.track.record(
            ToolCalled(
                tool_use_id=use.id,
                name=use.name,
                input=use.input,
                output=result.text,
                is_error=result.is_error,
                exit_code=result.exit_code,
                seconds=result.seconds,
                denied=denied,
            )
        )
        return tool_result_block(result)

    def _denial(self, use: ToolUse) -> ToolResult:
        allowed = ", ".join(tool.name for tool in self.request.tools) or "none"
        text = f'Step "{self.request.step_id}" may not use a tool "{use.name}". Its tools: {allowed}.'
        return ToolResult(tool_use_id=use.id, text=text, is_error=True)

    def _add(self, role: str, content: tuple[JsonObject, ...]) -> None:
        message = Message(role=role, content=content)
        self.request = replace(self.request, messages=(*self.request.messages, message))


def ask_patiently(track: Track, request: ModelRequest) -> ModelTurn | Stop:
    """One turn of the model; faults that pass are waited out within the run's limits (flow.md §10)."""
    for attempt in range(1, MAX_TRIES + 1):
        started = track.ports.clock.now()
        answer = track.ports.model.ask(request)
        if isinstance(answer, ModelTurn):
            _record_turn(track, answer, seconds=track.ports.clock.now() - started)
            return answer
        if not answer.transient or attempt == MAX_TRIES:
            return _gave_up(answer, attempt)
        if stop := _wait(track, answer, attempt):
            return stop
    raise AssertionError("unreachable: the last try returns")


def _wait(track: Track, fault: ModelFault, attempt: int) -> Stop | None:
    seconds = fault.retry_after if fault.retry_after is not None else FIRST_WAIT * 2 ** (attempt - 1)
    deadline = track.facts.limits.deadline
    if deadline is not None:
        seconds = min(seconds, max(0.0, deadline - track.ports.clock.now()))
    if fault.retry_after is None:
        seconds = min(seconds, LONGEST_WAIT)
    track.record(ModelWaited(reason=fault.reason, seconds=seconds, attempt=attempt))
    track.ports.clock.sleep(seconds)
    return track.limit_reached()


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


def _gave_up(fault: ModelFault, attempt: int) -> Stop:
    tries = f" ({attempt} tries)" if attempt > 1 else ""
    return _failed(f"{fault.reason.rstrip('.')}{tries}{'. ' + fault.hint if fault.hint else ''}")


def _cut_call(use: ToolUse) -> ToolResult:
    return ToolResult(tool_use_id=use.id, text=CUT_OFF, is_error=True)


def _failed(reason: str) -> Stop:
    return Stop(outcome=Outcome.MODEL_FAILED, reason=reason)
