"""The trace of a run, as data, made from the events of its journal.

Names are those of OpenTelemetry's semantic conventions for generative AI, v0.1.0. What they do not name begins with
`stepflow.`. Without `content`, nothing that the model or an issue's author wrote is in it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from hashlib import sha256

from stepflow.domain import event as events
from stepflow.domain.approval import ApprovalAnswered, ApprovalAsked
from stepflow.domain.conversation import RequestAdapted, Usage
from stepflow.domain.effect import EffectStatus
from stepflow.domain.json import JsonObject, JsonValue
from stepflow.domain.ladder import ModelChanged, Rung
from stepflow.domain.text import cut
from stepflow.domain.words import Provider, exit_code

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
#: Characters of one text, such as a tool's output. Collectors limit the size of a request.
MOST_CONTENT = 8_000
#: Characters of a name that the model may have made up, such as that of a tool.
MOST_NAME = 64
#: Changes inside a step, and of the run as a whole, which become events of their span.
_IN_STEP = (events.ModelWaited, events.ContextOverflowed, events.SchemaFailed, ModelChanged, RequestAdapted)
_IN_RUN = (events.RunResumed, events.EffectPlanned, ApprovalAsked, ApprovalAnswered)


class SpanKind(StrEnum):
    """Who does the work of a span: this process, or a service that it calls."""

    INTERNAL = "internal"
    CLIENT = "client"


@dataclass(frozen=True, kw_only=True)
class SpanEvent:
    """Something that happened during a span. Times are in seconds since the epoch."""

    name: str
    time: float
    attributes: Attributes = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class RunSpan:
    """One piece of work. `number` identifies it in the run: that of the journal's entry in which it begins or, without
    one, ends. `ended` is the number of the last entry that belongs to it."""

    number: int
    parent: int | None
    ended: int
    name: str
    start: float
    end: float
    kind: SpanKind = SpanKind.INTERNAL
    attributes: Attributes = field(default_factory=dict)
    #: Why it failed, in one word; empty if it did not.
    error: str = ""
    #: The same in a sentence.
    description: str = ""
    events: tuple[SpanEvent, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RunTrace:
    """The spans of one run; the first is the run itself. Without a started run there is none."""

    spans: tuple[RunSpan, ...] = ()
    repository: str = ""
    #: The number and the time of the entry with which the last process took over the run; 0 for a run of one process.
    resumed: int = 0
    resumed_at: float = 0.0

    @property
    def trace_id(self) -> int:
        """The same for every export of the run, also after it was resumed."""
        return int.from_bytes(self._digest("")[:16])

    def span_id(self, number: int) -> int:
        """The id of a span of this trace, by its number."""
        return int.from_bytes(self._digest(str(number))[:8])

    def _digest(self, what: str) -> bytes:
        root = self.spans[0].attributes
        return sha256("\0".join((self.repository, str(root["gen_ai.conversation.id"]), what)).encode()).digest()


def build_trace(
    entries: Iterable[events.Entry], *, content: bool | None = None, redact: Callable[[str], str] = str
) -> RunTrace:
    """Build the trace of a journal. With `content`, prompts, answers and tool calls are included; None means as the
    run's own input said."""
    builder = _TraceBuilder(content=content, redact=redact)
    for entry in entries:
        builder.add(entry)
    return builder.trace()


class _TraceBuilder:
    """Follows a journal. Each entry ends what began after the one before it, unless it says how long that took."""

    def __init__(self, *, content: bool | None, redact: Callable[[str], str]) -> None:
        self._content, self._redact = content, redact
        self._spans: dict[int, RunSpan] = {}
        self._trace = RunTrace()
        self._root = self._step = 0
        self._began = self._before = self._at = 0.0
        self._seq = 0
        self._provider, self._rung = "", Rung(model="")
        #: When the model's call that is being tried again began.
        self._asked: float | None = None
        self._tools: dict[str, int] = {}
        self._usage, self._cost, self._unpriced = Usage(), 0.0, False
        #: What the next call of the model is given in addition to the conversation so far.
        self._system, self._given = "", list[JsonObject]()

    def trace(self) -> RunTrace:
        """Return the trace so far."""
        return replace(self._trace, spans=tuple(self._spans.values()))

    def add(self, entry: events.Entry) -> None:
        """Follow one entry."""
        self._seq, self._before, self._at = entry.seq, self._at or entry.time, entry.time
        self._began = self._began or entry.time
        if isinstance(entry.event, events.RunStarted) and not self._root:
            self._start(entry.event)
        if not self._root:
            return
        self._follow_run(entry.event)
        self._follow_step(entry.event)
        self._cover(self._root)

    def _start(self, started: events.RunStarted) -> None:
        self._provider = PROVIDERS.get(str(started.options.get("provider", "")), "")
        self._trace = replace(self._trace, repository=started.repository)
        if self._content is None:
            self._content = started.options.get("otel-content") is True
        attributes = {
            OPERATION: INVOKE_AGENT,
            AGENT: started.agent,
            "gen_ai.conversation.id": started.run_id,
            DIGEST: started.definition_digest,
            "stepflow.issue": started.issue,
            "vcs.ref.base.revision": started.base_commit,
        }
        self._root = self._add(f"{INVOKE_AGENT} {started.agent}", attributes, parent=None, start=self._began)

    def _follow_run(self, event: events.Event) -> None:
        match event:
            case events.RunResumed():
                self._trace, self._asked = replace(self._trace, resumed=self._seq, resumed_at=self._at), None
                self._end_run("", "", {OUTCOME: ""})
            case events.IterationStarted():
                self._begin_step(event)
            case events.BaseChecked():
                self._add_check(event, self._root, {"stepflow.validator.base": True}, "failed")
            case events.EffectApplied():
                failed = "failed" if event.status is EffectStatus.FAILED else ""
                facts = {"stepflow.effect.kind": str(event.kind), "stepflow.effect.status": str(event.status)}
                self._add(f"effect {event.kind}", facts, parent=self._root, error=failed)
            case events.FailureReported():
                facts = {"stepflow.effect.kind": "failure_report"}
                self._add("effect failure_report", facts, parent=self._root)
            case events.FlowEnded():
                self._update(self._root, {"stepflow.validated": event.validated})
            case events.RunFinished():
                failed = event.outcome if exit_code(event.outcome) else ""
                self._end_run(failed, event.reason, {OUTCOME: event.outcome})
            case _ if isinstance(event, _IN_RUN):
                self._note(self._root, event)
            case _:
                pass

    def _end_run(self, error: str, reason: str, attributes: Mapping[str, Value]) -> None:
        # The reason may quote the model.
        description = cut(self._redact(reason), MOST_CONTENT) if error and self._content else ""
        self._update(self._root, attributes)
        self._spans[self._root] = replace(self._spans[self._root], error=error, description=description)

    def _begin_step(self, begun: events.IterationStarted) -> None:
        self._rung, self._asked = Rung(model=begun.model, effort=begun.effort), None
        attributes = {
            "stepflow.step.id": begun.step_id,
            "stepflow.step.kind": begun.kind,
            "stepflow.iteration": begun.iteration,
            "gen_ai.request.max_tokens": begun.max_output_tokens,
        }
        self._step = self._add(f"step {begun.step_id}", attributes, parent=self._root, start=self._at)
        self._update(self._root, {"stepflow.iterations": begun.iteration})

    def _follow_step(self, event: events.Event) -> None:  # noqa: PLR0912 - one case per event is the table
        match event:
            case events.PromptRendered():
                self._system, self._given = event.system, [_message("user", map(_text_part, event.blocks))]
            case events.UserMessage():
                self._given.append(_message("user", [_text_part(event.text)]))
            case events.ModelTurned():
                self._add_turn(event)
            case events.AnswerLost():
                self._add_call(event, self._asked or self._before, error="answer_lost")
            case events.CacheRenewed():
                renewal = {"stepflow.cache_renewal": True}
                self._add_call(event, self._at - event.seconds, renewal, error="failed" if event.problem else "")
            case events.ToolStarted():
                attributes = self._tool_attributes(event.name, event.tool_use_id)
                name = f"{EXECUTE_TOOL} {cut(event.name, MOST_NAME)}"
                self._tools[event.tool_use_id] = self._add(name, attributes, start=self._at, error="interrupted")
            case events.ToolCalled():
                self._add_tool(event)
            case events.CommandRan():
                failed = "timed_out" if event.timed_out else "failed" if event.exit_code or not event.started else ""
                exited = {"process.exit.code": event.exit_code if event.started else None}
                self._add(f"command {event.step_id}", exited, start=self._at - event.seconds, error=failed)
            case events.ValidatorRan():
                tried: Attributes = {
                    "stepflow.validator.attempt": event.attempt,
                    "stepflow.validator.pattern": event.pattern,
                }
                self._add_check(event, self._step or self._root, tried, event.pattern or "failed")
            case events.StepAnswered():
                self._update(self._step, {"stepflow.step.intent": event.intent})
            case events.Routed():
                self._update(self._step, {"stepflow.step.transition": event.transition})
            case _ if isinstance(event, _IN_STEP):
                self._follow_change(event)
            case _:
                pass

    def _follow_change(self, event: events.Event) -> None:
        if isinstance(event, events.ModelWaited):
            self._asked = self._asked or self._before
        if isinstance(event, ModelChanged):
            self._rung = Rung.parse(event.to)
        self._note(self._step or self._root, event)

    def _add_turn(self, turned: events.ModelTurned) -> None:
        attributes: dict[str, Value | None] = {
            RESPONSE_MODEL: turned.model,
            "gen_ai.response.finish_reasons": (turned.stop_reason,),
        }
        if self._content:
            parts = [part for block in turned.content if (part := _answer_part(block))]
            said = {**_message("assistant", parts), "finish_reason": turned.stop_reason}
            attributes |= {
                "gen_ai.system_instructions": self._as_json([_text_part(self._system)]),
                "gen_ai.input.messages": self._as_json(self._given),
                "gen_ai.output.messages": self._as_json([said]),
            }
        self._given = []
        self._add_call(turned, min(self._asked or self._at, self._at - turned.seconds), attributes)

    def _add_call(
        self,
        paid: events.ModelTurned | events.AnswerLost | events.CacheRenewed,
        start: float,
        attributes: Mapping[str, Value | None] | None = None,
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
            **(attributes or {}),
        }
        self._add(f"{CHAT} {self._rung.model}", call, start=start, kind=SpanKind.CLIENT, error=error)
        self._update(self._root, {**_tokens(self._usage), COST: None if self._unpriced else self._cost})

    def _add_tool(self, called: events.ToolCalled) -> None:
        failed = "denied" if called.denied else "failed" if called.is_error else ""
        attributes = self._tool_attributes(called.name, called.tool_use_id)
        attributes["process.exit.code"] = called.exit_code
        response = cut(called.output, MOST_CONTENT)
        if self._content:
            attributes |= {
                "gen_ai.tool.call.arguments": cut(self._as_json(called.input), MOST_CONTENT),
                "gen_ai.tool.call.result": response,
            }
        answer: JsonObject = {"type": "tool_call_response", "id": called.tool_use_id, "response": response}
        self._given.append(_message("tool", [answer]))
        number = self._tools.pop(called.tool_use_id, 0)
        if not number:
            name = f"{EXECUTE_TOOL} {cut(called.name, MOST_NAME)}"
            self._add(name, attributes, start=self._at - called.seconds, error=failed)
            return
        self._update(number, attributes)
        self._spans[number] = replace(self._spans[number], error=failed)
        self._cover(number)

    def _tool_attributes(self, name: str, use: str) -> dict[str, Value | None]:
        return {
            OPERATION: EXECUTE_TOOL,
            TOOL: cut(name, MOST_NAME),
            "gen_ai.tool.type": "function",
            "gen_ai.tool.call.id": use,
        }

    def _add_check(
        self, ran: events.BaseChecked | events.ValidatorRan, parent: int, attributes: Mapping[str, Value], error: str
    ) -> None:
        facts = {"stepflow.validator.name": ran.name, "stepflow.validator.passed": ran.passed, **attributes}
        facts["process.exit.code"] = ran.exit_code
        failed, start = "" if ran.passed else error, self._at - ran.seconds
        self._add(f"validate {ran.name}", facts, parent=parent, start=start, error=failed)

    def _note(self, number: int, event: events.Event) -> None:
        """Add the event to a span, with those of its fields that no model and no service has written."""
        names = ("seconds", "attempt", "kind", "by_fault", "cause", "remedy", "from_seq")
        facts = {f"stepflow.{name}": getattr(event, name) for name in names if hasattr(event, name)}
        noted = SpanEvent(name=f"stepflow.{event.event}", time=self._at, attributes=self._clean(facts))
        self._spans[number] = replace(self._spans[number], events=(*self._spans[number].events, noted))
        self._cover(number)

    def _add(
        self,
        name: str,
        attributes: Mapping[str, Value | None],
        *,
        parent: int | None = -1,
        start: float | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
        error: str = "",
    ) -> int:
        """Add a span that ends now, below the step by default, and return its number."""
        above = (self._step or self._root) if parent == -1 else parent
        earliest = self._spans[above].start if above else self._began
        start = self._before if start is None else start
        self._spans[self._seq] = RunSpan(
            number=self._seq,
            parent=above,
            ended=self._seq,
            name=self._redact(name),
            start=min(max(start, earliest), self._at),
            end=self._at,
            kind=kind,
            attributes=self._clean(attributes),
            error=error,
        )
        self._cover(self._seq)
        return self._seq

    def _update(self, number: int, attributes: Mapping[str, Value | None]) -> None:
        """Set attributes of a span; an empty one removes what is there."""
        if number:
            span = self._spans[number]
            others = {name: value for name, value in span.attributes.items() if name not in attributes}
            self._spans[number] = replace(span, attributes={**others, **self._clean(attributes)})
            self._cover(number)

    def _cover(self, number: int | None) -> None:
        """Let a span, and those around it, last until now."""
        while number:
            span = self._spans[number]
            self._spans[number] = replace(span, end=max(span.end, self._at), ended=self._seq)
            number = span.parent

    def _clean(self, attributes: Mapping[str, Value | None]) -> dict[str, Value]:
        return {name: self._redacted(value) for name, value in attributes.items() if value not in (None, "")}

    def _redacted(self, value: Value | None) -> Value:
        match value:
            case str():
                return str(self._redact(value))
            case tuple():
                return tuple(str(self._redact(each)) for each in value)
            case _:
                assert value is not None  # noqa: S101 - filtered by the caller
                return value

    def _as_json(self, value: object) -> str:
        return json.dumps(value, ensure_ascii=False, default=str)


def _tokens(usage: Usage) -> dict[str, Value]:
    return {
        INPUT_TOKENS: usage.tokens_in,
        OUTPUT_TOKENS: usage.output_tokens,
        CACHE_READ: usage.cache_read_tokens,
        CACHE_WRITE: usage.cache_write_tokens,
    }


def _message(role: str, parts: Iterable[JsonObject]) -> JsonObject:
    return {"role": role, "parts": list(parts)}


def _text_part(text: str) -> JsonObject:
    return {"type": "text", "content": cut(text, MOST_CONTENT)}


def _answer_part(block: JsonObject) -> JsonObject | None:
    """Return a block of an answer in the conventions' form. Signatures and encrypted thinking are left out."""
    match block:
        case {"type": "text", "text": str(text)}:
            return _text_part(text)
        case {"type": "thinking", "thinking": str(text)}:
            return {**_text_part(text), "type": "reasoning"}
        case {"type": "tool_use"}:
            return {
                "type": "tool_call",
                "id": block.get("id"),
                "name": block.get("name"),
                "arguments": _short(block.get("input")),
            }
        case _:
            return None


def _short(value: JsonValue) -> JsonValue:
    """Return a tool call's arguments, as a cut text if they are long."""
    text = json.dumps(value, ensure_ascii=False)
    return value if len(text) <= MOST_CONTENT else cut(text, MOST_CONTENT)
