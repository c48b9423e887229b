"""The trace and the metrics of a run as objects of the official SDK. The names of metrics are those of the semantic
conventions, like those of spans."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.metadata import version

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from stepflow.telemetry import spans
from stepflow.telemetry.spans import Attributes, RunSpan, RunTrace, Value

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
#: The values of a metric, by their attributes.
Groups = Sequence[tuple[Attributes, Sequence[float]]]


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
    calls = [span for span in ended if span.attributes.get(spans.OPERATION) == spans.CHAT]
    # The model makes up the name of a tool that its step does not have.
    tools = [
        span for span in ended if span.attributes.get(spans.OPERATION) == spans.EXECUTE_TOOL and span.error != "denied"
    ]
    agent = {name: run.attributes[name] for name in (spans.AGENT, spans.DIGEST) if name in run.attributes}
    outcome = {**agent, spans.OUTCOME: run.attributes.get(spans.OUTCOME, "unfinished")}
    model = (spans.OPERATION, spans.PROVIDER, spans.REQUEST_MODEL, spans.RESPONSE_MODEL)
    tool = (spans.OPERATION, spans.TOOL, spans.ERROR)
    costs = _group(calls, (spans.REQUEST_MODEL, spans.RESPONSE_MODEL), _attribute(spans.COST), outcome)
    times = _nanoseconds(start), _nanoseconds(run.end)
    metrics = (
        _count("stepflow.runs", "{run}", "Runs that ended, by outcome.", [(outcome, (1,))], times),
        _count("stepflow.cost", "{USD}", "What the model cost.", costs, times),
        _durations(spans.INVOKE_AGENT, [({**agent, **_error(run)}, (run.end - start,))], RUN_BOUNDS, times),
        _durations("client.inference", _group(calls, (*model, spans.ERROR), _seconds), CALL_BOUNDS, times),
        _durations(spans.EXECUTE_TOOL, _group(tools, tool, _seconds), CALL_BOUNDS, times),
        *(
            _count(
                metric,
                "{token}",
                "Tokens that the model used.",
                _group(calls, model, _attribute(name), MODALITY),
                times,
            )
            for name, metric in TOKENS.items()
        ),
    )
    made = [metric for metric in metrics if metric.data.data_points]
    scoped = ScopeMetrics(scope=_scope(), metrics=made, schema_url="")
    return MetricsData([ResourceMetrics(resource=_resource(trace), scope_metrics=[scoped], schema_url="")])


def _resource(trace: RunTrace) -> Resource:
    owner, _, name = trace.repository.partition("/")
    repository = {"vcs.owner.name": owner, "vcs.repository.name": name} if name else {}
    return Resource({"service.name": NAME, "service.version": version(NAME), **repository})


def _scope() -> InstrumentationScope:
    return InstrumentationScope(NAME, version(NAME))


def _count(name: str, unit: str, description: str, groups: Groups, times: tuple[int, int]) -> Metric:
    points = [NumberDataPoint(dict(attributes), *times, value=sum(values)) for attributes, values in groups]
    return Metric(name=name, description=description, unit=unit, data=Sum(points, DELTA, is_monotonic=True))


def _durations(what: str, groups: Groups, bounds: tuple[float, ...], times: tuple[int, int]) -> Metric:
    points = [_histogram_point(attributes, values, bounds, times) for attributes, values in groups]
    data = Histogram(points, DELTA)
    return Metric(name=f"gen_ai.{what}.duration", description="How long it took.", unit="s", data=data)


def _histogram_point(
    attributes: Attributes, values: Sequence[float], bounds: tuple[float, ...], times: tuple[int, int]
) -> HistogramDataPoint:
    counts = [0] * (len(bounds) + 1)
    for value in values:
        # A bucket includes its upper bound.
        counts[bisect_left(bounds, value)] += 1
    return HistogramDataPoint(
        attributes=dict(attributes),
        start_time_unix_nano=times[0],
        time_unix_nano=times[1],
        count=len(values),
        sum=sum(values),
        bucket_counts=counts,
        explicit_bounds=bounds,
        min=min(values),
        max=max(values),
    )


def _group(
    measured: Iterable[RunSpan],
    names: tuple[str, ...],
    measure: Callable[[RunSpan], object],
    more: Attributes | None = None,
) -> Groups:
    """Group the spans by these attributes, and measure each. A span that has no such value does not count."""
    values: dict[tuple[tuple[str, Value], ...], list[float]] = defaultdict(list)
    for span in measured:
        if isinstance(value := measure(span), int | float):
            facts = {**span.attributes, **_error(span)}
            values[tuple((name, facts[name]) for name in names if name in facts)].append(value)
    return [({**dict(group), **(more or {})}, found) for group, found in values.items()]


def _attribute(name: str) -> Callable[[RunSpan], object]:
    return lambda span: span.attributes.get(name)


def _seconds(span: RunSpan) -> float:
    return span.end - span.start


def _error(span: RunSpan) -> Attributes:
    return {spans.ERROR: span.error} if span.error else {}


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1_000_000) * 1_000
