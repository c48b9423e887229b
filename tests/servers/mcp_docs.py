"""A real MCP server, which speaks on its standard input and output."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from mcp.server.mcpserver import Image, MCPServer

server = MCPServer("docs")


@server.tool(description=os.environ.get("DOCS_DESCRIPTION", "Searches the documentation."))
def search(query: str) -> str:
    """Found once, and said again."""
    return f"found {query}"


@server.tool(description="Says what the server's process sees.")
def process() -> str:
    """Environment, folder and number of the process."""
    return json.dumps({"environment": dict(os.environ), "folder": str(Path.cwd()), "pid": os.getpid()})


@server.tool(description="Writes a file.")
def note(name: str, text: str) -> str:
    """A change of the checkout."""
    Path(name).write_text(text)
    return "written"


@server.tool(description="Fails.")
def fail() -> str:
    """An error of the tool's own."""
    raise ValueError("there is no such page")


@server.tool(description="Draws a picture.")
def draw() -> list[str | Image]:
    """A picture beside a text."""
    return ["a dot", Image(data=b"GIF89a", format="gif")]


@server.tool(description="Says very much.")
def much() -> str:
    """More than a model is shown."""
    return "begin" + "x" * 1_000_000 + "end"


@server.tool(description="Ends the server.")
def die() -> str:
    """Without an answer."""
    print("out of paper", file=sys.stderr, flush=True)
    os._exit(3)


if __name__ == "__main__":
    server.run("stdio")
