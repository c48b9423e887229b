"""One step attempt's conversation with the model and its tool loop. It only ever grows: what the model has answered to
is sent again as it was, since models bind their thinking to everything before it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import assert_never

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
    has_images,
    text_block,
    tool_result_block,
    without_images,
)
from stepflow.domain.decision import FormatError
from stepflow.domain.definition import AgentDefinition, Step
from stepflow.domain.event import AnswerLost, ContextOverflowed, ModelTurned, ModelWaited, ToolCalled, UserMessage
from stepflow.domain.json import JsonObject, compact
from stepflow.domain.ladder import ClimbCause, ModelChanged
from stepflow.domain.text import count, cut
from stepflow.domain.words import Outcome, Strategy, StructuredOutput
from stepflow.engine.cache_renewal import keep_conversation, remember_cached
from stepflow.engine.context import FlowContext, FlowStopped
from stepflow.engine.gate import describe_misfit, has_shape
from stepflow.engine.prompt.render import answer_form, correction_message

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

#: So many tries in a row at most. The first wait, in seconds, is doubled for each further one.
MAX_TRIES = 5
FIRST_WAIT = 5.0
#: The longest wait that a service may ask of a run without a deadline.
LONGEST_ASKED = 3600.0
#: An answer that is under way when the deadline passes has this many seconds more: it will be paid for anyhow.
ANSWER_GRACE = 30.0


class ConversationEnded(Exception):
    """The step begins again in a new conversation; the event says why, and what was done in this one."""

    def __init__(self, event: ContextOverflowed | ModelChanged) -> None:
        super().__init__(event.reason)
        self.event = event


@dataclass(kw_only=True)
class Conversation:
    """An open conversation about one attempt of `step`; `request` holds everything said so far.

    While it `may_shorten`, an answer that was cut off is asked for again, at the cost of a format retry.
    """

    context: FlowContext
    step: Step
    request: ModelRequest
    #: The assistant's texts, in order.
    texts: list[str] = field(default_factory=list)
    #: Messages describe the answer's form; the one that was described last.
    in_words: bool = field(init=False)
    described_schema: JsonObject | None = field(init=False)
    may_shorten: bool = True
    #: The last answer was cut off.
    is_cut: bool = False
    #: The service has left old results out of it.
    has_room: bool = False
    #: The next request may cost more for each token.
    near_price_step: bool = False

    def __post_init__(self) -> None:
        self.in_words = self.request.strategy is Strategy.PROMPT
        self.described_schema = self.request.schema if self.in_words else None

    def listen(self) -> str:
        """Let the model work, tools included, until it answers without a tool call; its last text."""
        context = self.context
        while True:
            context.check_limits()
            if self.near_price_step:
                self.change_model(ClimbCause.PRICE, LONG)
            turn = call_model(context, self.request)
            if isinstance(turn, ModelFault):
                self._adapt(turn)
                continue
            self._take(turn)
            match turn.stop_reason:
                case StopReason.REFUSAL:
                    refusal = str(turn.refusal or Refusal())
                    self.change_model(ClimbCause.REFUSAL, refusal)
                    raise FlowStopped(Outcome.MODEL_REFUSED, refusal)
                case StopReason.PAUSE_TURN:
                    continue
                case _ if turn.tool_uses:
                    with keep_conversation(context, self.request):
                        self._add("user", tuple(self._run_tool(use) for use in turn.tool_uses))
                case StopReason.MAX_TOKENS if (
                    self.may_shorten and context.state.format_retries < self.step.format_retries
                ):
                    self._say(AGAIN_SHORTER, format_retry=True)
                case _:
                    return turn.text

    def correct(self, errors: tuple[FormatError, ...]) -> None:
        """Ask for the answer again, at the cost of a format retry."""
        self.request = replace(self.request, corrects_in_words=self.in_words)
        self._say(correction_message(errors), format_retry=True, errors=tuple(map(str, errors)))

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
        self._say(question)
        return self.listen()

    def give_up(self, errors: tuple[FormatError, ...]) -> None:
        """Leave an answer that does not fit to the step's next model; without one, the flow goes on with it."""
        self.change_model(ClimbCause.FORMAT, describe_misfit(errors))
        note_misfit(self.context, self.step, errors)

    def change_model(self, cause: ClimbCause, reason: str) -> None:
        """Leave this conversation to the step's next model, if it has one for this cause."""
        if change := self.context.find_change(self.step, cause, reason):
            raise ConversationEnded(replace(change, work=_describe_work(self.request.messages, self.texts)))

    def _say(self, text: str, *, format_retry: bool = False, errors: tuple[str, ...] = ()) -> None:
        """Add a message of the engine's, with the answer's form where only words describe it."""
        schema = self.request.schema
        if self.in_words and schema is not None and schema != self.described_schema:
            text, self.described_schema = f"{text}\n\n{answer_form(schema)}", schema
        self.context.record(UserMessage(text=text, format_retry=format_retry, errors=list(errors)))
        self._add("user", (text_block(text),))

    def _take(self, turn: ModelTurn) -> None:
        """Add a turn to the conversation."""
        self.is_cut = turn.stop_reason is StopReason.MAX_TOKENS
        if turn.stop_reason is StopReason.CONTEXT_EXCEEDED:
            raise self._overflow(FULL, by_fault=False)
        if turn.cleared and not self.has_room:
            self.has_room = True
            tokens = count(turn.cleared.tokens, "token")
            message = f"[Context] the service leaves old tool results out of this long conversation ({tokens})"
            self.context.note("info", message, {"step": self.step.id, "results": turn.cleared.results})
        self.near_price_step = turn.near_price_step
        self._add("assistant", turn.content)
        if turn.text:
            self.texts.append(turn.text)

    def _run_tool(self, use: ToolUse) -> JsonObject:
        denied = use.name not in {tool.name for tool in self.request.tools}
        if denied:
            allowed = ", ".join(tool.name for tool in self.request.tools) or "none"
            denial = f'Step "{self.step.id}" may not use a tool "{use.name}". Its tools: {allowed}.'
            result = ToolResult(tool_use_id=use.id, text=denial, is_error=True)
        elif self.is_cut:
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
            opening = f'the opening of step "{self.step.id}" does not fit the model\'s context window'
            return model_failed(f"{opening}: {reason.rstrip('.')}. {SMALLER_OPENING}")
        step_id, work = self.step.id, _describe_work(self.request.messages, self.texts)
        return ConversationEnded(ContextOverflowed(step_id=step_id, reason=reason, by_fault=by_fault, work=work))

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


def note_misfit(context: FlowContext, step: Step, errors: tuple[FormatError, ...]) -> None:
    """Log that the flow goes on with an answer that does not fit."""
    context.note("warning", f'[Format] giving up on step "{step.id}"', {"errors": [str(error) for error in errors]})


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
    seconds = FIRST_WAIT * 2 ** (attempt - 1) if retry_after is None else retry_after
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


def read_skill(agent: AgentDefinition, use: ToolUse) -> ToolResult | None:
    """The result of a call of `read` with the address of a skill's file; None for every other call. The text is the
    definition's: no change in the checkout reaches it."""
    wanted = str(use.input.get("file_path", ""))
    if use.name != "read" or not agent.skills or not wanted.startswith("skill://"):
        return None
    texts = {skill.address(file): text for skill in agent.skills for file, text in skill.files.items()}
    if wanted not in texts:
        text = f"{wanted}: does not exist; there are {', '.join(texts)}"
        return ToolResult(tool_use_id=use.id, text=text, is_error=True)
    text = texts[wanted]
    match use.input.get("view_range"):
        case [int(first), int(last)]:
            text = "".join(text.splitlines(keepends=True)[max(first, 1) - 1 : last if last > 0 else None])
    return ToolResult(tool_use_id=use.id, text=text)


def _describe_work(messages: tuple[Message, ...], texts: list[str]) -> str:
    """What was done in a conversation, for the one that takes its place."""
    calls = [block for message in messages for block in message.content if block.get("type") == "tool_use"]
    counts = Counter(str(call.get("name")) for call in calls)
    used = ", ".join(f"{name} ({count(number, 'call')})" for name, number in counts.items())
    recent = [f"- {call.get('name')} {cut(compact(call.get('input') or {}), _INPUT_SHOWN)}" for call in calls]
    parts = []
    if calls:
        shown = recent[-_CALLS_SHOWN:]
        parts.append("\n".join((f"Tools used so far: {used}. The last {count(len(shown), 'call')}:", *shown)))
    if texts:
        parts.append(f"Its last words: {cut(texts[-1], _WORDS_SHOWN)}")
    return "\n\n".join(parts)
