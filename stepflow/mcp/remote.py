"""The transport to a server that is called over https: bounded in size, and led to no other address."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httpx2

from stepflow.domain.connection import direct
from stepflow.domain.mcp import SECRET_REFERENCE
from stepflow.mcp.bounds import MOST_BYTES_OF_MESSAGE, CallBounds, TooMuch
from stepflow.model.http_client import ssl_context

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from mcp.client._transport import TransportStreams

    from stepflow.domain.connection import Connection, ConnectionTo
    from stepflow.domain.mcp import McpServer

#: Seconds until a connection stands, and without a byte of an answer.
_CONNECT_SECONDS, _SILENT_SECONDS = 20.0, 600.0
_UNREACHABLE = 503


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


class RemoteTransport:
    """Implements the package's `Transport` for one connection."""

    def __init__(self, server: McpServer, access: RemoteAccess, bounds: CallBounds) -> None:
        self._server, self._access, self._bounds = server, access, bounds
        self._opened = AsyncExitStack()

    async def __aenter__(self) -> TransportStreams:
        from mcp.client.streamable_http import streamable_http_client  # noqa: PLC0415 - loaded where it is used

        server = self._server
        async with AsyncExitStack() as opened:
            client = httpx2.AsyncClient(
                transport=_BoundedTransport(self._access.connection_to(server.url), self._bounds),
                # What is packed could unpack to any size.
                headers={**self._access.headers(server), "accept-encoding": "identity"},
                timeout=httpx2.Timeout(_CONNECT_SECONDS, read=_SILENT_SECONDS),
                trust_env=False,
                follow_redirects=False,
            )
            await opened.enter_async_context(client)
            streams = await opened.enter_async_context(
                streamable_http_client(server.url, http_client=client, max_sse_event_size=MOST_BYTES_OF_MESSAGE)
            )
            self._opened = opened.pop_all()
        return streams

    async def __aexit__(self, *exc: Any) -> bool | None:  # noqa: ANN401 - the protocol's own
        return await self._opened.__aexit__(*exc)


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
        except TooMuch as exc:
            return self._failed(str(exc))
        except httpx2.HTTPError as exc:
            said = str(exc) or type(exc).__name__
            advice = self._connection.advice(said)
            return self._failed(f"cannot be reached{self._connection.through}: {said}{f'. {advice}' if advice else ''}")
        if response.is_redirect or response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            return self._failed("leads to another address" if response.is_redirect else "packs what it sends")
        self._bounds.problem = f"answered with the HTTP status {response.status_code}" if response.is_error else ""
        assert isinstance(response.stream, httpx2.AsyncByteStream)  # noqa: S101 - an asynchronous client has no other
        return httpx2.Response(
            status_code=response.status_code,
            headers=response.headers,
            stream=_Counted(response.stream, self._bounds),
            extensions=response.extensions,
        )

    def _failed(self, problem: str) -> httpx2.Response:
        self._bounds.problem = problem
        return httpx2.Response(_UNREACHABLE)


class _Counted(httpx2.AsyncByteStream):
    """A body that ends where the server has sent too much."""

    def __init__(self, stream: httpx2.AsyncByteStream, bounds: CallBounds) -> None:
        self._stream, self._bounds = stream, bounds

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for part in self._stream:
                self._bounds.count(len(part))
                yield part
        except (TooMuch, httpx2.HTTPError) as exc:
            self._bounds.problem = str(exc) or "broke off"

    async def aclose(self) -> None:
        await self._stream.aclose()
