"""One step attempt's conversation with the model and its tool loop. It only ever grows: what the model has answered to
is sent again as it was, since models bind their thinking to everything before it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, assert_never

from stepflow.domain.conversation import (
    Message,
    ModelFault,
    ModelRequest,
    ModelTurn,
    Refusal,
    Remedy,
    RequestAdapted,
    StopReason,
    ToolResult,
    ToolUse,
    text_block,
    tool_result_block,
    without_images,
)
from stepflow.domain.event import ContextOverflowed, ToolCalled, UserMessage
from stepflow.domain.figures import count
from stepflow.domain.json import compact
from stepflow.domain.ladder import ClimbCause, ModelChanged
from stepflow.domain.words import Outcome, Strategy, StructuredOutput
from stepflow.engine.answer import has_shape
from stepflow.engine.cache_renewal import keep_conversation
from stepflow.engine.context import FlowStopped
from stepflow.engine.ladder import find_change
from stepflow.engine.model_call import call_model, model_failed
from stepflow.engine.prompt.messages import answer_form
from stepflow.engine.skills import read_skill

if TYPE_CHECKING:
    from stepflow.domain.json import JsonObject
    from stepflow.engine.context import FlowContext

CUT_OFF = (
    "The answer was cut off at the output limit before the call was complete, so nothing ran. Send a shorter call."
)
FULL = "the model's context window was full before its answer was complete"
LONG = "the conversation is close to the length at which this model costs more, and no room could be made in it"
SMALLER_OPENING = (
    "Give the step less to begin with (its prompt, the handoff that it is shown, the issue's text), or choose a "
    "`model` with a larger context window"
)
AGAIN_SHORTER = "Your answer was cut off at the output limit. Send the whole answer again, shorter."
#: Calls and characters of the summary that a step begins again with.
_CALLS_SHOWN, _INPUT_SHOWN, _WORDS_SHOWN = 12, 160, 1_500


class ConversationEnded(Exception):
    """The step begins again in a new conversation; the event says why, and what was done in this one."""

    def __init__(self, event: ContextOverflowed | ModelChanged) -> None:
        super().__init__(event.reason)
        self.event = event


@dataclass(kw_only=True)
class Conversation:
    """An open conversation. `request` holds everything said so far; `texts` the assistant's texts, in order;
    `in_words` says that the answer's form is described in messages, `described_schema` which one was described last;
    `is_cut` says that the last answer was cut off, `has_room` that the service has left old results out of it,
    `near_price_step` that its next request may cost more for each token.

    While it `may_shorten`, an answer that was cut off is asked for again, at the cost of a format retry.
    """

    context: FlowContext
    request: ModelRequest
    texts: list[str] = field(default_factory=list)
    in_words: bool = False
    described_schema: JsonObject | None = None
    may_shorten: bool = True
    is_cut: bool = False
    has_room: bool = False
    near_price_step: bool = False

    def say(self, text: str, *, format_retry: bool = False, errors: tuple[str, ...] = ()) -> None:
        """Add a message of the engine's, with the answer's form where only words describe it."""
        schema = self.request.schema
        if self.in_words and schema is not None and schema != self.described_schema:
            text, self.described_schema = f"{text}\n\n{answer_form(schema)}", schema
        self.context.record(UserMessage(text=text, format_retry=format_retry, errors=list(errors)))
        self._add("user", (text_block(text),))

    def correct(self, text: str, errors: tuple[str, ...]) -> None:
        """Ask for the answer again, at the cost of a format retry."""
        self.request = replace(self.request, corrects_in_words=self.in_words)
        self.say(text, format_retry=True, errors=errors)

    def learn(self, answer: JsonObject | None) -> None:
        """Describe the answer's form in words from here on, when the last answer shows that the service does not heed
        the schema it was given. The request itself stays as it is until the next conversation."""
        automatic = self.context.facts.structured_output is StructuredOutput.AUTO
        if not automatic or self.in_words or self.is_cut or self.request.schema is None:
            return
        if answer is not None and has_shape(answer, self.request.schema):
            return
        got = "the service answered in prose" if answer is None else "the answer does not have the shape"
        self._record_adapted(Remedy.ASK_IN_WORDS, f"{got} where output_config asked for JSON", by_fault=False)
        self.in_words = True

    def ask(self, question: str, schema: JsonObject) -> str:
        """One more question with an answer schema of its own; its answer is taken as it comes."""
        self.request = replace(self.request, schema=schema, corrects_in_words=False)
        self.may_shorten = False
        self.say(question)
        return self.listen()

    def listen(self) -> str:
        """Let the model work, tools included, until it answers without a tool call; its last text."""
        while True:
            self.context.check_limits()
            if self.near_price_step:
                self.change_model(ClimbCause.PRICE, LONG)
            text = self._take(call_model(self.context, self.request))
            if text is not None:
                return text

    def _take(self, turn: ModelTurn | ModelFault) -> str | None:
        """Add a turn to the conversation, and do what it asks for; None asks the model again."""
        if isinstance(turn, ModelFault):
            self._adapt(turn)
            return None
        self.is_cut = turn.stop_reason is StopReason.MAX_TOKENS
        if turn.stop_reason is StopReason.CONTEXT_EXCEEDED:
            raise self._overflow(FULL, by_fault=False)
        if turn.cleared and not self.has_room:
            self.has_room = True
            tokens = count(turn.cleared.tokens, "token")
            message = f"[Context] the service leaves old tool results out of this long conversation ({tokens})"
            self.context.note("info", message, {"step": self.request.step_id, "results": turn.cleared.results})
        self.near_price_step = turn.near_price_step
        self._add("assistant", turn.content)
        if turn.text:
            self.texts.append(turn.text)
        return self._after(turn)

    def change_model(self, cause: ClimbCause, reason: str) -> None:
        """Leave this conversation to the step's next model, if it has one for this cause."""
        step = self.context.agent.steps[self.request.step_id]
        if change := find_change(self.context, step, cause, reason):
            raise ConversationEnded(replace(change, work=self._describe_work()))

    def _adapt(self, fault: ModelFault) -> None:
        """Change what of a refused request may be changed: nothing that the model has answered to."""
        *answered, last = self.request.messages
        match fault.remedy:
            case Remedy.ASK_IN_WORDS:
                self.in_words, self.described_schema = True, self.request.schema
                if self.request.schema is not None:
                    last = replace(last, content=(*last.content, text_block(answer_form(self.request.schema))))
                self.request = replace(self.request, strategy=Strategy.PROMPT)
            case Remedy.LEAVE_OUT_IMAGES:
                last = without_images(last)
            case Remedy.DROP_THINKING:
                self.request = replace(self.request, drop_thinking=True)
            case Remedy.SHORTEN | None:
                raise self._overflow(fault.reason, by_fault=True)
            case _:
                assert_never(fault.remedy)
        self._record_adapted(fault.remedy, fault.reason, by_fault=True)
        self.request = replace(self.request, messages=(*answered, last))

    def _record_adapted(self, remedy: Remedy, reason: str, *, by_fault: bool) -> None:
        self.context.record(RequestAdapted(model=self.request.model, remedy=remedy, reason=reason, by_fault=by_fault))

    def _overflow(self, reason: str, *, by_fault: bool) -> Exception:
        """The end of this conversation, which does not fit the model."""
        if len(self.request.messages) == 1:
            opening = f'the opening of step "{self.request.step_id}" does not fit the model\'s context window'
            return model_failed(f"{opening}: {reason.rstrip('.')}. {SMALLER_OPENING}")
        step_id, work = self.request.step_id, self._describe_work()
        return ConversationEnded(ContextOverflowed(step_id=step_id, reason=reason, by_fault=by_fault, work=work))

    def _describe_work(self) -> str:
        return _describe_work(self.request.messages, self.texts)

    def _after(self, turn: ModelTurn) -> str | None:
        """What a turn's stop reason leads to; None asks the model again."""
        match turn.stop_reason:
            case StopReason.REFUSAL:
                refusal = str(turn.refusal or Refusal())
                self.change_model(ClimbCause.REFUSAL, refusal)
                raise FlowStopped(Outcome.MODEL_REFUSED, refusal)
            case StopReason.PAUSE_TURN:
                return None
            case _ if turn.tool_uses:
                cut = turn.stop_reason is StopReason.MAX_TOKENS
                with keep_conversation(self.context, self.request):
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
                images=list(result.images),
            )
        )
        return tool_result_block(result)

    def _add(self, role: str, content: tuple[JsonObject, ...]) -> None:
        """Append content. An empty answer leaves no message, so what is said next goes on in the last one."""
        if not content:
            return
        message = Message(role=role, content=content)
        if Remedy.LEAVE_OUT_IMAGES in self.context.state.remedies.get(self.request.model, ()):
            message = without_images(message)
        *before, last = self.request.messages
        if last.role == role:
            message = Message(role=role, content=(*last.content, *message.content))
            self.request = replace(self.request, messages=(*before, message))
        else:
            self.request = replace(self.request, messages=(*before, last, message))


def _describe_work(messages: tuple[Message, ...], texts: list[str]) -> str:
    """What was done in a conversation, for the one that takes its place."""
    calls = [block for message in messages for block in message.content if block.get("type") == "tool_use"]
    counts = Counter(str(call.get("name")) for call in calls)
    used = ", ".join(f"{name} ({count(number, 'call')})" for name, number in counts.items())
    recent = [f"- {call.get('name')} {_shorten(compact(call.get('input') or {}), _INPUT_SHOWN)}" for call in calls]
    parts = []
    if calls:
        shown = recent[-_CALLS_SHOWN:]
        parts.append("\n".join((f"Tools used so far: {used}. The last {count(len(shown), 'call')}:", *shown)))
    if texts:
        parts.append(f"Its last words: {_shorten(texts[-1], _WORDS_SHOWN)}")
    return "\n\n".join(parts)


def _shorten(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"
