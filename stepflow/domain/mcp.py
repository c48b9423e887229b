"""MCP servers (https://modelcontextprotocol.io), whose tools a step may name, as the agent's definition pins them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from stepflow.domain.conversation import ToolSpec
from stepflow.domain.json import JsonObject

#: What the names of these tools begin with: `mcp__<server>__<tool>`.
MCP_PREFIX = "mcp__"
#: What stands in a header for a value of the input `mcp-secrets`, with the value's name as its group.
SECRET_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


@dataclass(frozen=True, kw_only=True)
class McpTool:
    """A tool as its server lists it."""

    name: str
    description: str
    input_schema: JsonObject


@dataclass(frozen=True, kw_only=True)
class McpServer:
    """A server of `mcpServers` in agent.json.

    One with a `command` (program and arguments) runs in the sandbox, with `env` and the little that every program
    needs. One with a `url` is called from outside of it; in its `headers`, `${NAME}` stands for a value of the input
    `mcp-secrets`. `tools` are what the lock file pins, and `digest` is theirs.
    """

    name: str
    command: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    tools: tuple[McpTool, ...] = ()
    digest: str = ""

    @property
    def secret_names(self) -> tuple[str, ...]:
        """The values of `mcp-secrets` that its headers refer to."""
        return tuple(dict.fromkeys(name for value in self.headers.values() for name in SECRET_REFERENCE.findall(value)))

    def spec_of(self, tool: McpTool) -> ToolSpec:
        """The tool as it is offered to a model."""
        return ToolSpec(
            name=mcp_name(self.name, tool.name), description=tool.description, input_schema=tool.input_schema
        )


def mcp_name(server: str, tool: str) -> str:
    """The name by which steps and models know a server's tool."""
    return f"{MCP_PREFIX}{server}__{tool}"


def digest_of(tools: Iterable[McpTool]) -> str:
    """A SHA-256 over the names, descriptions and schemas, in whichever order the server lists them."""
    listed = sorted([tool.name, tool.description, json.dumps(tool.input_schema, sort_keys=True)] for tool in tools)
    return f"sha256:{hashlib.sha256(json.dumps(listed).encode()).hexdigest()}"
