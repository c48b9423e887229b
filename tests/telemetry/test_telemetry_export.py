"""A collector receives the trace and the metrics as they are; whatever it does, it takes no longer than said."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import trustme

from stepflow.boundary.github_client import configure_session
from stepflow.domain.connection import DIRECT, Connection
from stepflow.telemetry.export import TOO_SLOW, Collector, send_telemetry, write_telemetry
from stepflow.telemetry.sdk import sdk_metrics
from stepflow.telemetry.spans import RunTrace, build_trace
from tests.servers.collector import (
    CollectorServer,
    accept,
    attributes_of,
    broken,
    busy,
    deaf_to_metrics,
    drip,
    elsewhere,
    flood,
    hang,
    hang_up,
    refuse_some,
    refuse_some_in_json,
    speak_http2,
)
from tests.servers.loopback import Handler
from tests.servers.private_network import TlsFront, address_of, closed_port, pem_of
from tests.telemetry.journals import journal_of


def plausible_trace() -> RunTrace:
    return build_trace(journal_of("plausible"), content=False)


def names_of_metrics(trace: RunTrace) -> list[str]:
    (resource,) = sdk_metrics(trace, whole=True).resource_metrics
    return [metric.name for scope in resource.scope_metrics for metric in scope.metrics]


def send(url: str, *, seconds: float = 20, connection: Connection = DIRECT, **headers: str) -> str:
    collector = Collector(endpoint=url, connection=connection, configure=configure_session, headers=headers)
    return send_telemetry(plausible_trace, collector, whole=False, seconds=seconds)


def test_a_collector_receives_every_span_and_every_metric_as_it_is() -> None:
    from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality
    from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

    trace = plausible_trace()
    with CollectorServer() as server:
        assert send(server.url, **{"X-Token": "t-0123456789"}) == ""
        spans, received = server.spans(), server.metrics()
    assert {request[1]["x-token"] for request in server.requests} == {"t-0123456789"}
    assert {request[1]["content-encoding"] for request in server.requests} == {"gzip"}
    assert [span.name for span in spans] == [span.name for span in trace.spans]
    assert {int.from_bytes(span.trace_id) for span in spans} == {trace.trace_id}
    by_id = {span.span_id: span for span in spans}
    for span, sent in zip(spans, trace.spans, strict=True):
        assert int.from_bytes(span.span_id) == trace.span_id(sent.number)
        parent = by_id[span.parent_span_id].name if span.parent_span_id else None
        assert parent == (sent.parent.name if sent.parent else None)
        assert span.start_time_unix_nano == pytest.approx(sent.start * 1e9, abs=1000)
        attributes = attributes_of(span)
        assert attributes.pop("error.type", "") == sent.error
        assert attributes == {**sent.attributes}
        assert (span.status.code == Status.STATUS_CODE_ERROR) is bool(sent.error)
    kinds = {span.kind for span in spans if span.name.startswith("chat")}
    assert kinds == {Span.SPAN_KIND_CLIENT}
    assert received.keys() == {*names_of_metrics(trace)}
    cost = received["stepflow.cost"].sum
    assert (cost.aggregation_temporality, cost.is_monotonic) == (
        AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA,
        True,
    )
    assert sum(point.as_double for point in cost.data_points) == pytest.approx(9 * 0.0123)
    (run,) = received["gen_ai.invoke_agent.duration"].histogram.data_points
    assert (run.count, sum(run.bucket_counts), len(run.bucket_counts)) == (1, 1, len(run.explicit_bounds) + 1)
    assert run.sum == pytest.approx(38.58)


@pytest.mark.whole
@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (hang, TOO_SLOW),
        (drip, TOO_SLOW),
        (deaf_to_metrics, TOO_SLOW),
        (busy, "it answered 503 Service Unavailable"),
        (broken, "it answered 500 Internal Server Error"),
        pytest.param(elsewhere, "it answered 301, and no redirect is followed", marks=pytest.mark.fast),
    ],
)
def test_whatever_a_collector_does_it_takes_no_longer_than_said(
    answer: Callable[[Handler, int], None], problem: str
) -> None:
    with CollectorServer(answer) as server:
        began = time.monotonic()
        assert send(server.url, seconds=3) == problem
        # A collector that hangs or drips would take half a minute.
        assert time.monotonic() - began < 20


def test_an_answer_without_end_is_not_read_to_its_end() -> None:
    with CollectorServer(flood) as server:
        assert send(server.url) == ""


@pytest.mark.parametrize("end", ["", "/", "/v1/traces", "/v1/metrics", "/v1/logs/", "/v1/traces//"])
def test_the_address_of_one_kind_of_data_leads_to_all(end: str) -> None:
    with CollectorServer() as server:
        assert send(f"{server.url}/otlp{end}") == ""
    assert {path for path, _, _ in server.requests} == {"/otlp/v1/traces", "/otlp/v1/metrics"}


def test_a_collector_that_hangs_up_is_no_slow_one() -> None:
    with CollectorServer(hang_up) as server:
        assert send(server.url, seconds=3) == "it closed the connection without an answer"


def test_the_port_for_grpc_is_told_from_one_that_hangs_up() -> None:
    with CollectorServer(speak_http2) as server:
        assert "is this the port for gRPC" in send(server.url, seconds=3)


@pytest.mark.parametrize("refuse", [refuse_some, refuse_some_in_json])
def test_what_a_collector_refuses_of_a_request_is_told(refuse: Callable[[Handler, int], None]) -> None:
    with CollectorServer(refuse) as server:
        assert send(server.url) == "it took the rest, but refused 3 spans; its own log says why"


@pytest.mark.whole
def test_a_collector_that_is_busy_for_a_moment_is_asked_again() -> None:
    def busy_once(handler: Handler, number: int) -> None:
        (busy if number == 1 else accept)(handler, number)

    with CollectorServer(busy_once) as server:
        assert send(server.url) == ""
    assert [path for path, _, _ in server.requests] == ["/v1/traces", "/v1/traces", "/v1/metrics"]


def test_a_collector_that_is_not_there_is_told_from_one_that_is_not_trusted() -> None:
    assert send(f"http://127.0.0.1:{closed_port()}", seconds=5) == "it could not be reached (Connection refused)"
    authority = trustme.CA()
    with CollectorServer() as server, TlsFront(authority, "127.0.0.1", to=lambda _: address_of(server.url)) as front:
        url = f"https://127.0.0.1:{front.port}/otlp/"
        problem = send(url, seconds=5)
        assert "its certificate was rejected" in problem
        assert "ca-certificates" in problem
        assert send(url, connection=Connection(certificates=pem_of(authority))) == ""
    assert {path for path, _, _ in server.requests} == {"/otlp/v1/traces", "/otlp/v1/metrics"}


def test_a_bug_in_the_export_is_a_problem_and_no_exception() -> None:
    def build() -> RunTrace:
        raise RuntimeError("boom")

    collector = Collector(endpoint="http://127.0.0.1:9", connection=DIRECT, configure=configure_session)
    assert send_telemetry(build, collector, whole=False) == "RuntimeError: boom"


def test_a_file_holds_the_same_as_json_lines(tmp_path: Path) -> None:
    trace = plausible_trace()
    write_telemetry(trace, tmp_path / "run.jsonl")
    spans, received = map(json.loads, (tmp_path / "run.jsonl").read_text().splitlines())
    (scope,) = spans["resourceSpans"][0]["scopeSpans"]
    assert [span["name"] for span in scope["spans"]] == [span.name for span in trace.spans]
    assert {span["traceId"] for span in scope["spans"]} == {f"{trace.trace_id:032x}"}
    (scope,) = received["resourceMetrics"][0]["scopeMetrics"]
    assert [metric["name"] for metric in scope["metrics"]] == names_of_metrics(trace)
