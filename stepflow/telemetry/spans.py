"""The trace of a run, as data, made from the events of its journal.

Names are those of OpenTelemetry's semantic conventions for generative AI, v0.1.0. What they do not name begins with
`stepflow.`. Without `content`, nothing that the model or an issue's author wrote is in it; with it, prompts, answers
and tool calls are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256

from stepflow.domain import event as events
from stepflow.domain.agent.agent_settings import ModelChanged, Rung
from stepflow.domain.checkout import CommandResult
from stepflow.domain.conversation import ModelTurn, RequestAdapted, ToolCall, Usage
from stepflow.domain.effect import ApprovalAnswered, ApprovalAsked, EffectStatus
from stepflow.domain.json import JsonObject, JsonValue, value_at
from stepflow.domain.text import cut
from stepflow.domain.words import Provider, exit_code

#: Characters of one text. Collectors limit the size of a request.
MOST_CONTENT = 8_000


class ContentCollector:
    """Follows the conversations of a run. A call of the model has what is new since the one before it."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        self._redact = redact
        self._system = ""
        self._given = list[JsonObject]()

    def follow(self, event: events.Event) -> None:
        """Remember what the next call of the model is given."""
        match event:
            case events.PromptRendered():
                self._system = event.system
                self._given = [_message("user", map(self._part, event.blocks))]
            case events.UserMessage():
                self._given.append(_message("user", [self._part(event.text)]))
            case ToolCall():
                response = self.shorten(event.output)
                part: JsonObject = {"type": "tool_call_response", "id": event.tool_use_id, "response": response}
                self._given.append(_message("tool", [part]))
            case _:
                pass

    def of_turn(self, turn: ModelTurn) -> dict[str, str]:
        """Return the attributes of a call."""
        parts = [part for block in turn.content if (part := self._answer_part(block))]
        answer = {**_message("assistant", parts), "finish_reason": turn.stop_reason}
        given, self._given = self._given, []
        return {
            "gen_ai.system_instructions": json.dumps([self._part(self._system)], ensure_ascii=False),
            "gen_ai.input.messages": json.dumps(given, ensure_ascii=False),
            "gen_ai.output.messages": json.dumps([answer], ensure_ascii=False),
        }

    def of_tool(self, call: ToolCall) -> dict[str, str]:
        """Return the attributes of a tool call."""
        arguments = json.dumps(call.input, ensure_ascii=False)
        return {
            "gen_ai.tool.call.arguments": self.shorten(arguments),
            "gen_ai.tool.call.result": self.shorten(call.output),
        }

    def shorten(self, text: str) -> str:
        """Return the text without secrets, cut only then, so that no half of one is left."""
        return cut(self._redact(text), MOST_CONTENT)

    def _part(self, text: str) -> JsonObject:
        return {"type": "text", "content": self.shorten(text)}

    def _answer_part(self, block: JsonObject) -> JsonObject | None:
        """Return a block of an answer in the conventions' form. Signatures and encrypted thinking are left out."""
        match block:
            case {"type": "text", "text": str(text)}:
                return self._part(text)
            case {"type": "thinking", "thinking": str(text)}:
                return {**self._part(text), "type": "reasoning"}
            case {"type": "tool_use"}:
                arguments: JsonValue = self.shorten(json.dumps(block.get("input"), ensure_ascii=False))
                return {"type": "tool_call", "id": block.get("id"), "name": block.get("name"), "arguments": arguments}
            case _:
                return None


def _message(role: str, parts: Iterable[JsonObject]) -> JsonObject:
    return {"role": role, "parts": list(parts)}


Value = str | bool | int | float | tuple[str, ...]
Attributes = Mapping[str, Value]

OPERATION, AGENT, PROVIDER = "gen_ai.operation.name", "gen_ai.agent.name", "gen_ai.provider.name"
REQUEST_MODEL, RESPONSE_MODEL = "gen_ai.request.model", "gen_ai.response.model"
TOOL, ERROR = "gen_ai.tool.name", "error.type"
INPUT_TOKENS, OUTPUT_TOKENS = "gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"
CACHE_READ, CACHE_WRITE = "gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cache_write.input_tokens"
COST, DIGEST, OUTCOME = "stepflow.cost.usd", "stepflow.definition.digest", "stepflow.outcome"
INVOKE_AGENT, CHAT, EXECUTE_TOOL = "invoke_agent", "chat", "execute_tool"

#: The names of model providers in the conventions, and one of our own for scenarios.
PROVIDERS: Mapping[str, str] = {
    Provider.ANTHROPIC: "anthropic",
    Provider.BEDROCK: "aws.bedrock",
    Provider.VERTEX: "gcp.vertex_ai",
    Provider.FOUNDRY: "azure.ai.inference",
    Provider.SCRIPTED: "stepflow.scripted",
}
#: Characters of a name that the model may have made up, such as that of a tool.
MOST_NAME = 64
#: Changes inside a step, and of the run as a whole, which become events of their span.
_IN_STEP = (events.ModelWaited, events.ContextOverflowed, events.SchemaFailed, ModelChanged, RequestAdapted)
_IN_RUN = (events.RunResumed, events.EffectPlanned, ApprovalAsked, ApprovalAnswered)


@dataclass(frozen=True, kw_only=True)
class SpanEvent:
    """Something that happened during a span. Times are in seconds since the epoch."""

    name: str
    time: float
    attributes: Attributes = field(default_factory=dict)


@dataclass(kw_only=True)
class RunSpan:
    """One piece of work. `number` identifies it in the run: that of the journal's entry in which it begins or, without
    one, ends. `ended` is the number of the last entry that belongs to it."""

    number: int
    parent: RunSpan | None
    ended: int
    name: str
    start: float
    end: float
    attributes: dict[str, Value] = field(default_factory=dict)
    #: Why it failed, in one word; empty if it did not.
    error: str = ""
    #: The same in a sentence.
    description: str = ""
    events: list[SpanEvent] = field(default_factory=list)


@dataclass(kw_only=True)
class RunTrace:
    """The spans of one run; the first is the run itself. Without a started run there is none."""

    spans: list[RunSpan] = field(default_factory=list)
    repository: str = ""
    run_id: str = ""
    #: The number and the time of the entry with which the last process took over the run; 0 for a run of one process.
    resumed: int = 0
    resumed_at: float = 0.0

    @property
    def trace_id(self) -> int:
        """The same for every export of the run, also after it was resumed."""
        return int.from_bytes(self._digest("")[:16])

    def span_id(self, number: int) -> int:
        """Return the id of a span of this trace, by its number."""
        return int.from_bytes(self._digest(str(number))[:8])

    def _digest(self, what: str) -> bytes:
        return sha256("\0".join((self.repository, self.run_id, what)).encode()).digest()


def build_trace(
    entries: Iterable[events.Entry], *, content: bool | None = None, redact: Callable[[str], str] = str
) -> RunTrace:
    """Build the trace of a journal. With `content`, prompts, answers and tool calls are included; None means as the
    run's own input said."""
    builder = _TraceBuilder(content=content, redact=redact)
    for entry in entries:
        builder.add(entry)
    return builder.trace


class _TraceBuilder:
    """Follows a journal. Each entry ends what began after the one before it, unless it says how long that took."""

    def __init__(self, *, content: bool | None, redact: Callable[[str], str]) -> None:
        self._with_content, self._redact = content, redact
        self._content: ContentCollector | None = None
        self.trace = RunTrace()
        self._run: RunSpan | None = None
        self._step: RunSpan | None = None
        self._seq, self._began, self._before, self._at = 0, 0.0, 0.0, 0.0
        self._provider, self._rung = "", Rung(model="")
        #: When the model's call that is being tried again began.
        self._asked: float | None = None
        self._tools: dict[str, RunSpan] = {}
        self._usage, self._cost, self._unpriced = Usage(), 0.0, False

    def add(self, entry: events.Entry) -> None:
        """Follow one entry."""
        self._seq, self._before, self._at = entry.seq, self._at or entry.time, entry.time
        self._began = self._began or entry.time
        if isinstance(entry.event, events.RunStarted) and not self._run:
            self._run = self._start(entry.event)
        if self._run:
            self._follow_run(self._run, entry.event)
            self._follow_step(self._step or self._run, entry.event)
            if self._content:
                self._content.follow(entry.event)
            self._cover(self._run)

    def _start(self, started: events.RunStarted) -> RunSpan:
        self._provider = PROVIDERS.get(str(value_at(started.options, "model.provider")), "")
        self.trace.repository, self.trace.run_id = started.repository, started.run_id
        asked = value_at(started.options, "telemetry.content") is True
        if asked if self._with_content is None else self._with_content:
            self._content = ContentCollector(self._redact)
        attributes = {
            OPERATION: INVOKE_AGENT,
            AGENT: started.agent,
            "gen_ai.conversation.id": started.run_id,
            DIGEST: started.definition_digest,
            "stepflow.issue": started.issue,
            "vcs.ref.base.revision": started.base_commit,
        }
        return self._add(None, f"{INVOKE_AGENT} {started.agent}", attributes, start=self._began)

    def _follow_run(self, run: RunSpan, event: events.Event) -> None:
        match event:
            case events.RunResumed():
                self.trace.resumed, self.trace.resumed_at, self._asked = self._seq, self._at, None
                run.error = run.description = ""
                self._update(run, {OUTCOME: ""})
            case events.IterationStarted():
                self._begin_step(run, event)
            case events.BaseChecked():
                self._add_check(run, event, {"stepflow.validator.base": True}, "failed")
            case events.EffectApplied():
                failed = "failed" if event.status is EffectStatus.FAILED else ""
                facts = {"stepflow.effect.kind": str(event.kind), "stepflow.effect.status": str(event.status)}
                self._add(run, f"effect {event.kind}", facts, error=failed)
            case events.FailureReported():
                self._add(run, "effect failure_report", {"stepflow.effect.kind": "failure_report"})
            case events.FlowEnded():
                self._update(run, {"stepflow.validated": event.validated})
            case events.RunFinished():
                run.error = event.outcome if exit_code(event.outcome) else ""
                # The reason may quote the model.
                run.description = self._content.shorten(event.reason) if self._content and run.error else ""
                self._update(run, {OUTCOME: event.outcome})
            case _ if isinstance(event, _IN_RUN):
                self._note(run, event)
            case _:
                pass

    def _begin_step(self, run: RunSpan, begun: events.IterationStarted) -> None:
        self._rung, self._asked = Rung(model=begun.model, effort=begun.effort), None
        attributes = {
            "stepflow.step.id": begun.step_id,
            "stepflow.step.kind": begun.kind,
            "stepflow.iteration": begun.iteration,
            "gen_ai.request.max_tokens": begun.max_output_tokens,
        }
        self._step = self._add(run, f"step {begun.step_id}", attributes, start=self._at)
        self._update(run, {"stepflow.iterations": begun.iteration})

    def _follow_step(self, step: RunSpan, event: events.Event) -> None:  # noqa: PLR0912 - one case per event is the table
        match event:
            case ModelTurn():
                self._add_turn(step, event)
            case events.AnswerLost():
                self._add_call(step, event, self._asked or self._before, {}, error="answer_lost")
            case events.CacheRenewed():
                failed = "failed" if event.problem else ""
                self._add_call(step, event, self._at - event.seconds, {"stepflow.cache_renewal": True}, error=failed)
            case events.ToolStarted():
                self._tools[event.tool_use_id] = self._add_tool(step, event, self._at, "interrupted")
            case ToolCall():
                self._end_tool(step, event)
            case CommandResult():
                failed = "timed_out" if event.timed_out else "failed" if event.exit_code or not event.started else ""
                exited = {"process.exit.code": event.exit_code if event.started else None}
                self._add(step, f"command {event.step_id}", exited, start=self._at - event.seconds, error=failed)
            case events.ValidatorRan():
                self._add_check(step, event, {"stepflow.validator.attempt": event.attempt}, event.pattern or "failed")
            case events.StepAnswered():
                self._update(step, {"stepflow.step.intent": event.intent})
            case events.Routed():
                self._update(step, {"stepflow.step.transition": event.transition})
            case _ if isinstance(event, _IN_STEP):
                if isinstance(event, events.ModelWaited):
                    self._asked = self._asked or self._before
                if isinstance(event, ModelChanged):
                    self._rung = Rung.parse(event.to)
                self._note(step, event)
            case _:
                pass

    def _add_turn(self, step: RunSpan, turn: ModelTurn) -> None:
        answered: dict[str, Value] = {
            RESPONSE_MODEL: turn.model,
            "gen_ai.response.finish_reasons": (turn.stop_reason,),
        }
        if self._content:
            answered |= self._content.of_turn(turn)
        self._add_call(step, turn, min(self._asked or self._at, self._at - turn.seconds), answered)

    def _add_call(
        self,
        step: RunSpan,
        paid: ModelTurn | events.AnswerLost | events.CacheRenewed,
        start: float,
        more: Mapping[str, Value],
        *,
        error: str = "",
    ) -> None:
        usage, self._asked = paid.usage, None
        self._usage, self._unpriced = self._usage + usage, self._unpriced or paid.cost_usd is None
        self._cost += paid.cost_usd or 0.0
        call = {
            OPERATION: CHAT,
            PROVIDER: self._provider,
            REQUEST_MODEL: self._rung.model,
            "gen_ai.request.reasoning.level": self._rung.effort,
            **_tokens(usage),
            COST: paid.cost_usd,
            **more,
        }
        self._add(step, f"{CHAT} {self._rung.model}", call, start=start, error=error)
        self._update(self.trace.spans[0], {**_tokens(self._usage), COST: None if self._unpriced else self._cost})

    def _add_tool(self, step: RunSpan, tool: events.ToolStarted | ToolCall, start: float, error: str) -> RunSpan:
        name = cut(tool.name, MOST_NAME)
        call = {"gen_ai.tool.type": "function", "gen_ai.tool.call.id": tool.tool_use_id}
        attributes = {OPERATION: EXECUTE_TOOL, TOOL: name, **call}
        return self._add(step, f"{EXECUTE_TOOL} {name}", attributes, start=start, error=error)

    def _end_tool(self, step: RunSpan, call: ToolCall) -> None:
        span = self._tools.pop(call.tool_use_id, None) or self._add_tool(step, call, self._at - call.seconds, "")
        span.error = "denied" if call.denied else "failed" if call.is_error else ""
        content = self._content.of_tool(call) if self._content else {}
        self._update(span, {"process.exit.code": call.exit_code, **content})

    def _add_check(
        self,
        parent: RunSpan,
        ran: events.BaseChecked | events.ValidatorRan,
        more: Mapping[str, Value],
        error: str,
    ) -> None:
        facts = {"stepflow.validator.name": ran.name, "stepflow.validator.passed": ran.passed, **more}
        facts["process.exit.code"] = ran.exit_code
        failed, start = "" if ran.passed else error, self._at - ran.seconds
        self._add(parent, f"validate {ran.name}", facts, start=start, error=failed)

    def _note(self, span: RunSpan, event: events.Event) -> None:
        """Add the event to a span, with those of its fields that no model and no service has written."""
        names = ("seconds", "attempt", "kind", "by_fault", "cause", "remedy", "from_seq")
        facts = {f"stepflow.{name}": getattr(event, name) for name in names if hasattr(event, name)}
        span.events.append(SpanEvent(name=f"stepflow.{event.event}", time=self._at, attributes=self._clean(facts)))
        self._cover(span)

    def _add(
        self,
        parent: RunSpan | None,
        name: str,
        attributes: Mapping[str, Value | None],
        *,
        start: float | None = None,
        error: str = "",
    ) -> RunSpan:
        """Add a span that ends now, and began with the entry before, unless `start` says when."""
        earliest = parent.start if parent else self._began
        begun = self._before if start is None else start
        span = RunSpan(
            number=self._seq,
            parent=parent,
            ended=self._seq,
            name=self._redact(name),
            start=min(max(begun, earliest), self._at),
            end=self._at,
            attributes=self._clean(attributes),
            error=error,
        )
        self.trace.spans.append(span)
        self._cover(span)
        return span

    def _update(self, span: RunSpan, attributes: Mapping[str, Value | None]) -> None:
        """Set attributes of a span; an empty one removes what is there."""
        for name in attributes:
            span.attributes.pop(name, None)
        span.attributes.update(self._clean(attributes))
        self._cover(span)

    def _cover(self, span: RunSpan | None) -> None:
        """Let a span, and those around it, last until now."""
        while span:
            span.end, span.ended = max(span.end, self._at), self._seq
            span = span.parent

    def _clean(self, attributes: Mapping[str, Value | None]) -> dict[str, Value]:
        return {
            name: self._redact_value(value) for name, value in attributes.items() if value is not None and value != ""
        }

    def _redact_value(self, value: Value) -> Value:
        match value:
            case str():
                return self._redact(str(value))
            case tuple():
                return tuple(map(self._redact, value))
            case _:
                return value


def _tokens(usage: Usage) -> dict[str, Value]:
    return {
        INPUT_TOKENS: usage.tokens_in,
        OUTPUT_TOKENS: usage.output_tokens,
        CACHE_READ: usage.cache_read_tokens,
        CACHE_WRITE: usage.cache_write_tokens,
    }
