"""A step's MCP servers: started, compared with what the lock pins, and closed; and their tools, offered along with
those of the sandbox."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self, TypeVar

from pydantic import ValidationError

from stepflow.domain.activity import activity
from stepflow.domain.agent.agent_settings import McpServer, McpTool, digest_of
from stepflow.domain.conversation import ToolCall, ToolSpec, ToolUse
from stepflow.domain.json import JsonObject
from stepflow.domain.run import LARGEST_IMAGES, MOST_IMAGES
from stepflow.errors import DefinitionError, InputError
from stepflow.mcp.content import CallAnswer, read_answer
from stepflow.mcp.transports import ENDED, CallBounds, RemoteAccess, connect_process, connect_remote
from stepflow.ports import Tools
from stepflow.sandbox.commands import OUTPUT_LIMIT, HeadTail, ServerProcess
from stepflow.sandbox.egress.name_lookups import abandon_lookups
from stepflow.sandbox.launcher import CannotStart

if TYPE_CHECKING:
    # The package is loaded where a step has a server.
    from anyio.from_thread import BlockingPortal
    from mcp import Client
    from mcp.client import Transport


#: Seconds until a server answers for the first time: one that is fetched by npx or uvx takes its time.
START_SECONDS = 60.0
#: Seconds that a connection may take to end by itself.
_FAREWELL = 2.0
#: Characters of a server's own words in a message, and names of tools in a list.
_SHOWN, _NAMED = 300, 10
_NAME, _LONGEST_NAME = re.compile(r"[\w.-]{1,64}", re.ASCII), 64
#: Pages of a list of tools, each of which a server may make as short as it likes.
_MOST_PAGES = 50
Answer = TypeVar("Answer")


class ServerProblem(Exception):
    """A server cannot be used; the message says which and why."""


class ToolsChanged(ServerProblem):
    """A server lists other tools than the lock pins; the message says which."""


@dataclass(kw_only=True)
class _ServerConnection:
    """One server's, served by a task of the portal's. `digest` is that of the tools that it was seen to list."""

    bounds: CallBounds
    process: ServerProcess | None
    digest: str = ""
    ready: Future[Client] = field(default_factory=Future)
    task: Future[None] = field(default_factory=Future)
    over: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, transport: Transport) -> None:
        """Hold the connection until it is `over`."""
        from mcp import Client  # noqa: PLC0415 - the package is loaded where a step has a server
        from mcp_types import Implementation  # noqa: PLC0415

        # What is lost in a task would be printed with the server's words in it.
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        abandon_lookups(asyncio.get_running_loop())
        # It offers the server nothing: no model, no questions to a person, no folders.
        async with Client(transport, cache=None, client_info=Implementation(name="stepflow", version="1")) as client:
            self.ready.set_result(client)
            await self.over.wait()


class OpenServers:
    """The connections of one step at a time. `launch` starts a program in the sandbox; `waiting` is what an answer is
    waited for in: a signal may interrupt it. `redact` masks secrets in a server's words before they are shortened."""

    def __init__(
        self,
        launch: Callable[[tuple[str, ...], Mapping[str, str]], ServerProcess],
        access: RemoteAccess,
        waiting: Callable[[], AbstractContextManager[object]] = nullcontext,
        *,
        redact: Callable[[str], str] = str,
    ) -> None:
        self._launch, self._access, self._waiting, self._redact = launch, access, waiting, redact
        self._ending = ExitStack()
        self._portal: BlockingPortal | None = None
        self._connections: dict[str, _ServerConnection] = {}

    def list_tools(self, server: McpServer) -> tuple[McpTool, ...]:
        """The tools that the server lists; it is started if it is not open. Raises `ServerProblem`."""
        connection = self._connections.get(server.name) or self._connect(server)
        return self._ask(server, connection, _list_tools, START_SECONDS)

    def open(self, server: McpServer) -> None:
        """Start the server if it is not open. Raises `ServerProblem`, and `ToolsChanged` where it is not the server
        that was locked: a connection counts only once its list was seen and is the one that is pinned."""
        if (opened := self._connections.get(server.name)) and opened.digest == server.digest:
            return
        listed = self.list_tools(server)
        if digest_of(listed) == server.digest:
            self._connections[server.name].digest = server.digest
            return
        self._drop(server)
        changes = compare_tools(server.tools, listed).masked(self._redact)
        raise ToolsChanged(f'The MCP server "{server.name}" lists other tools than its lock pins: {changes}.')

    def call(self, server: McpServer, tool: McpTool, arguments: JsonObject, seconds: float) -> CallAnswer:
        """What a tool of an open server answers. Raises `ServerProblem`; a connection that is lost is opened again by
        the next call."""
        self.open(server)
        connection = self._connections[server.name]
        return self._ask(server, connection, lambda client: _call_tool(client, tool.name, arguments), seconds)

    def close(self) -> None:
        """End every connection; what runs in the sandbox is the sandbox's to end."""
        connections, self._connections = self._connections, {}
        try:
            if self._portal:
                for connection in connections.values():
                    self._portal.call(connection.over.set)
                wait([connection.task for connection in connections.values()], _FAREWELL)
        finally:
            self._portal = None
            self._ending.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _connect(self, server: McpServer) -> _ServerConnection:
        portal = self._portal or self._open_portal()
        bounds = CallBounds()
        connection = _ServerConnection(bounds=bounds, process=None)
        if server.url:
            transport: Transport = connect_remote(server, self._access, bounds)
        else:
            try:
                connection.process = self._launch(server.command, server.env)
            except CannotStart as exc:
                raise _problem(server, f"cannot be started: {exc}") from exc
            self._ending.callback(connection.process.close)
            transport = connect_process(connection.process, bounds)
        self._connections[server.name] = connection
        connection.task = portal.start_task_soon(connection.serve, transport)
        ready: list[Future[Any]] = [connection.ready, connection.task]
        with activity(f"starting the MCP server {server.name}"), self._waiting():
            wait(ready, START_SECONDS, FIRST_COMPLETED)
        if not connection.ready.done():
            error = connection.task.exception() if connection.task.done() else None
            connection.task.cancel()
            raise self._server_problem(server, connection, error, START_SECONDS)
        return connection

    def _open_portal(self) -> BlockingPortal:
        from anyio.from_thread import start_blocking_portal  # noqa: PLC0415 - loaded where a step has a server

        try:
            import mcp  # noqa: F401, PLC0415 - the same
        except ImportError as exc:
            raise InputError(
                "The agent has MCP servers, and the package for them is not installed.",
                hint="Install it with: pip install 'stepflow[mcp]'.",
            ) from exc
        # The package logs what servers send.
        logger = logging.getLogger("mcp")
        logger.propagate, logger.handlers = False, [logging.NullHandler()]
        self._portal = portal = self._ending.enter_context(start_blocking_portal())
        # Whatever is still at work is cut off.
        self._ending.callback(lambda: portal.call(portal.stop, True))
        return portal

    def _ask(
        self,
        server: McpServer,
        connection: _ServerConnection,
        question: Callable[[Client], Awaitable[Answer]],
        seconds: float,
    ) -> Answer:
        import anyio  # noqa: PLC0415 - loaded where a step has a server

        assert self._portal is not None  # noqa: S101 - whoever has a connection has opened it
        connection.bounds.begin_call()

        async def ask() -> Answer:
            with anyio.fail_after(seconds):
                return await question(connection.ready.result())

        try:
            with self._waiting():
                return self._portal.start_task_soon(ask).result()
        # What the package makes of an answer that no server should give has no kinds of its own.
        except Exception as exc:
            raise self._server_problem(server, connection, exc, seconds) from exc

    def _server_problem(
        self, server: McpServer, connection: _ServerConnection, error: BaseException | None, seconds: float
    ) -> ServerProblem:
        """What went wrong, in the words of the transport if it knows. A connection is kept where the server itself
        has answered with an error."""
        from mcp import MCPError  # noqa: PLC0415 - loaded where a step has a server
        from mcp_types import CONNECTION_CLOSED  # noqa: PLC0415

        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        is_closed = isinstance(error, MCPError) and error.code == CONNECTION_CLOSED
        problem = connection.bounds.problem or (ENDED if is_closed and connection.process else "")
        match error:
            case None | TimeoutError() | CancelledError():
                said = f"did not answer within {seconds:g} s"
            case ValidationError():
                said = "gave an answer that the protocol does not know"
            case _:
                said = f"gave no answer: {self._redact_words(str(error) or type(error).__name__)[:_SHOWN]}"
        if problem or is_closed or not isinstance(error, MCPError):
            self._drop(server)
        if problem == ENDED and connection.process and (words := connection.process.last_words()):
            problem = f"{ENDED}. Its last words: {self._redact_words(words)[-_SHOWN:]}"
        return _problem(server, problem or said)

    def _redact_words(self, words: str) -> str:
        """In one line."""
        return " ".join(self._redact(words).split())

    def _drop(self, server: McpServer) -> None:
        if (connection := self._connections.pop(server.name, None)) and self._portal:
            self._portal.call(connection.over.set)


@dataclass(frozen=True, kw_only=True)
class ToolChanges:
    """How the tools that a server lists differ from those that are pinned, by their names."""

    new: tuple[str, ...]
    gone: tuple[str, ...]
    changed: tuple[str, ...]

    def masked(self, redact: Callable[[str], str]) -> ToolChanges:
        """The same without the secrets that a stranger may have put into names."""
        kinds = (self.new, self.gone, self.changed)
        new, gone, changed = (tuple(map(redact, names)) for names in kinds)
        return ToolChanges(new=new, gone=gone, changed=changed)

    def __str__(self) -> str:
        """In a few words; a stranger chose the names."""
        kinds = (("new", self.new), ("gone", self.gone), ("changed", self.changed))
        return "; ".join(f"{kind}: {', '.join(map(_shown_name, names[:_NAMED]))}" for kind, names in kinds if names)


def compare_tools(pinned: Iterable[McpTool], listed: Iterable[McpTool]) -> ToolChanges:
    """What a server that lists these tools has changed."""
    before, now = {tool.name: tool for tool in pinned}, {tool.name: tool for tool in listed}
    return ToolChanges(
        new=tuple(name for name in now if name not in before),
        gone=tuple(name for name in before if name not in now),
        changed=tuple(name for name in now if name in before and now[name] != before[name]),
    )


def _problem(server: McpServer, problem: str) -> ServerProblem:
    return ServerProblem(f'The MCP server "{server.name}" {problem.rstrip(".")}.')


def _shown_name(name: str) -> str:
    return name if _NAME.fullmatch(name) else json.dumps(name)[:_LONGEST_NAME]


async def _list_tools(client: Client) -> tuple[McpTool, ...]:
    """All tools, as the server lists them now."""
    from mcp_types import PaginatedRequestParams  # noqa: PLC0415 - the package is loaded where a step has a server

    tools: list[McpTool] = []
    cursor: str | None = None
    for _ in range(_MOST_PAGES):
        page = await client.session.list_tools(params=PaginatedRequestParams(cursor=cursor))
        tools += (
            McpTool(name=tool.name, description=tool.description or "", input_schema=tool.input_schema)
            for tool in page.tools
        )
        cursor = page.next_cursor
        if cursor is None:
            return tuple(tools)
    raise ValueError(f"its list of tools has no end after {_MOST_PAGES} pages")


async def _call_tool(client: Client, name: str, arguments: JsonObject) -> CallAnswer:
    """What the tool answers.

    Not by the package's own `call_tool`: that checks the answer by a schema of the server's, whose patterns may take
    forever.
    """
    from mcp_types import CallToolRequest, CallToolRequestParams, CallToolResult  # noqa: PLC0415 - as above

    request = CallToolRequest(params=CallToolRequestParams(name=name, arguments=arguments))
    result = await client.session.send_request(request, CallToolResult)
    return read_answer(result)


class ToolsWithServers:
    """Implements the port `Tools`. `limit` gives the seconds that a call may take now; `redact` keeps secrets, which
    a server may send back, from the model."""

    def __init__(
        self,
        tools: Tools,
        servers: Iterable[McpServer],
        open_servers: OpenServers,
        *,
        limit: Callable[[], float],
        redact: Callable[[str], str] = str,
    ) -> None:
        self._tools, self._open = tools, open_servers
        self._by_name: dict[str, tuple[McpServer, McpTool]] = {
            server.spec_of(tool).name: (server, tool) for server in servers for tool in server.tools
        }
        self._limit, self._redact = limit, redact
        self._images_left, self._image_characters_left = MOST_IMAGES, LARGEST_IMAGES * 4 // 3

    def begin_step(self, tools: tuple[ToolSpec, ...]) -> None:
        """Start the servers of these tools. Raises `InputError` for one that cannot be used, and `DefinitionError` for
        one that lists other tools than the lock pins."""
        self._tools.begin_step(tools)
        # Every later request of the step's conversation carries them again.
        self._images_left, self._image_characters_left = MOST_IMAGES, LARGEST_IMAGES * 4 // 3
        for server, _ in (self._by_name[tool.name] for tool in tools if tool.name in self._by_name):
            try:
                self._open.open(server)
            except ToolsChanged as exc:
                raise DefinitionError(
                    self._redact(str(exc)),
                    hint="Run `stepflow mcp lock` for this agent, and read what changed before you commit it.",
                ) from exc
            except ServerProblem as exc:
                raise InputError(
                    self._redact(str(exc)), hint="Correct `mcpServers` in agent.json, or what the server needs."
                ) from exc

    def run_tool(self, use: ToolUse) -> ToolCall:
        """Run one call."""
        if use.name not in self._by_name:
            return self._tools.run_tool(use)
        server, tool = self._by_name[use.name]
        begun = time.monotonic()
        try:
            answer = self._open.call(server, tool, use.input, self._limit())
        except ServerProblem as exc:
            answer = CallAnswer(parts=(str(exc),), is_error=True)
        text, images = answer.shown(images=self._images_left, characters=self._image_characters_left)
        self._images_left -= len(images)
        self._image_characters_left -= sum(len(image.data) for image in images)
        output = HeadTail(OUTPUT_LIMIT)
        output.feed(self._redact(text).encode("utf-8", "replace"))
        return ToolCall(
            **vars(use),
            output=output.text(),
            is_error=answer.is_error,
            seconds=time.monotonic() - begun,
            images=images,
        )

    def end_step(self) -> None:
        """Let go of the servers, and end what runs."""
        try:
            self._open.close()
        finally:
            self._tools.end_step()
