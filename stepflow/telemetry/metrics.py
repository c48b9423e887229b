"""The metrics of a run, as data, made from its spans. Names are those of the semantic conventions, like the spans'."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from stepflow.telemetry import spans
from stepflow.telemetry.spans import Attributes, RunSpan, RunTrace, Value

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


@dataclass(frozen=True, kw_only=True)
class Point:
    """The values of one metric that have the same attributes."""

    attributes: Attributes
    values: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class RunMetric:
    """What one process of a run adds to a metric: to a counter or, with `bounds`, to a histogram."""

    name: str
    unit: str
    description: str
    points: tuple[Point, ...]
    bounds: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RunMetrics:
    """The metrics, and the time in which they arose, in seconds since the epoch."""

    metrics: tuple[RunMetric, ...]
    start: float
    end: float


#: A run's trace and metrics.
Telemetry = tuple[RunTrace, RunMetrics]


def build_metrics(trace: RunTrace, *, whole: bool = False) -> RunMetrics:
    """Build the metrics of the process that ran last: an earlier one has sent its own. With `whole`, those of all."""
    run = trace.spans[0]
    since, start = (0, run.start) if whole or not trace.resumed else (trace.resumed, trace.resumed_at)
    calls, tools = ([*_ended_since(trace, since, operation)] for operation in (spans.CHAT, spans.EXECUTE_TOOL))
    # The model makes up the name of a tool that its step does not have.
    tools = [span for span in tools if span.error != "denied"]
    agent = {name: run.attributes[name] for name in (spans.AGENT, spans.DIGEST) if name in run.attributes}
    outcome = {**agent, spans.OUTCOME: run.attributes.get(spans.OUTCOME, "unfinished")}
    model = (spans.OPERATION, spans.PROVIDER, spans.REQUEST_MODEL, spans.RESPONSE_MODEL)
    ran = (Point(attributes={**agent, **_error(run)}, values=(run.end - start,)),)
    ended = (Point(attributes=outcome, values=(1,)),)
    costs = _points(calls, (spans.REQUEST_MODEL, spans.RESPONSE_MODEL), _attribute(spans.COST), outcome)
    metrics = (
        RunMetric(name="stepflow.runs", unit="{run}", description="Runs that ended, by outcome.", points=ended),
        RunMetric(name="stepflow.cost", unit="{USD}", description="What the model cost.", points=costs),
        _durations(f"gen_ai.{spans.INVOKE_AGENT}.duration", ran, RUN_BOUNDS),
        _durations("gen_ai.client.inference.duration", _points(calls, (*model, spans.ERROR), _seconds), CALL_BOUNDS),
        _durations(
            f"gen_ai.{spans.EXECUTE_TOOL}.duration",
            _points(tools, (spans.OPERATION, spans.TOOL, spans.ERROR), _seconds),
            CALL_BOUNDS,
        ),
        *(
            RunMetric(
                name=metric,
                unit="{token}",
                description="Tokens that the model used.",
                points=_points(calls, model, _attribute(name), MODALITY),
            )
            for name, metric in TOKENS.items()
        ),
    )
    return RunMetrics(metrics=tuple(metric for metric in metrics if metric.points), start=start, end=run.end)


def _ended_since(trace: RunTrace, since: int, operation: str) -> Iterable[RunSpan]:
    return (span for span in trace.spans if span.ended > since and span.attributes.get(spans.OPERATION) == operation)


def _durations(name: str, points: tuple[Point, ...], bounds: tuple[float, ...]) -> RunMetric:
    return RunMetric(name=name, unit="s", description="How long it took.", points=points, bounds=bounds)


def _points(
    measured: Iterable[RunSpan],
    names: tuple[str, ...],
    measure: Callable[[RunSpan], object],
    more: Attributes | None = None,
) -> tuple[Point, ...]:
    """Group the spans by these attributes, and measure each. A span that has no such value does not count."""
    values: dict[tuple[tuple[str, Value], ...], list[float]] = defaultdict(list)
    for span in measured:
        if isinstance(value := measure(span), int | float):
            facts = {**span.attributes, **_error(span)}
            values[tuple((name, facts[name]) for name in names if name in facts)].append(value)
    return tuple(
        Point(attributes={**dict(group), **(more or {})}, values=tuple(found)) for group, found in values.items()
    )


def _attribute(name: str) -> Callable[[RunSpan], object]:
    return lambda span: span.attributes.get(name)


def _seconds(span: RunSpan) -> float:
    return span.end - span.start


def _error(span: RunSpan) -> Attributes:
    return {spans.ERROR: span.error} if span.error else {}
