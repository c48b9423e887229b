"""The HTTP client for models and their logins: independent of the environment, and limited in total time and size."""

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

#: An answer of 32,000 tokens, each in its own event, takes about five million bytes.
MOST_BYTES = 32 * 1024 * 1024
#: Seconds between two attempts to cut off an overdue call.
_BEAT = 0.1


class BrokenAnswer(Exception):
    """The response is not a complete answer of the Messages API; the message describes it."""


class Call:
    """One call in flight. `overdue` becomes true when its time is up and its connection is cut."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.overdue = False
        #: The network stream of the call, from the HTTP library.
        self.stream: Any = None
        self.is_over = Event()

    def watch(self) -> None:
        """Wait for the end of the call; cut its connection when the time is up."""
        seconds = self.seconds
        while not self.is_over.wait(seconds):
            self.overdue = True
            raw_socket = self.stream.get_extra_info("socket") if self.stream is not None else None
            if raw_socket is not None:
                with suppress(OSError):
                    # Shut down the plain socket below TLS, so that a reader sees the end at once.
                    socket.socket.shutdown(raw_socket, socket.SHUT_RDWR)
            # Keep trying: a socket that is being wrapped for TLS cannot be cut yet.
            seconds = _BEAT


_IN_FLIGHT: ContextVar[Call | None] = ContextVar("call in flight", default=None)


@contextmanager
def bounded_call(seconds: float) -> Iterator[Call]:
    """Treat everything that is sent and received inside the block, including the connection setup, as one call."""
    call = Call(seconds)
    watcher = Thread(target=call.watch, name="time of a model call", daemon=True)
    before = _IN_FLIGHT.set(call)
    watcher.start()
    try:
        yield call
    finally:
        call.is_over.set()
        # From here nothing is cut, so the next call can reuse the connection.
        watcher.join()
        _IN_FLIGHT.reset(before)


class BoundedTransport(httpx2.HTTPTransport):
    """The library's transport, which also tracks the connection of a call and counts the bytes received."""

    def __init__(self, **options: Any) -> None:  # noqa: ANN401 - the library's own
        super().__init__(**options)
        # The newest connection to each host. Requests are sequential, so it is the one to be reused.
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
        """Return a callback that records the call's connection. It receives the names and infos of the HTTP library's
        `trace`."""
        host = (request.url.host, request.url.port)
        call.stream = self._streams.get(host)

        def note(name: str, info: Mapping[str, Any]) -> None:
            if name.endswith((".connect_tcp.complete", ".start_tls.complete")):
                call.stream = self._streams[host] = info.get("return_value")

        return note


class _Counted(httpx2.SyncByteStream):
    """A response body that raises `BrokenAnswer` if it exceeds `MOST_BYTES`."""

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


#: Longest silence of a login request, in seconds.
LOGIN_TIMEOUT = 30.0
#: Seconds after which an idle connection is not reused.
IDLE_SECONDS = 5.0


def http_client(connection: Connection) -> httpx2.Client:
    """Build the client for one service. The SDK's own client takes proxies from the environment even if told not to.

    Requests that set no timeout of their own, as the SDK's do, have that of a login.
    """
    transport = BoundedTransport(
        verify=ssl_context(connection),
        trust_env=False,
        # The next turn of a quick step reuses the connection. After a long tool call it is not reused, because many
        # routers forget idle connections. After a fault the library closes it.
        limits=httpx2.Limits(max_keepalive_connections=1, keepalive_expiry=IDLE_SECONDS),
        proxy=httpx2.Proxy(connection.proxy) if connection.proxy else None,
        # A model may think for minutes. Without keep-alive probes, routers may forget the connection.
        socket_options=[(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)],
    )
    return httpx2.Client(transport=transport, trust_env=False, follow_redirects=False, timeout=LOGIN_TIMEOUT)


@cache
def ssl_context(connection: Connection) -> ssl.SSLContext:
    """Return a context that trusts the public authorities and those of the connection. All its clients share one:
    reading hundreds of certificates takes time."""
    context = httpx2.create_ssl_context(trust_env=False)
    if connection.certificates:
        context.load_verify_locations(cadata=connection.certificates)
    return context
