"""Sends a run to an OpenTelemetry collector, or writes it to a file, through the official SDK's exporters."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from http.client import responses
from io import StringIO
from itertools import islice
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

import requests

from stepflow.domain.connection import Connection, certificate_problem
from stepflow.domain.text import count
from stepflow.telemetry.spans import RunTrace

T = TypeVar("T")

#: The longest that a collector may keep a run waiting: for the trace and the metrics together, and for all retries.
#: With the loading of the libraries, a run takes at most five seconds longer.
SECONDS = 4.5
#: Spans in one request. Collectors refuse requests of more than some megabytes.
MOST_SPANS = 256
#: Bytes of an answer that are read. A longer one could fill the memory.
LONGEST_ANSWER = 64 * 1024
NOT_INSTALLED = "the OpenTelemetry SDK is not installed; install `stepflow[otel]`"
TOO_SLOW = "it did not answer in time; a run waits for it no longer than five seconds"
_CAUSE = re.compile(r"\[Errno -?\d+\] ([^\"')]+)")
REDIRECTS = range(300, 400)
#: What collectors show as their address for one kind of data; the SDK takes it for each kind.
_OF_A_KIND = re.compile(r"/v1/(?:traces|metrics|logs)/*$")
#: The errors of requests for an answer that is not HTTP.
_NOT_HTTP = re.compile(r"BadStatusLine|UnknownProtocol")
#: How requests says that the other side hung up.
_CLOSED = re.compile(r"Connection aborted|RemoteDisconnected|Connection reset by peer|Broken pipe")


@dataclass(frozen=True, kw_only=True)
class Collector:
    """A collector that speaks OTLP over HTTP. `configure` makes a session use only the connection."""

    endpoint: str
    connection: Connection
    configure: Callable[[requests.Session, Connection], None]
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


class _Session(requests.Session):
    """Remembers why the last request failed; the SDK only says that it did, and asks again until its time is over.
    `on_problem` is called with it, empty for an answer that is well."""

    problem = ""
    #: What the collector refused of requests that it took.
    refused = ""

    def __init__(self, connection: Connection, on_problem: Callable[[str], None]) -> None:
        super().__init__()
        self._connection, self._on_problem = connection, on_problem

    def request(self, *args: Any, **kwargs: Any) -> requests.Response:  # noqa: ANN401 - requests' own method
        try:
            answer = super().request(*args, **{**kwargs, "stream": True})
            with answer:
                # Nobody needs it, but a connection whose answer was read to its end is used again.
                content = next(answer.iter_content(LONGEST_ANSWER), b"")
        except requests.RequestException as error:
            self.problem = _describe(error, self._connection)
            self._on_problem(self.problem)
            raise
        # The server's own words for it could say anything.
        words = responses.get(answer.status_code, "")
        self.problem = "" if answer.ok else f"it answered {answer.status_code} {words}".rstrip()
        if answer.status_code in REDIRECTS:
            self.problem = f"it answered {answer.status_code}, and no redirect is followed"
            # The SDK would take it for a success.
            raise requests.TooManyRedirects
        self._on_problem(self.problem)
        if answer.ok:
            is_json = "json" in answer.headers.get("content-type", "")
            self.refused = _describe_refused(str(answer.url), content, is_json=is_json) or self.refused
        return answer


def _describe_refused(url: str, content: bytes, *, is_json: bool) -> str:
    """Say how much of a request the collector refused although it took the request; empty if it took all."""
    from google.protobuf.json_format import Parse, ParseError  # type: ignore[import-untyped]  # noqa: PLC0415 - as below
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # noqa: PLC0415
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (  # noqa: PLC0415
        ExportMetricsServiceResponse,
    )
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse  # noqa: PLC0415

    said = ExportTraceServiceResponse() if url.endswith("/traces") else ExportMetricsServiceResponse()
    try:
        if is_json:
            Parse(content, said, ignore_unknown_fields=True)
        else:
            said.ParseFromString(content)
    except (DecodeError, ParseError):
        return ""
    if isinstance(said, ExportTraceServiceResponse):
        number, what = said.partial_success.rejected_spans, "span"
    else:
        number, what = said.partial_success.rejected_data_points, "data point"
    return f"it took the rest, but refused {count(number, what)}; its own log says why" if number > 0 else ""


def _describe(error: requests.RequestException, connection: Connection) -> str:
    said = str(error)
    if problem := certificate_problem(said):
        what = f"its certificate was rejected{connection.through}: {problem}"
    elif isinstance(error, requests.Timeout):
        what = TOO_SLOW
    elif _NOT_HTTP.search(said):
        what = (
            f"it does not speak HTTP/1.1{connection.through}; is this the port for gRPC, and is the one for HTTP 4318?"
        )
    elif _CLOSED.search(said):
        what = f"it closed the connection{connection.through} without an answer"
    else:
        cause = _CAUSE.search(said)
        what = f"it could not be reached{connection.through} ({cause[1] if cause else type(error).__name__})"
    advice = connection.advice(said)
    return f"{what}. {advice}" if advice else what


def send_telemetry(
    build: Callable[[], RunTrace | None], collector: Collector, *, whole: bool, seconds: float = SECONDS
) -> str:
    """Build the trace and send it with its metrics: those of its last process, or of the `whole` run. Return why that
    failed; empty if it did not, or there is no trace.

    This takes no longer than `seconds`, whatever the collector does.
    """
    problem, deadline = TOO_SLOW, time.monotonic() + seconds

    def note(what: str) -> None:
        nonlocal problem
        problem = what or TOO_SLOW

    def work() -> None:
        nonlocal problem
        try:
            trace = build()
            problem = _send(trace, collector, whole, deadline, note) if trace else ""
        except ModuleNotFoundError:
            problem = NOT_INSTALLED
        except Exception as bug:  # noqa: BLE001 - a run has ended, and nothing here may change how
            problem = f"{type(bug).__name__}: {bug}"

    # In the background, so that nothing can keep the run waiting for longer than it is joined.
    sending = Thread(target=work, name="telemetry", daemon=True)
    sending.start()
    sending.join(seconds)
    return problem


def _send(
    trace: RunTrace, collector: Collector, whole: bool, deadline: float, on_problem: Callable[[str], None]
) -> str:
    from opentelemetry.exporter.otlp.proto.http import Compression  # noqa: PLC0415 - loaded when it is wanted
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter  # noqa: PLC0415
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415

    from stepflow.telemetry.sdk import sdk_metrics, sdk_spans  # noqa: PLC0415 - the same

    def left() -> float:
        return max(0.1, deadline - time.monotonic())

    # What the SDK has to say is in the problem that is returned.
    logger = logging.getLogger("opentelemetry")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    base = _OF_A_KIND.sub("", collector.endpoint).rstrip("/")
    with _Session(collector.connection, on_problem) as session:
        collector.configure(session, collector.connection)
        options: dict[str, Any] = {
            "headers": dict(collector.headers),
            "compression": Compression.Gzip,
            "session": session,
        }
        for spans in _in_batches(sdk_spans(trace), MOST_SPANS):
            exporter = OTLPSpanExporter(f"{base}/v1/traces", timeout=left(), **options)
            if exporter.export(spans).value:
                return session.problem or "the SDK could not send it"
        metric_exporter = OTLPMetricExporter(f"{base}/v1/metrics", timeout=left(), **options)
        if metric_exporter.export(sdk_metrics(trace, whole=whole)).value:
            return session.problem or "the SDK could not send it"
        return session.refused


def write_telemetry(trace: RunTrace, path: Path) -> None:
    """Write the trace and the metrics of the whole run as OTLP JSON, in one line each. Raises `ModuleNotFoundError`
    without the SDK, and `OSError`."""
    from opentelemetry.exporter.otlp.json.file import FileMetricExporter, FileSpanExporter  # noqa: PLC0415 - as above

    from stepflow.telemetry.sdk import sdk_metrics, sdk_spans  # noqa: PLC0415 - as above

    text = StringIO()
    FileSpanExporter(stream=text).export(tuple(sdk_spans(trace)))
    FileMetricExporter(stream=text).export(sdk_metrics(trace, whole=True))
    path.write_text(text.getvalue(), encoding="utf-8", errors="backslashreplace")


def _in_batches(items: Iterable[T], size: int) -> Iterator[tuple[T, ...]]:
    left = iter(items)
    while batch := tuple(islice(left, size)):
        yield batch
