"""A connection to a server, in the words of the protocol's own package: its tools, and calls of them."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from stepflow.domain.mcp import McpTool
from stepflow.mcp.content import CallAnswer, read_answer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from mcp import Client
    from mcp.client import Transport

    from stepflow.domain.json import JsonObject

#: Pages of a list of tools, each of which a server may make as short as it likes.
_MOST_PAGES = 50


@asynccontextmanager
async def connect(transport: Transport) -> AsyncIterator[Client]:
    """A connection on which both sides have agreed on a version. It offers the server nothing: no model, no questions
    to a person, no folders."""
    from mcp import Client  # noqa: PLC0415 - the package is loaded where a step has a server
    from mcp_types import Implementation  # noqa: PLC0415

    async with Client(transport, cache=None, client_info=Implementation(name="stepflow", version="1")) as client:
        yield client


async def list_tools(client: Client) -> tuple[McpTool, ...]:
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


async def call_tool(client: Client, name: str, arguments: JsonObject) -> CallAnswer:
    """What the tool answers.

    Not by the package's own `call_tool`: that checks the answer by a schema of the server's, whose patterns may take
    forever.
    """
    from mcp_types import CallToolRequest, CallToolRequestParams, CallToolResult  # noqa: PLC0415 - as above

    request = CallToolRequest(params=CallToolRequestParams(name=name, arguments=arguments))
    result = await client.session.send_request(request, CallToolResult)
    return read_answer(result)
