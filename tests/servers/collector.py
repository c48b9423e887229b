"""An OpenTelemetry collector on loopback: it decodes what comes by the protocol's own messages, or misbehaves."""

from __future__ import annotations

import gzip
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import ThreadingHTTPServer
from typing import Any

from tests.servers.loopback import Handler, LoopbackServer


def decoded(path: str, raw: bytes) -> Any:
    """A request to this path. The protocol's messages are packages of the extra `otel`."""
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    kinds = {"/v1/traces": ExportTraceServiceRequest, "/v1/metrics": ExportMetricsServiceRequest}
    return kinds[path].FromString(raw)


class CollectorServer(LoopbackServer):
    """Keeps all requests. `answer` is called with each handler and its number; by default it accepts everything."""

    def __init__(self, answer: Callable[[Handler, int], None] | None = None) -> None:
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.is_over = threading.Event()
        server = self

        class Taking(Handler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                raw = gzip.decompress(body) if self.headers.get("content-encoding") == "gzip" else body
                headers = {name.lower(): value for name, value in self.headers.items()}
                server.requests.append((self.path, headers, raw))
                with suppress(OSError):
                    (answer or accept)(self, len(server.requests))

        super().__init__(ThreadingHTTPServer(("127.0.0.1", 0), Taking))
        self._server.daemon_threads = True

    def messages(self, path: str) -> Iterator[Any]:
        """The requests to a path, decoded."""
        yield from (decoded(at, raw) for at, _, raw in self.requests if at == path)

    def spans(self) -> list[Any]:
        """Every span that came, in order."""
        return [
            span
            for message in self.messages("/v1/traces")
            for resource in message.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def metrics(self) -> dict[str, Any]:
        """The metrics of the last request, by name."""
        *_, last = self.messages("/v1/metrics")
        return {
            metric.name: metric
            for resource in last.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def text(self) -> str:
        """Everything that came, but for the headers, in a readable form."""
        return "\n".join(str(decoded(path, raw)) for path, _, raw in self.requests)


def attributes_of(span: Any) -> dict[str, Any]:
    """The attributes of a span or of a data point, as plain values."""
    return {each.key: _plain(each.value) for each in span.attributes}


def _plain(value: Any) -> Any:
    kind = value.WhichOneof("value")
    held = getattr(value, kind)
    return tuple(map(_plain, held.values)) if kind == "array_value" else held


def accept(handler: Handler, _number: int) -> None:
    reply(handler, 200)


def reply(handler: Handler, status: int, **headers: str) -> None:
    handler.send_response(status)
    for name, value in {"content-length": "0", **headers}.items():
        handler.send_header(name, value)
    handler.end_headers()


def hang(_handler: Handler, _number: int) -> None:
    """Say nothing for longer than anybody waits."""
    time.sleep(30)


def drip(handler: Handler, _number: int) -> None:
    """Answer a byte now and then, so that no read ever takes long."""
    handler.send_response(200)
    handler.send_header("content-length", "1000")
    handler.end_headers()
    for _ in range(100):
        handler.wfile.write(b"x")
        handler.wfile.flush()
        time.sleep(0.3)


def flood(handler: Handler, _number: int) -> None:
    """Answer, and never stop."""
    handler.send_response(200)
    handler.end_headers()
    with suppress(OSError):
        while True:
            handler.wfile.write(bytes(1024 * 1024))


def hang_up(handler: Handler, _number: int) -> None:
    """Close the connection without a word."""
    handler.close_connection = True
    handler.connection.shutdown(socket.SHUT_RDWR)


def refuse_some(handler: Handler, _number: int) -> None:
    """Take the request but for three spans, or two data points."""
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

    if handler.path.endswith("/traces"):
        body = ExportTraceServiceResponse(partial_success={"rejected_spans": 3}).SerializeToString()
    else:
        body = ExportMetricsServiceResponse().SerializeToString()
    handler.send_response(200)
    handler.send_header("content-type", "application/x-protobuf")
    handler.send_header("content-length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def refuse_some_in_json(handler: Handler, _number: int) -> None:
    """The same in JSON, with a field that is not known here."""
    refused = {"rejectedSpans": "3", "errorMessage": "no", "more": 1} if handler.path.endswith("/traces") else {}
    body = json.dumps({"partialSuccess": refused}).encode()
    reply(handler, 200, **{"content-type": "application/json", "content-length": str(len(body))})
    handler.wfile.write(body)


def speak_http2(handler: Handler, _number: int) -> None:
    """Answer as a server of gRPC does whom somebody calls by HTTP/1.1: with settings, and that it goes away."""
    handler.wfile.write(bytes.fromhex("000000040000000000" + "000008070000000000" + "0000000000000001"))
    handler.close_connection = True


def busy(handler: Handler, _number: int) -> None:
    reply(handler, 503)


def broken(handler: Handler, _number: int) -> None:
    reply(handler, 500)


def elsewhere(handler: Handler, _number: int) -> None:
    reply(handler, 301, location="https://example.org/")


def deaf_to_metrics(handler: Handler, number: int) -> None:
    """Take the trace, then hang."""
    accept(handler, number) if number == 1 else hang(handler, number)
