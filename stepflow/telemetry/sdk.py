"""The trace and the metrics of a run as objects of the official SDK. The names of metrics are those of the semantic
conventions, like those of spans."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version

from opentelemetry.metrics import Histogram, Meter
from opentelemetry.sdk.metrics import Counter, MeterProvider
from opentelemetry.sdk.metrics import Histogram as SdkHistogram
from opentelemetry.sdk.metrics.export import AggregationTemporality, InMemoryMetricReader, MetricsData
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from stepflow.telemetry import spans
from stepflow.telemetry.spans import Attributes, RunSpan, RunTrace

NAME = "stepflow"
#: A job's process is gone after its run, so what it counts is the difference to before.
DELTA = AggregationTemporality.DELTA
#: Bounds of the buckets of durations in seconds, by what takes the time. Those of calls are the conventions'.
CALL_BOUNDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
RUN_BOUNDS = (1.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0, 7200.0)
TOKENS = {
    spans.INPUT_TOKENS: "gen_ai.client.inference.usage.input_tokens",
    spans.OUTPUT_TOKENS: "gen_ai.client.inference.usage.output_tokens",
    spans.CACHE_READ: "gen_ai.client.inference.usage.cache_read.input_tokens",
    spans.CACHE_WRITE: "gen_ai.client.inference.usage.cache_write.input_tokens",
}
#: The service does not say which of its tokens are images.
MODALITY = {"gen_ai.token.modality": "unknown"}
USED = "Tokens that the model used."
#: The attributes of what a call of the model took.
MODEL = (spans.OPERATION, spans.PROVIDER, spans.REQUEST_MODEL, spans.RESPONSE_MODEL)


def sdk_spans(trace: RunTrace) -> Iterator[ReadableSpan]:
    """Return the spans of a run."""
    resource, scope = _resource(trace), _scope()

    def context(number: int) -> SpanContext:
        sampled = TraceFlags(TraceFlags.SAMPLED)
        return SpanContext(trace.trace_id, trace.span_id(number), is_remote=False, trace_flags=sampled)

    for span in trace.spans:
        failed = _error(span)
        yield ReadableSpan(
            name=span.name,
            context=context(span.number),
            parent=context(span.parent.number) if span.parent else None,
            resource=resource,
            attributes={**span.attributes, **failed},
            events=[Event(each.name, each.attributes, timestamp=_nanoseconds(each.time)) for each in span.events],
            # A service does the work of a call, and this process that of any other span.
            kind=SpanKind.CLIENT if span.attributes.get(spans.OPERATION) == spans.CHAT else SpanKind.INTERNAL,
            status=Status(StatusCode.ERROR, span.description or span.error) if failed else Status(),
            start_time=_nanoseconds(span.start),
            end_time=_nanoseconds(span.end),
            instrumentation_scope=scope,
        )


def sdk_metrics(trace: RunTrace, *, whole: bool) -> MetricsData:
    """Return the metrics of the process that ran last: an earlier one has sent its own. With `whole`, those of all."""
    run = trace.spans[0]
    since, start = (0, run.start) if whole or not trace.resumed else (trace.resumed, trace.resumed_at)
    ended = [span for span in trace.spans if span.ended > since]
    agent = {name: run.attributes[name] for name in (spans.AGENT, spans.DIGEST) if name in run.attributes}
    outcome = {**agent, spans.OUTCOME: run.attributes.get(spans.OUTCOME, "unfinished")}
    reader = InMemoryMetricReader(preferred_temporality={Counter: DELTA, SdkHistogram: DELTA})
    provider = MeterProvider(metric_readers=[reader], resource=_resource(trace), shutdown_on_exit=False)
    meter = provider.get_meter(NAME, version(NAME))
    meter.create_counter("stepflow.runs", "{run}", "Runs that ended, by outcome.").add(1, outcome)
    cost = meter.create_counter("stepflow.cost", "{USD}", "What the model cost.")
    tokens = {name: meter.create_counter(metric, "{token}", USED) for name, metric in TOKENS.items()}
    _durations(meter, spans.INVOKE_AGENT, RUN_BOUNDS).record(run.end - start, {**agent, **_error(run)})
    inference = _durations(meter, "client.inference", CALL_BOUNDS)
    execution = _durations(meter, spans.EXECUTE_TOOL, CALL_BOUNDS)
    for span in ended:
        facts = {**span.attributes, **_error(span)}
        match facts.get(spans.OPERATION):
            case spans.CHAT:
                inference.record(span.end - span.start, _pick(facts, *MODEL, spans.ERROR))
                if isinstance(dollars := facts.get(spans.COST), int | float):
                    cost.add(dollars, {**_pick(facts, spans.REQUEST_MODEL, spans.RESPONSE_MODEL), **outcome})
                for name, counter in tokens.items():
                    if isinstance(used := facts.get(name), int):
                        counter.add(used, {**_pick(facts, *MODEL), **MODALITY})
            # The model makes up the name of a tool that its step does not have.
            case spans.EXECUTE_TOOL if span.error != "denied":
                execution.record(span.end - span.start, _pick(facts, spans.OPERATION, spans.TOOL, spans.ERROR))
    return reader.get_metrics_data() or MetricsData(resource_metrics=[])


def _resource(trace: RunTrace) -> Resource:
    owner, _, name = trace.repository.partition("/")
    repository = {"vcs.owner.name": owner, "vcs.repository.name": name} if name else {}
    return Resource({"service.name": NAME, "service.version": version(NAME), **repository})


def _scope() -> InstrumentationScope:
    return InstrumentationScope(NAME, version(NAME))


def _durations(meter: Meter, what: str, bounds: tuple[float, ...]) -> Histogram:
    name = f"gen_ai.{what}.duration"
    return meter.create_histogram(name, "s", "How long it took.", explicit_bucket_boundaries_advisory=bounds)


def _pick(facts: Attributes, *names: str) -> Attributes:
    return {name: facts[name] for name in names if name in facts}


def _error(span: RunSpan) -> Attributes:
    return {spans.ERROR: span.error} if span.error else {}


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1_000_000) * 1_000
