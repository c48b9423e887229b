"""One step attempt's conversation with the model: its tool loop, and how it is made shorter where it does not fit."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import TYPE_CHECKING

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
from stepflow.domain.event import ContextCompacted, ToolCalled, UserMessage
from stepflow.domain.json import compact
from stepflow.domain.words import Strategy
from stepflow.engine.model_call import call_model, may_change_strategy, model_failed, next_strategy, unheeded
from stepflow.engine.prompt.messages import answer_form
from stepflow.engine.skills import read_skill

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepflow.domain.json import JsonObject
    from stepflow.engine.context import FlowContext

CUT_OFF = (
    "The answer was cut off at the output limit before the call was complete, so nothing ran. Send a shorter call."
)
FULL = "the model's context window was full before its answer was complete"
SMALLER_OPENING = (
    "Give the step less to begin with (its prompt, the handoff that it is shown, the issue's text), or choose a "
    "`model` with a larger context window"
)
AGAIN_SHORTER = "Your answer was cut off at the output limit. Send the whole answer again, shorter."


class ContextOverflow(Exception):
    """The conversation does not fit the model any more and cannot be made shorter. `by_fault`: the service refused it,
    else an answer found no room in it."""

    def __init__(self, reason: str, *, by_fault: bool) -> None:
        super().__init__(reason)
        self.reason, self.by_fault = reason, by_fault


@dataclass(kw_only=True)
class Conversation:
    """An open conversation. `request` holds everything said so far; `texts` the assistant's texts, in order;
    `described_schema` is the schema that was described in words; `is_cut` says that the last answer was cut off.

    While it `may_shorten`, an answer that was cut off is asked for again, at the cost of a format retry.
    """

    context: FlowContext
    request: ModelRequest
    texts: list[str] = field(default_factory=list)
    described_schema: JsonObject | None = None
    may_shorten: bool = True
    is_cut: bool = False

    def say(self, text: str, *, format_retry: bool = False, errors: tuple[str, ...] = ()) -> None:
        """Add a message of the engine's, with the answer's form where only words describe it."""
        schema = self.request.schema
        if self.request.strategy is Strategy.PROMPT and schema is not None and schema != self.described_schema:
            text, self.described_schema = f"{text}\n\n{answer_form(schema)}", schema
        self.context.record(UserMessage(text=text, format_retry=format_retry, errors=list(errors)))
        self._add("user", (text_block(text),))

    def correct(self, text: str, errors: tuple[str, ...]) -> None:
        """Ask for the answer again, at the cost of a format retry."""
        self.request = replace(self.request, insist=True)
        self.say(text, format_retry=True, errors=errors)

    def learn(self, answer: JsonObject | None) -> None:
        """Move on to another strategy when the last answer shows that the service does not heed this one."""
        reason = "" if self.is_cut else unheeded(self.request, answer)
        if reason and may_change_strategy(self.context, self.request):
            self.request = next_strategy(self.context, self.request, reason, by_fault=False)

    def ask(self, question: str, schema: JsonObject) -> str:
        """One more question with an answer schema of its own; its answer is taken as it comes (flow.md §7)."""
        self.request = replace(self.request, schema=schema, insist=False)
        self.may_shorten = False
        self.say(question)
        return self.listen()

    def listen(self) -> str:
        """Let the model work, tools included, until it answers without a tool call; its last text."""
        while True:
            self.context.check_limits()
            text = self._take(call_model(self.context, self.request))
            if text is not None:
                return text

    def _take(self, turn: ModelTurn | ModelFault) -> str | None:
        """Add a turn to the conversation, and do what it asks for; None asks the model again."""
        if isinstance(turn, ModelFault):
            if turn.no_strategy:
                self._ask_otherwise(turn)
            else:
                self._make_room(turn.reason, by_fault=True)
            return None
        self.is_cut = turn.stop_reason is StopReason.MAX_TOKENS
        if turn.stop_reason is StopReason.CONTEXT_EXCEEDED:
            # What there is of the answer is left out: a call in it may be cut off, and nobody has answered it.
            self._make_room(FULL, by_fault=False)
            return None
        # The API takes no empty message back.
        if turn.content:
            self._add("assistant", turn.content)
        if turn.text:
            self.texts.append(turn.text)
        return self._after(turn)

    def _ask_otherwise(self, fault: ModelFault) -> None:
        """Ask in another way, after a call that the service refused for the way in which it asked."""
        self.request = next_strategy(self.context, self.request, fault.reason, by_fault=True)
        schema = self.request.schema
        if self.request.strategy is Strategy.PROMPT and schema is not None:
            # The refused call has said all that there is to say, so its last message takes the words.
            *before, last = self.request.messages
            self.described_schema, last = (
                schema,
                replace(last, content=(*last.content, text_block(answer_form(schema)))),
            )
            self.request = replace(self.request, messages=(*before, last))

    def _make_room(self, reason: str, *, by_fault: bool) -> None:
        """Shorten the conversation, which does not fit the model (flow.md §10)."""
        if len(self.request.messages) == 1:
            opening = f'the opening of step "{self.request.step_id}" does not fit the model\'s context window'
            raise model_failed(f"{opening}: {reason.rstrip('.')}. {SMALLER_OPENING}")
        shorter = compact_messages(self.request.messages)
        if shorter is None:
            raise ContextOverflow(reason, by_fault=by_fault)
        self.context.record(
            ContextCompacted(
                reason=reason,
                by_fault=by_fault,
                results=shorter.results,
                characters=shorter.characters,
                left=shorter.left,
            )
        )
        self.request = replace(self.request, messages=shorter.messages)

    def _after(self, turn: ModelTurn) -> str | None:
        """What a turn's stop reason leads to; None asks the model again."""
        match turn.stop_reason:
            case StopReason.REFUSAL:
                raise model_failed("the model refused to answer")
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
        step = self.context.agent.steps[self.request.step_id]
        return self.may_shorten and self.context.state.format_retries < step.format_retries

    def _answer(self, use: ToolUse, *, cut: bool) -> JsonObject:
        denied = use.name not in {tool.name for tool in self.request.tools}
        if denied:
            allowed = ", ".join(tool.name for tool in self.request.tools) or "none"
            denial = f'Step "{self.request.step_id}" may not use a tool "{use.name}". Its tools: {allowed}.'
            result = ToolResult(tool_use_id=use.id, text=denial, is_error=True)
        elif cut:
            result = ToolResult(tool_use_id=use.id, text=CUT_OFF, is_error=True)
        else:
            result = read_skill(self.context.agent, use) or self.context.ports.tools.run_tool(use)
        self.context.record(
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

    def _add(self, role: str, content: tuple[JsonObject, ...]) -> None:
        message = Message(role=role, content=content)
        self.request = replace(self.request, messages=(*self.request.messages, message))


#: Each time, the whole conversation is paid in full once more, since the cached prefix ends at the first change: so it
#: is done rarely, and then at least this share of all characters goes, if the old results hold that much.
WANTED_SHARE = 0.5
#: Less than this share is not worth a change: the next turn would need another one.
LEAST_SHARE = 0.1
INPUT_SHOWN = 160
#: What an image counts for, in characters: most models see 1,600 tokens of one at most (Messages API, "Vision").
IMAGE_SIZE = 6_400


@dataclass(frozen=True, kw_only=True)
class Compacted:
    """The shorter conversation. `results` were replaced by notes, `characters` went, `left` remain."""

    messages: tuple[Message, ...]
    results: int
    characters: int
    left: int


def compact_messages(messages: tuple[Message, ...]) -> Compacted | None:
    """Old tool results become notes; opening, assistant turns and the newest results stay as they are.

    None when that would free too little to be worth it.
    """
    notes = _notes(messages)
    before = sum(map(_size, messages))
    shorter = [_with_notes(message, notes) for message in messages]
    freed = list(accumulate(_size(message) - _size(short) for message, short in zip(messages, shorter, strict=True)))
    # The newest results stay: only the messages before them may be shortened, and as few as free the wanted share.
    newest = max((number for number, message in enumerate(messages) if _results(message)), default=0)
    enough = (number for number, sum_ in enumerate(freed[:newest], start=1) if sum_ >= before * WANTED_SHARE)
    oldest = next(enough, newest)
    if oldest == 0 or freed[oldest - 1] < before * LEAST_SHARE:
        return None
    return Compacted(
        messages=(*shorter[:oldest], *messages[oldest:]),
        results=sum(_differing(*pair) for pair in zip(messages[:oldest], shorter, strict=False)),
        characters=freed[oldest - 1],
        left=before - freed[oldest - 1],
    )


def _notes(messages: tuple[Message, ...]) -> dict[str, str]:
    """What a call's result becomes, by the call's id: what it was, and how to get it again."""
    calls = [block for message in messages for block in message.content if block.get("type") == "tool_use"]
    return {str(call.get("id")): _note(call) for call in calls}


def _note(call: JsonObject) -> str:
    given = compact(call.get("input") or {})
    shown = given if len(given) <= INPUT_SHOWN else f"{given[:INPUT_SHOWN]}…"
    return (
        f"[The result of {call.get('name')} {shown} was removed to make room in this conversation. What the call "
        "changed is still there. Call it again only if you need the text.]"
    )


def _with_notes(message: Message, notes: Mapping[str, str]) -> Message:
    return replace(message, content=tuple(_shorter(block, notes) for block in message.content))


def _shorter(block: JsonObject, notes: Mapping[str, str]) -> JsonObject:
    note = notes.get(str(block.get("tool_use_id"))) if block.get("type") == "tool_result" else None
    return block if note is None or len(note) >= len(str(block.get("content"))) else {**block, "content": note}


def _differing(message: Message, short: Message) -> int:
    return sum(block is not shortened for block, shortened in zip(message.content, short.content, strict=True))


def _results(message: Message) -> bool:
    return any(block.get("type") == "tool_result" for block in message.content)


def _size(message: Message) -> int:
    return sum(IMAGE_SIZE if block.get("type") == "image" else len(compact(block)) for block in message.content)
