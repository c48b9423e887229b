"""The transport to a server in the sandbox: each message is a line of JSON on its standard input or output."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self

from stepflow.mcp.bounds import ENDED, MOST_BYTES_OF_MESSAGE, CallBounds, TooMuch

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams
    from mcp.shared.message import SessionMessage

    from stepflow.sandbox.server_process import ServerProcess


class StdioTransport:
    """Implements the package's `Transport` for one connection. It outlives neither its server nor `bounds`."""

    def __init__(self, process: ServerProcess, bounds: CallBounds) -> None:
        self._process, self._bounds = process, bounds

    async def __aenter__(self) -> TransportStreams:
        self._reader, self._output = await asyncio.open_connection(
            sock=self._process.stdout, limit=MOST_BYTES_OF_MESSAGE
        )
        _, self._input = await asyncio.open_connection(sock=self._process.stdin)
        asyncio.get_running_loop().add_reader(self._process.stderr, self._keep_words)
        return _Incoming(self._reader, self._bounds), _Outgoing(self._input)

    async def __aexit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_reader(self._process.stderr)
        for stream in (self._input, self._output):
            stream.transport.abort()

    def _keep_words(self) -> None:
        if not self._process.keep_words():
            asyncio.get_running_loop().remove_reader(self._process.stderr)


class _Stream:
    """The connection is the transport's to close."""

    async def aclose(self) -> None:
        pass

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass


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
        except TooMuch as exc:
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
