"""What a server may send for one call: it is as hostile as a tool, and what it sends is read by the parent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from mcp.client import Transport
    from mcp.client._transport import ReadStream, TransportStreams
    from mcp.shared.message import SessionMessage

#: Of one message, and of all.
MOST_BYTES_OF_MESSAGE = 4 * 1024 * 1024
MOST_BYTES = 16 * 1024 * 1024
MOST_MESSAGES = 1000
#: The problem of a server whose end of the connection is closed.
ENDED = "has ended"


class TooMuch(Exception):
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
        """Add so many bytes and messages. Raises `TooMuch`."""
        self._bytes += size
        self._messages += messages
        if self._bytes > MOST_BYTES or self._messages > MOST_MESSAGES:
            raise TooMuch(f"sent more than {MOST_MESSAGES} messages or {MOST_BYTES >> 20} MiB for one call")


class BoundedTransport:
    """A transport that passes a bounded number of messages on. It leaves out what is no message, and notifications:
    nobody listens to them."""

    def __init__(self, transport: Transport, bounds: CallBounds) -> None:
        self._transport, self._bounds = transport, bounds

    async def __aenter__(self) -> TransportStreams:
        incoming, outgoing = await self._transport.__aenter__()
        return _Messages(incoming, self._bounds), outgoing

    async def __aexit__(self, *error: Any) -> bool | None:  # noqa: ANN401 - the protocol's own
        return await self._transport.__aexit__(*error)


class _Messages:
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
        except TooMuch as exc:
            self._bounds.problem = str(exc)
            raise StopAsyncIteration from None

    async def receive(self) -> SessionMessage:
        return await self.__anext__()

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
