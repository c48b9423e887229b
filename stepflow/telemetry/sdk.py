"""The trace and the metrics of a run as objects of the official SDK."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
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

from stepflow.telemetry.metrics import Point, RunMetric, RunMetrics
from stepflow.telemetry.spans import ERROR, RunTrace

NAME = "stepflow"
#: A job's process is gone after its run, so what it counts is the difference to before.
DELTA = AggregationTemporality.DELTA


def sdk_spans(trace: RunTrace) -> Iterator[ReadableSpan]:
    """Return the spans of a run."""
    resource, scope = _resource(trace), _scope()

    def context(number: int) -> SpanContext:
        sampled = TraceFlags(TraceFlags.SAMPLED)
        return SpanContext(trace.trace_id, trace.span_id(number), is_remote=False, trace_flags=sampled)

    for span in trace.spans:
        failed = {ERROR: span.error} if span.error else {}
        yield ReadableSpan(
            name=span.name,
            context=context(span.number),
            parent=context(span.parent.number) if span.parent else None,
            resource=resource,
            attributes={**span.attributes, **failed},
            events=[Event(each.name, each.attributes, timestamp=_nanoseconds(each.time)) for each in span.events],
            kind=SpanKind[span.kind.name],
            status=Status(StatusCode.ERROR, span.description or span.error) if failed else Status(),
            start_time=_nanoseconds(span.start),
            end_time=_nanoseconds(span.end),
            instrumentation_scope=scope,
        )


def sdk_metrics(trace: RunTrace, metrics: RunMetrics) -> MetricsData:
    """Return the metrics of a run."""
    times = _nanoseconds(metrics.start), _nanoseconds(metrics.end)
    made = [_metric(metric, times) for metric in metrics.metrics]
    scoped = ScopeMetrics(scope=_scope(), metrics=made, schema_url="")
    return MetricsData([ResourceMetrics(resource=_resource(trace), scope_metrics=[scoped], schema_url="")])


def _resource(trace: RunTrace) -> Resource:
    owner, _, name = trace.repository.partition("/")
    repository = {"vcs.owner.name": owner, "vcs.repository.name": name} if name else {}
    return Resource({"service.name": NAME, "service.version": version(NAME), **repository})


def _scope() -> InstrumentationScope:
    return InstrumentationScope(NAME, version(NAME))


def _metric(metric: RunMetric, times: tuple[int, int]) -> Metric:
    data: Histogram | Sum
    if metric.bounds:
        data = Histogram([_histogram_point(point, metric.bounds, times) for point in metric.points], DELTA)
    else:
        data = Sum([_sum_point(point, times) for point in metric.points], DELTA, is_monotonic=True)
    return Metric(name=metric.name, description=metric.description, unit=metric.unit, data=data)


def _sum_point(point: Point, times: tuple[int, int]) -> NumberDataPoint:
    return NumberDataPoint(dict(point.attributes), *times, value=sum(point.values))


def _histogram_point(point: Point, bounds: tuple[float, ...], times: tuple[int, int]) -> HistogramDataPoint:
    counts = [0] * (len(bounds) + 1)
    for value in point.values:
        # A bucket includes its upper bound.
        counts[bisect_left(bounds, value)] += 1
    return HistogramDataPoint(
        attributes=dict(point.attributes),
        start_time_unix_nano=times[0],
        time_unix_nano=times[1],
        count=len(point.values),
        sum=sum(point.values),
        bucket_counts=counts,
        explicit_bounds=bounds,
        min=min(point.values),
        max=max(point.values),
    )


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1_000_000) * 1_000
