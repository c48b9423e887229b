"""The tools that a step offers to the model, with the six built-in tools as data (flow.md §14)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from stepflow.domain.agent.definition import AgentDefinition, Step, mcp_name
from stepflow.domain.conversation import ToolSpec
from stepflow.domain.json import JsonObject
from stepflow.domain.words import PermissionMode


def effective_tools(agent: AgentDefinition, step: Step, working_directory: str = ".") -> Mapping[str, ToolSpec]:
    """Return the tools that a step's model is offered, by their names in definitions (flow.md §14). Built-in tools come
    first, in the order of `TOOL_SPECS`, then MCP tools in the order of their servers.

    A step of any kind may have any tool; no tool holds a token. Unknown names are ignored.
    """
    pinned = {
        mcp_name(server.name, tool.name): server.spec_of(tool) for server in agent.mcp_servers for tool in server.tools
    }
    named = KNOWN_TOOL_NAMES if agent.allowed_tools is None else KNOWN_TOOL_NAMES & agent.allowed_tools
    if step.tools is not None:
        named = (named | pinned.keys()) & {*step.tools}
    if (step.permission_mode or agent.permission_mode) is PermissionMode.PLAN:
        # A server can claim anything about its tools, so none of them counts as read-only.
        named = named & READ_ONLY_TOOLS
    own = dict(TOOL_SPECS_BY_NAME)
    if working_directory != ".":
        starts = f"starts in {working_directory}/, below the repository root,"
        own["Bash"] = replace(_BASH, description=_BASH.description.replace("starts in the repository root", starts))
    return {name: spec for name, spec in {**own, **pinned}.items() if name in named}


def _tool(name: str, description: str, *required: str, **properties: JsonObject) -> ToolSpec:
    schema: JsonObject = {"type": "object", "properties": {**properties}}
    if required:
        schema["required"] = list(required)
    return ToolSpec(name=name, description=description, input_schema=schema)


_TEXT: JsonObject = {"type": "string"}
_FLAG: JsonObject = {"type": "boolean"}

# Every request includes these texts, so each fact appears only once. The system prompt says that paths are relative to
# the repository root. Facts that models already know about such tools are left out.
_BASH = _tool(
    "bash",
    "Runs `command` in a bash shell that starts in the repository root and has no standard input. Output and errors "
    "are one stream, cut in the middle if long. The step's end, a timeout and `restart` (without `command`) end the "
    "shell and all it started; a fresh one follows. Send a background process's output to a file.",
    command=_TEXT,
    restart=_FLAG,
    timeout_ms={"type": "integer", "minimum": 0, "default": 120_000},
)
_READ = _tool(
    "read",
    "Reads a text file, without line numbers.",
    "file_path",
    file_path=_TEXT,
    view_range={
        "type": "array",
        "items": {"type": "integer"},
        "minItems": 2,
        "maxItems": 2,
        "description": "First and last line, from 1; a last 0 means the end.",
    },
)
_WRITE = _tool(
    "write",
    "Creates or replaces a text file with `content`; makes missing folders.",
    "file_path",
    "content",
    file_path=_TEXT,
    content=_TEXT,
)
_EDIT = _tool(
    "edit",
    "Replaces `old_string` in a file (exact, with its white space, and unique unless `replace_all`) with `new_string`.",
    "file_path",
    "old_string",
    "new_string",
    file_path=_TEXT,
    old_string=_TEXT,
    new_string=_TEXT,
    replace_all=_FLAG,
)
_GLOB = _tool(
    "glob",
    "Lists files and folders whose path below `path` (default: the root) fits a pattern such as `src/**/*.{py,pyi}`. "
    "Leaves out symbolic links, `.git`, and, unless named, `node_modules`, `.venv` and `__pycache__`.",
    "pattern",
    pattern=_TEXT,
    path=_TEXT,
)
_GREP = _tool(
    "grep",
    "Gives `path:line:text` for each text line in the file or folder `path` (default: the root) that a Python regular "
    "expression matches. Leaves out what glob does.",
    "pattern",
    pattern=_TEXT,
    path=_TEXT,
)

#: Keyed by the names used in `allowedTools`.
TOOL_SPECS_BY_NAME = MappingProxyType(
    {"Bash": _BASH, "Read": _READ, "Write": _WRITE, "Edit": _EDIT, "Glob": _GLOB, "Grep": _GREP}
)
TOOL_SPECS: tuple[ToolSpec, ...] = tuple(TOOL_SPECS_BY_NAME.values())
#: Any other name in `allowedTools` is ignored, with SF210.
KNOWN_TOOL_NAMES = frozenset(TOOL_SPECS_BY_NAME)
READ_ONLY_TOOLS = frozenset({"Read", "Glob", "Grep"})
