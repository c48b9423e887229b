"""The transports to servers, in the sandbox and over https. A server may send so much for one call: it is as hostile as
a tool, and what it sends is read by the parent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

import httpx2

from stepflow.domain.agent.agent_settings import SECRET_REFERENCE, McpServer
from stepflow.domain.connection import Connection, ConnectionTo, direct
from stepflow.model.http_client import ssl_context
from stepflow.sandbox.commands import ServerProcess

if TYPE_CHECKING:
    # The package is loaded where a step has a server.
    from mcp.client._transport import ReadStream, TransportStreams
    from mcp.shared.message import SessionMessage

#: Of one message, and of all.
MOST_BYTES_OF_MESSAGE = 4 * 1024 * 1024
MOST_BYTES = 16 * 1024 * 1024
MOST_MESSAGES = 1000
#: The problem of a server whose end of the connection is closed.
ENDED = "has ended"
#: Seconds until a connection stands, and without a byte of an answer.
_CONNECT_SECONDS, _SILENT_SECONDS = 20.0, 600.0
_UNREACHABLE = 503


class TooMuchSent(Exception):
    """The server sent more than it may; the message says what."""


class CallBounds:
    """Counts what comes in."""

    def __init__(self) -> None:
        self._bytes = self._messages = 0
        #: Why the connection is lost, in words that follow the server's name; empty as long as it is not.
        self.problem = ""

    def begin_call(self) -> None:
        """What comes from here on belongs to the next call."""
        self._bytes = self._messages = 0

    def count(self, size: int, *, messages: int = 0) -> None:
        """Add so many bytes and messages. Raises `TooMuchSent`."""
        self._bytes += size
        self._messages += messages
        if self._bytes > MOST_BYTES or self._messages > MOST_MESSAGES:
            raise TooMuchSent(f"sent more than {MOST_MESSAGES} messages or {MOST_BYTES >> 20} MiB for one call")


class _Stream:
    """One side of a connection, which is its transport's to close."""

    async def aclose(self) -> None:
        pass

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass


class _BoundedMessages(_Stream):
    """Passes a bounded number of messages on. It leaves out what is no message, and notifications: nobody listens to
    them."""

    def __init__(self, stream: ReadStream[SessionMessage | Exception], bounds: CallBounds) -> None:
        self._stream, self._bounds = stream, bounds

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage:
        from mcp_types import JSONRPCNotification  # noqa: PLC0415 - the package is loaded where a step has a server

        try:
            while True:
                message = await self._stream.__anext__()
                self._bounds.count(0, messages=1)
                if not isinstance(message, Exception) and not isinstance(message.message, JSONRPCNotification):
                    return message
        except TooMuchSent as exc:
            self._bounds.problem = str(exc)
            raise StopAsyncIteration from None

    async def receive(self) -> SessionMessage:
        return await self.__anext__()


@asynccontextmanager
async def connect_process(process: ServerProcess, bounds: CallBounds) -> AsyncIterator[TransportStreams]:
    """Open the package's transport to a server in the sandbox."""
    loop = asyncio.get_running_loop()
    reader, output = await asyncio.open_connection(sock=process.stdout, limit=MOST_BYTES_OF_MESSAGE)
    _, writer = await asyncio.open_connection(sock=process.stdin)

    def keep_words() -> None:
        if not process.keep_words():
            loop.remove_reader(process.stderr)

    loop.add_reader(process.stderr, keep_words)
    try:
        yield _BoundedMessages(_Incoming(reader, bounds), bounds), _Outgoing(writer)
    finally:
        loop.remove_reader(process.stderr)
        for stream in (writer, output):
            stream.transport.abort()


class _Incoming(_Stream):
    def __init__(self, reader: asyncio.StreamReader, bounds: CallBounds) -> None:
        self._reader, self._bounds = reader, bounds

    def __aiter__(self) -> Self:
        return self

    async def receive(self) -> SessionMessage | Exception:
        return await self.__anext__()

    async def __anext__(self) -> SessionMessage | Exception:
        from mcp.shared.message import SessionMessage  # noqa: PLC0415 - the package is loaded where a step has a server
        from mcp_types import jsonrpc_message_adapter  # noqa: PLC0415

        try:
            line = await self._reader.readuntil(b"\n")
            self._bounds.count(len(line))
            return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
        except asyncio.LimitOverrunError:
            self._bounds.problem = f"sent a message of more than {MOST_BYTES_OF_MESSAGE >> 20} MiB"
        except TooMuchSent as exc:
            self._bounds.problem = str(exc)
        except (asyncio.IncompleteReadError, OSError):
            self._bounds.problem = ENDED
        except ValueError as exc:
            return exc
        raise StopAsyncIteration


class _Outgoing(_Stream):
    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    async def send(self, item: SessionMessage, /) -> None:
        import anyio  # noqa: PLC0415 - the package is loaded where a step has a server

        try:
            self._writer.write(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
            await self._writer.drain()
        except OSError as exc:
            raise anyio.BrokenResourceError from exc


@dataclass(frozen=True, kw_only=True)
class RemoteAccess:
    """What calls to remote servers need: the values of the input `mcp-secrets`, and the way to an address."""

    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    connection_to: ConnectionTo = direct

    def headers(self, server: McpServer) -> dict[str, str]:
        """Its headers with the secrets in them."""
        return {
            name: SECRET_REFERENCE.sub(lambda match: self.secrets.get(match[1], ""), value)
            for name, value in server.headers.items()
        }


@asynccontextmanager
async def connect_remote(
    server: McpServer, access: RemoteAccess, bounds: CallBounds
) -> AsyncIterator[TransportStreams]:
    """Open the package's transport to a server over https."""
    from mcp.client.streamable_http import streamable_http_client  # noqa: PLC0415 - loaded where it is used

    client = httpx2.AsyncClient(
        transport=_BoundedTransport(access.connection_to(server.url), bounds),
        # What is packed could unpack to any size.
        headers={**access.headers(server), "accept-encoding": "identity"},
        timeout=httpx2.Timeout(_CONNECT_SECONDS, read=_SILENT_SECONDS),
        trust_env=False,
        follow_redirects=False,
    )
    async with (
        client,
        streamable_http_client(server.url, http_client=client, max_sse_event_size=MOST_BYTES_OF_MESSAGE) as streams,
    ):
        incoming, outgoing = streams
        yield _BoundedMessages(incoming, bounds), outgoing


class _BoundedTransport(httpx2.AsyncHTTPTransport):
    """The library's own, which counts what comes back. What goes wrong is an answer for the package, which would
    otherwise end with it, and a problem for people."""

    def __init__(self, connection: Connection, bounds: CallBounds) -> None:
        super().__init__(
            verify=ssl_context(connection),
            trust_env=False,
            proxy=httpx2.Proxy(connection.proxy) if connection.proxy else None,
        )
        self._connection, self._bounds = connection, bounds

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request."""
        if request.method == "GET" and "last-event-id" not in request.headers:
            # The stream of what a server says unasked, which nobody listens to; this is the answer of one without it.
            return httpx2.Response(405)
        try:
            self._bounds.count(0, messages=1)
            response = await super().handle_async_request(request)
        except TooMuchSent as exc:
            return self._fail(str(exc))
        except httpx2.HTTPError as exc:
            said = str(exc) or type(exc).__name__
            advice = self._connection.advice(said)
            return self._fail(f"cannot be reached{self._connection.through}: {said}{f'. {advice}' if advice else ''}")
        if response.is_redirect or response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            return self._fail("leads to another address" if response.is_redirect else "packs what it sends")
        self._bounds.problem = f"answered with the HTTP status {response.status_code}" if response.is_error else ""
        assert isinstance(response.stream, httpx2.AsyncByteStream)  # noqa: S101 - an asynchronous client has no other
        return httpx2.Response(
            status_code=response.status_code,
            headers=response.headers,
            stream=_CountedBody(response.stream, self._bounds),
            extensions=response.extensions,
        )

    def _fail(self, problem: str) -> httpx2.Response:
        self._bounds.problem = problem
        return httpx2.Response(_UNREACHABLE)


class _CountedBody(httpx2.AsyncByteStream):
    """A body that ends where the server has sent too much."""

    def __init__(self, stream: httpx2.AsyncByteStream, bounds: CallBounds) -> None:
        self._stream, self._bounds = stream, bounds

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for part in self._stream:
                self._bounds.count(len(part))
                yield part
        except (TooMuchSent, httpx2.HTTPError) as exc:
            self._bounds.problem = str(exc) or "broke off"

    async def aclose(self) -> None:
        await self._stream.aclose()
