"""The HTTP client for models and their logins: not steered by the environment, and bounded in total time and size."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from threading import Event, Thread
from typing import Any

import httpx2

from stepflow.domain.connection import Connection
from stepflow.model.faults import BrokenAnswer

#: 32,000 tokens, each in an event of its own, are some five million bytes.
MOST_BYTES = 32 * 1024 * 1024
#: Seconds between two cuts of a call whose time is up.
_BEAT = 0.1


class Call:
    """One call in flight. `overdue` is true once its time was up and its connection was cut."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.overdue = False
        #: What its bytes come from, as the HTTP library has it.
        self.stream: Any = None
        self.is_over = Event()

    def watch(self) -> None:
        """Wait for the end of the call, and cut its connection when that comes too late."""
        seconds = self.seconds
        while not self.is_over.wait(seconds):
            self.overdue = True
            raw_socket = self.stream.get_extra_info("socket") if self.stream is not None else None
            if raw_socket is not None:
                with suppress(OSError):
                    # Of the plain socket below TLS: whoever reads from it sees the end at once.
                    socket.socket.shutdown(raw_socket, socket.SHUT_RDWR)
            # Again and again: a socket that is just being wrapped for TLS cannot be cut at once.
            seconds = _BEAT


_IN_FLIGHT: ContextVar[Call | None] = ContextVar("call in flight", default=None)


@contextmanager
def bounded_call(seconds: float) -> Iterator[Call]:
    """Everything that is sent and read inside the block, from the connection's first byte on, is one call."""
    call = Call(seconds)
    watcher = Thread(target=call.watch, name="time of a model call", daemon=True)
    before = _IN_FLIGHT.set(call)
    watcher.start()
    try:
        yield call
    finally:
        call.is_over.set()
        # Nothing of the call is cut any more: the next one may use its connection.
        watcher.join()
        _IN_FLIGHT.reset(before)


class BoundedTransport(httpx2.HTTPTransport):
    """The library's own, which also follows where a call goes and counts what comes back."""

    def __init__(self, **options: Any) -> None:  # noqa: ANN401 - the library's own
        super().__init__(**options)
        # The newest connection to each host: one request is made at a time, so it is the one that is used again.
        self._streams: dict[tuple[str, int | None], Any] = {}

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request."""
        call = _IN_FLIGHT.get()
        if call is not None:
            request.extensions = {**request.extensions, "trace": self._follow(call, request)}
        response = super().handle_request(request)
        assert isinstance(response.stream, httpx2.SyncByteStream)  # noqa: S101 - a synchronous client has no other
        return httpx2.Response(
            status_code=response.status_code,
            headers=response.headers,
            stream=_Counted(response.stream),
            extensions=response.extensions,
        )

    def _follow(self, call: Call, request: httpx2.Request) -> Callable[[str, Mapping[str, Any]], None]:
        """What remembers the call's connection; it receives each name and info of the HTTP library's `trace`."""
        host = (request.url.host, request.url.port)
        call.stream = self._streams.get(host)

        def note(name: str, info: Mapping[str, Any]) -> None:
            if name.endswith((".connect_tcp.complete", ".start_tls.complete")):
                call.stream = self._streams[host] = info.get("return_value")

        return note


class _Counted(httpx2.SyncByteStream):
    """A body that ends with `BrokenAnswer` when it does not end by itself."""

    def __init__(self, stream: httpx2.SyncByteStream) -> None:
        self._stream = stream

    def __iter__(self) -> Iterator[bytes]:
        size = 0
        for part in self._stream:
            size += len(part)
            if size > MOST_BYTES:
                raise BrokenAnswer(f"it does not end after {MOST_BYTES} bytes")
            yield part

    def close(self) -> None:
        self._stream.close()


#: Seconds that one request of a login may be silent.
LOGIN_TIMEOUT = 30.0
#: Seconds after which a connection that nobody uses is not used again.
IDLE_SECONDS = 5.0


def http_client(connection: Connection, *, timeout: float = LOGIN_TIMEOUT) -> httpx2.Client:
    """One client for one service. The SDK's own takes proxies from the environment even when told not to.

    `timeout` holds where a request brings none of its own, as the SDK's do.
    """
    transport = BoundedTransport(
        verify=ssl_context(connection),
        trust_env=False,
        # A connection is used again by the next turn of a quick step. What a long tool call left of it is not: many a
        # router forgets it. What a fault left of it the library closes itself.
        limits=httpx2.Limits(max_keepalive_connections=1, keepalive_expiry=IDLE_SECONDS),
        proxy=httpx2.Proxy(connection.proxy) if connection.proxy else None,
        # A model may think for minutes; without keep-alive probes a router on the way forgets the connection.
        socket_options=[(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)],
    )
    return httpx2.Client(transport=transport, trust_env=False, follow_redirects=False, timeout=timeout)


def ssl_context(connection: Connection) -> ssl.SSLContext:
    """The public authorities and those of the connection."""
    return _trusting(connection.certificates)


@cache
def _trusting(certificates: str) -> ssl.SSLContext:
    """One for all clients that trust these authorities: reading hundreds of them takes time."""
    context = httpx2.create_ssl_context(trust_env=False)
    if certificates:
        context.load_verify_locations(cadata=certificates)
    return context
