"""The conversation of one step attempt: its requests, tool calls and corrections.

It is append-only. Models bind their thinking to everything before it, so every message that the model has answered is
sent again unchanged.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import assert_never

from stepflow.domain import event as events
from stepflow.domain.agent.agent_settings import ClimbCause, ModelChanged
from stepflow.domain.agent.definition import AgentDefinition, Step
from stepflow.domain.conversation import (
    Message,
    ModelFault,
    ModelRequest,
    ModelTurn,
    Refusal,
    Remedy,
    RequestAdapted,
    StopReason,
    ToolCall,
    ToolUse,
    has_images,
    text_block,
    tool_result_block,
    without_images,
)
from stepflow.domain.end import End
from stepflow.domain.flow import FormatError
from stepflow.domain.json import JsonObject, compact
from stepflow.domain.text import count, cut
from stepflow.domain.words import Outcome, Strategy, StructuredOutput
from stepflow.engine.cache_renewal import NO_MESSAGE, keep_conversation
from stepflow.engine.context import CachedRequest, FlowContext, FlowStopped
from stepflow.engine.gate import describe_misfit, has_shape, parse_answer
from stepflow.engine.prompt.render import answer_form, correction_message
from stepflow.engine.resumption import misfit

CUT_OFF = (
    "The answer was cut off at the output limit before the call was complete, so nothing ran. Send a shorter call."
)
FULL = "the model's context window was full before its answer was complete"
SMALLER_OPENING = (
    "Shorten what the step starts with (its prompt, the handoff that it is shown, the issue's text), or choose a "
    "`model` with a larger context window"
)
AGAIN_SHORTER = "Your answer was cut off at the output limit. Send the whole answer again, shorter."
_CUT_OFF = (
    "it was cut off at the limit of one answer, thinking included; raise `maxOutputTokens` of the step or of "
    "`runner.flow` in agent.json"
)
#: Limits of the summary with which a step starts over: tool calls, characters of each input, characters of the last
#: text.
_CALLS_SHOWN, _INPUT_SHOWN, _WORDS_SHOWN = 12, 160, 1_500

#: Tries of one model call. The first wait, in seconds, doubles with each further try.
MAX_TRIES = 5
FIRST_WAIT = 5.0
#: The longest wait, in seconds, that a service may ask of a run without a deadline.
LONGEST_ASKED = 3600.0
#: Seconds that an answer in progress may take past the deadline: it is billed anyway.
ANSWER_GRACE = 30.0


class ConversationEnded(Exception):
    """The step starts over in a new conversation. `event` says why and summarizes the work done in this one."""

    def __init__(self, event: events.ContextOverflowed | ModelChanged) -> None:
        super().__init__(event.reason)
        self.event = event


#: The form of the answer to a check question.
CHECK_SCHEMA: JsonObject = {
    "type": "object",
    "required": ["result"],
    "properties": {
        "result": {"type": "string", "enum": ["ok", "ng"], "description": "ok: everything holds; ng: something fails"},
        "message": {"type": "string", "description": "what was found, in a sentence"},
    },
}
INTERRUPTED = (
    "Interrupted; it may have run. The working tree is as it was before this call; what the call did elsewhere may "
    "have happened. Look before you repeat it."
)


@dataclass(kw_only=True)
class Conversation:
    """The conversation of one attempt of `step`: its events, added up. `request` holds all messages so far."""

    context: FlowContext
    step: Step
    request: ModelRequest
    #: The assistant's texts, in order.
    texts: list[str] = field(default_factory=list)
    #: The last JSON object among the answers that another message of the engine has followed.
    rejected: JsonObject | None = None
    #: Messages describe the form of the answer; the API's structured output does not.
    in_words: bool = field(init=False)
    #: Whether the last answer was asked for in words.
    was_in_words: bool = field(init=False)
    #: The schema that a message described last.
    described_schema: JsonObject | None = field(init=False)
    #: The question of the step's check was asked. Its answer is not asked for again when it is cut off.
    has_question: bool = False
    #: The service has dropped old tool results from this conversation.
    is_cleared: bool = False
    #: The last turn, until a message answers it; and its tool calls that have no result yet.
    turn: ModelTurn | None = None
    calls: tuple[ToolUse, ...] = ()
    #: The last answer was cut off at the output limit.
    is_cut: bool = False

    def __post_init__(self) -> None:
        self.in_words = self.was_in_words = self.request.strategy is Strategy.PROMPT
        self.described_schema = self.request.schema if self.in_words else None

    @property
    def cut_note(self) -> str:
        """Say that the last answer was cut off, as the end of a sentence about it; empty if it was not."""
        return f"; {_CUT_OFF}" if self.is_cut else ""

    def recall(self) -> None:
        """Add what the journal already has of this conversation."""
        while event := self.context.recall(ModelTurn, ToolCall, events.UserMessage, RequestAdapted):
            self._add(event)
        ended = self.context.written.next
        if isinstance(ended, events.ContextOverflowed | ModelChanged):
            raise ConversationEnded(ended)

    def listen(self) -> str:
        """Do what the last message needs, until it is an answer: ask the model, or call tools. Return its text."""
        while True:
            turn = self.turn
            if turn is None or turn.stop_reason is StopReason.PAUSE_TURN:
                self._ask_model()
                continue
            match turn.stop_reason:
                case StopReason.CONTEXT_EXCEEDED:
                    raise self._end_overflowed(FULL, by_fault=False)
                case StopReason.REFUSAL:
                    refusal = str(turn.refusal or Refusal())
                    self.change_model(ClimbCause.REFUSAL, refusal)
                    raise FlowStopped(End(outcome=Outcome.MODEL_REFUSED, reason=refusal))
                case _ if self.calls:
                    self.context.written.demand_none_before(ToolCall.event)
                    with keep_conversation(self.context, self.request):
                        for use in self.calls:
                            self._run_tool(use)
                case StopReason.MAX_TOKENS if self._may_shorten:
                    self._say(AGAIN_SHORTER, format_retry=True)
                case _:
                    return turn.text

    @property
    def _may_shorten(self) -> bool:
        return not self.has_question and self.context.state.format_retries < self.step.format_retries

    def correct(self, errors: tuple[FormatError, ...]) -> None:
        """Ask for the answer again, at the cost of a format retry."""
        self._say(correction_message(errors), format_retry=True, errors=tuple(map(str, errors)))

    def check_schema_support(self, answer: JsonObject | None) -> None:
        """Describe the form of the answer in words from now on if the last answer shows that the service ignores the
        schema. Requests keep the schema until the next conversation."""
        automatic = self.context.facts.structured_output is StructuredOutput.AUTO
        if not automatic or self.in_words or self.is_cut or self.request.schema is None:
            return
        if answer is not None and has_shape(answer, self.request.schema):
            return
        symptom = "the service answered in prose" if answer is None else "the answer does not have the shape"
        self._adapt(Remedy.ASK_IN_WORDS, f"{symptom} where output_config asked for JSON", by_fault=False)

    def ask(self, question: str) -> str:
        """Ask the question of the step's check. Its answer gets no format retry."""
        if not self.has_question:
            self.request = replace(self.request, schema=CHECK_SCHEMA)
            self._say(question)
        return self.listen()

    def give_up(self, errors: tuple[FormatError, ...]) -> None:
        """Hand over to the step's next model; without one, the flow continues with the answer that does not fit."""
        self.change_model(ClimbCause.FORMAT, describe_misfit(errors))
        note_misfit(self.context, self.step, errors)

    def change_model(self, cause: ClimbCause, reason: str) -> None:
        """End this conversation in favor of the step's next model, if it has one for this cause."""
        if change := self.context.find_change(self.step, cause, reason):
            raise ConversationEnded(replace(change, work=_describe_work(self.request.messages, self.texts)))

    def _add(self, event: events.Event) -> None:
        """Add an event. Raises `InputError` if nothing can lead to it, as in a journal that was changed."""
        match event:
            case ModelTurn():
                self._add_turn(event)
            case ToolCall():
                self._add_call(event)
            case events.UserMessage():
                self._add_message(event)
            case RequestAdapted():
                self._add_remedy(event.remedy, by_fault=event.by_fault)
            case _:
                raise misfit(event, ModelTurn.event)

    def _ask_model(self) -> None:
        context = self.context
        context.written.demand_none_before(ModelTurn.event)
        context.check_limits()
        answer = call_model(context, self.request)
        if isinstance(answer, ModelFault):
            self._adapt_request(answer)
            return
        if answer.cleared and not self.is_cleared:
            tokens = count(answer.cleared.tokens, "token")
            message = f"[Context] the service drops old tool results from this long conversation ({tokens})"
            context.note("info", message, {"step": self.step.id, "results": answer.cleared.results})
        self._add_turn(answer)

    def _add_turn(self, turn: ModelTurn) -> None:
        self.turn, self.calls = turn, turn.tool_uses
        self.was_in_words = self.in_words
        self.is_cut = turn.stop_reason is StopReason.MAX_TOKENS
        self.is_cleared = self.is_cleared or turn.cleared is not None
        if turn.stop_reason is StopReason.CONTEXT_EXCEEDED:
            return
        self._append("assistant", turn.content)
        if turn.text:
            self.texts.append(turn.text)

    def _run_tool(self, use: ToolUse) -> None:
        written = self.context.written
        if written.interrupted_call == use.tool_use_id:
            written.interrupted_call = ""
            call = ToolCall(**vars(use), output=INTERRUPTED, is_error=True)
        elif use.name not in {tool.name for tool in self.request.tools}:
            allowed = ", ".join(tool.name for tool in self.request.tools) or "none"
            denial = f'Step "{self.step.id}" may not use a tool "{use.name}". Its tools: {allowed}.'
            call = ToolCall(**vars(use), output=denial, is_error=True, denied=True)
        elif self.is_cut:
            call = ToolCall(**vars(use), output=CUT_OFF, is_error=True)
        else:
            call = read_skill(self.context.agent, use) or self.context.ports.tools.run_tool(use)
        self._add_call(self.context.record(call))

    def _add_call(self, call: ToolCall) -> None:
        if not self.calls or self.calls[0].tool_use_id != call.tool_use_id:
            raise misfit(call, ModelTurn.event)
        self.calls = self.calls[1:]
        self._append("user", (tool_result_block(call),))
        if not self.calls:
            self.turn = None

    def _say(self, text: str, *, format_retry: bool = False, errors: tuple[str, ...] = ()) -> None:
        """Add a message from the engine, with the form of the answer if that is described in words and has changed."""
        schema = self.request.schema
        if self.in_words and schema is not None and schema != self.described_schema:
            text = f"{text}\n\n{answer_form(schema)}"
        said = events.UserMessage(text=text, format_retry=format_retry, errors=list(errors))
        self._add_message(self.context.record(said))

    def _add_message(self, said: events.UserMessage) -> None:
        if self.turn is None or self.calls:
            raise misfit(said, ModelTurn.event)
        if said.errors or not said.format_retry:
            is_only = self.request.schema is not None and self.was_in_words
            answer = parse_answer(self.turn.text, is_only=is_only).answer
            self.rejected = self.rejected if answer is None else answer
        if not said.format_retry:
            self.has_question = True
            self.request = replace(self.request, schema=CHECK_SCHEMA, corrects_in_words=False)
        elif said.errors:
            self.request = replace(self.request, corrects_in_words=self.in_words)
        if self.in_words:
            self.described_schema = self.request.schema
        self._append("user", (text_block(said.text),))
        self.turn = None

    def _adapt_request(self, fault: ModelFault) -> None:
        """Adapt a refused request."""
        if fault.remedy in (Remedy.SHORTEN, None):
            raise self._end_overflowed(fault.reason, by_fault=True)
        self._adapt(fault.remedy, fault.reason, by_fault=True)

    def _adapt(self, remedy: Remedy, reason: str, *, by_fault: bool) -> None:
        model = self.request.model
        adapted = RequestAdapted(model=model, remedy=remedy, reason=reason, by_fault=by_fault)
        self.context.record(adapted)
        self._add_remedy(remedy, by_fault=by_fault)

    def _add_remedy(self, remedy: Remedy, *, by_fault: bool) -> None:
        match remedy:
            case Remedy.ASK_IN_WORDS if not by_fault:
                self.in_words = True
            case Remedy.ASK_IN_WORDS:
                self.in_words, self.described_schema = True, self.request.schema
                self.request = replace(self.request, strategy=Strategy.PROMPT)
                if self.request.schema is not None:
                    self._append("user", (text_block(answer_form(self.request.schema)),))
            case Remedy.LEAVE_OUT_IMAGES:
                # The model has answered all other messages.
                *answered, last = self.request.messages
                self.request = replace(self.request, messages=(*answered, without_images(last)))
            case Remedy.DROP_THINKING:
                self.request = replace(self.request, drop_thinking=True)
            case Remedy.SHORTEN:
                pass
            case _:
                assert_never(remedy)

    def _end_overflowed(self, reason: str, *, by_fault: bool) -> Exception:
        """Return the exception that ends this conversation, which is too long for the model."""
        if len(self.request.messages) == 1:
            opening = f'the opening of step "{self.step.id}" does not fit the model\'s context window'
            return model_failed(f"{opening}: {reason.rstrip('.')}. {SMALLER_OPENING}")
        step_id, work = self.step.id, _describe_work(self.request.messages, self.texts)
        return ConversationEnded(events.ContextOverflowed(step_id=step_id, reason=reason, by_fault=by_fault, work=work))

    def _append(self, role: str, content: tuple[JsonObject, ...]) -> None:
        """Append content, to the last message if that has the same role: an empty answer leaves no message of its
        own."""
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


def note_misfit(context: FlowContext, step: Step, errors: tuple[FormatError, ...]) -> None:
    """Log that the flow continues with an answer that does not fit."""
    context.note("warning", f'[Format] giving up on step "{step.id}"', {"errors": [str(error) for error in errors]})


def call_model(context: FlowContext, request: ModelRequest) -> ModelTurn | ModelFault:
    """Call the model; wait and retry on transient faults, within the run's limits. A returned fault has a remedy that
    applies to this request; any other ends the run."""
    for attempt in range(1, MAX_TRIES + 1):
        started = context.ports.clock.now()
        remaining = _seconds_left(context, started)
        timeout = None if remaining is None else remaining + ANSWER_GRACE
        answer = context.ports.model.ask(replace(request, seconds=timeout))
        if isinstance(answer, ModelTurn):
            if answer.usage.cache_read_tokens or answer.usage.cache_write_tokens:
                # The step's next conversation will share this opening.
                opening = replace(request, messages=(NO_MESSAGE,))
                context.cached[request.step_id] = CachedRequest(request=opening, used_at=started)
            turn = replace(answer, seconds=max(0.0, context.ports.clock.now() - started))
            context.record(turn)
            return turn
        if answer.usage.total:
            context.record(events.AnswerLost(reason=answer.reason, usage=answer.usage, cost_usd=answer.cost_usd))
        if answer.remedy is not None and can_apply(answer.remedy, request):
            return answer
        if not answer.transient or attempt == MAX_TRIES:
            raise model_failed(_describe_fault(answer, f" ({attempt} tries)" if attempt > 1 else ""))
        _wait(context, answer, attempt)
    raise AssertionError("unreachable: the last try returns")


def can_apply(remedy: Remedy, request: ModelRequest) -> bool:
    """Whether the remedy can change this request. Only the last message may lose its images: the model has answered all
    others."""
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
    """Return the exception that ends a run whose model gives no answer."""
    return FlowStopped(End(outcome=Outcome.MODEL_FAILED, reason=reason))


def _wait(context: FlowContext, fault: ModelFault, attempt: int) -> None:
    context.check_limits()
    left = _seconds_left(context, context.ports.clock.now())
    retry_after = fault.retry_after
    if retry_after is not None and retry_after > (LONGEST_ASKED if left is None else left):
        longest = f"a run without a deadline waits {LONGEST_ASKED:.0f} s at most"
        if left is not None:
            longest = f"only {left:.0f} s are left before the deadline (limits.minutes)"
        raise model_failed(_describe_fault(fault, f". It asks to wait {retry_after:.0f} s, but {longest}"))
    seconds = FIRST_WAIT * 2 ** (attempt - 1) if retry_after is None else retry_after
    seconds = seconds if left is None else min(seconds, left)
    context.record(
        events.ModelWaited(reason=fault.reason, seconds=seconds, attempt=attempt, tries=MAX_TRIES, deadline_in=left)
    )
    context.ports.clock.sleep(seconds)
    context.check_limits()


def _seconds_left(context: FlowContext, now: float) -> float | None:
    deadline = context.facts.limits.deadline
    return None if deadline is None else max(0.0, deadline - now)


def _describe_fault(fault: ModelFault, suffix: str) -> str:
    return f"{fault.reason.rstrip('.')}{suffix}{'. ' + fault.hint if fault.hint else ''}"


def read_skill(agent: AgentDefinition, use: ToolUse) -> ToolCall | None:
    """Answer a call of `read` for the address of a skill's file; None for any other call. The text was loaded with the
    definition, so no change in the checkout reaches it."""
    wanted = str(use.input.get("file_path", ""))
    if use.name != "read" or not agent.skills or not wanted.startswith("skill://"):
        return None
    texts = {skill.address(file): text for skill in agent.skills for file, text in skill.files.items()}
    if wanted not in texts:
        text = f"{wanted}: does not exist; the files are {', '.join(texts)}"
        return ToolCall(**vars(use), output=text, is_error=True)
    text = texts[wanted]
    match use.input.get("view_range"):
        case [int(first), int(last)]:
            text = "".join(text.splitlines(keepends=True)[max(first, 1) - 1 : last if last > 0 else None])
    return ToolCall(**vars(use), output=text)


def _describe_work(messages: tuple[Message, ...], texts: list[str]) -> str:
    """Summarize the work done in a conversation for the one that replaces it."""
    calls = [block for message in messages for block in message.content if block.get("type") == "tool_use"]
    counts = Counter(str(call.get("name")) for call in calls)
    used = ", ".join(f"{name} ({count(number, 'call')})" for name, number in counts.items())
    recent = [f"- {call.get('name')} {cut(compact(call.get('input') or {}), _INPUT_SHOWN)}" for call in calls]
    parts = []
    if calls:
        last = recent[-_CALLS_SHOWN:]
        parts.append("\n".join((f"Tools used so far: {used}. The last {count(len(last), 'call')}:", *last)))
    if texts:
        parts.append(f"Its last words: {cut(texts[-1], _WORDS_SHOWN)}")
    return "\n\n".join(parts)
