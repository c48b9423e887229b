"""The tools of a step with MCP servers: those of the sandbox, and those of the servers that the step names."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from stepflow.domain.agent.definition import McpServer, McpTool
from stepflow.domain.conversation import ToolResult, ToolSpec, ToolUse
from stepflow.domain.run import LARGEST_IMAGES, MOST_IMAGES
from stepflow.errors import DefinitionError, InputError
from stepflow.mcp.content import CallAnswer
from stepflow.mcp.servers import OpenServers, ServerProblem, ToolsChanged
from stepflow.ports import Tools
from stepflow.sandbox.output import OUTPUT_LIMIT, HeadTail


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

    def run_tool(self, use: ToolUse) -> ToolResult:
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
        return ToolResult(
            tool_use_id=use.id,
            text=output.text(),
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
