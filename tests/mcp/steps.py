"""A step with one server, and servers to give it."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from stepflow.domain.agent.agent_settings import McpServer, McpTool, digest_of, mcp_name
from stepflow.domain.conversation import ToolCall, ToolUse
from stepflow.mcp.servers import OpenServers, ToolsWithServers
from stepflow.sandbox.box import Toolbox


@dataclass
class Step:
    """A step whose only tools are those of one server."""

    toolbox: Toolbox
    servers: OpenServers
    server: McpServer
    limit: float = 20.0
    redact: object = str

    def __post_init__(self) -> None:
        self.tools = ToolsWithServers(
            self.toolbox, [self.server], self.servers, limit=lambda: self.limit, redact=self.redact
        )

    def begin(self) -> None:
        self.tools.begin_step(tuple(map(self.server.spec_of, self.server.tools)))

    def call(self, tool: str, **inputs: object) -> ToolCall:
        return self.tools.run_tool(ToolUse(tool_use_id="toolu_1", name=mcp_name(self.server.name, tool), input=inputs))

    def bash(self, command: str) -> str:
        return self.tools.run_tool(ToolUse(tool_use_id="toolu_1", name="bash", input={"command": command})).output


def docs(**env: str) -> McpServer:
    """The real server on stdio."""
    return McpServer(name="docs", command=(sys.executable, "mcp_docs.py"), env=env)


def script(program: str) -> McpServer:
    """A server that is this Python program, said to have one tool."""
    tool = McpTool(name="search", description="", input_schema={"type": "object"})
    return McpServer(name="docs", command=(sys.executable, "-c", program), tools=(tool,), digest=digest_of((tool,)))


#: Answers the handshake and the list of tools as a server of 2025 does, and `answer(message)` to the rest.
SPEAKS = """
import json, sys, time
def send(**message): sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\\n"); sys.stdout.flush()
def receive(): return json.loads(sys.stdin.readline() or sys.exit(0))
TOOLS = [{"name": "search", "inputSchema": {"type": "object"}}]
def listed(message): send(id=message["id"], result={"tools": TOOLS})
def serve(answer=lambda message: send(id=message["id"], result={"content": []}), listed=listed):
    while True:
        message = receive()
        match message["method"]:
            case "initialize":
                about = {"name": "docs", "version": "1"}
                result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": about}
                send(id=message["id"], result=result)
            case "tools/list": listed(message)
            case "tools/call": answer(message)
            case _ if "id" in message: send(id=message["id"], error={"code": -32601, "message": "Method not found"})
"""


def speaks(program: str):
    return script(f"{SPEAKS}\n{program}")
