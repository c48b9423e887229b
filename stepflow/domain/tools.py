"""The tools that a step offers to the model; the six of our own as data (flow.md §14)."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from stepflow.domain.conversation import ToolSpec
from stepflow.domain.mcp import mcp_name
from stepflow.domain.words import PermissionMode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepflow.domain.definition import AgentDefinition, Step
    from stepflow.domain.json import JsonObject, JsonValue


def effective_tools(agent: AgentDefinition, step: Step, working_directory: str = ".") -> Mapping[str, ToolSpec]:
    """What a step's model is offered, by the names that definitions use (flow.md §14): in the order of `TOOL_SPECS`,
    then in that of the MCP servers.

    Every kind of step may have every tool; none of them holds a token. Names that nobody knows are ignored.
    """
    pinned = {
        mcp_name(server.name, tool.name): server.spec_of(tool) for server in agent.mcp_servers for tool in server.tools
    }
    named = KNOWN_TOOL_NAMES if agent.allowed_tools is None else KNOWN_TOOL_NAMES & agent.allowed_tools
    if step.tools is not None:
        named = (named | pinned.keys()) & {*step.tools}
    if (step.permission_mode or agent.permission_mode) is PermissionMode.PLAN:
        # What a server says of its tools proves nothing, so none of them counts as one that only reads.
        named = named & READ_ONLY_TOOLS
    own = dict(TOOL_SPECS_BY_NAME)
    if working_directory != ".":
        starts = f"starts in {working_directory}/, below the repository root,"
        own["Bash"] = replace(_BASH, description=_BASH.description.replace("starts in the repository root", starts))
    return {name: spec for name, spec in {**own, **pinned}.items() if name in named}


def _tool(name: str, description: str, required: tuple[str, ...], **properties: JsonObject) -> ToolSpec:
    needed: list[JsonValue] = list(required)
    schema: JsonObject = {
        "type": "object",
        "properties": dict(properties),
        "required": needed,
        "additionalProperties": False,
    }
    return ToolSpec(name=name, description=description, input_schema=schema)


def _text(description: str) -> JsonObject:
    return {"type": "string", "description": description}


_PATH = "Relative to the repository root."

# Every request carries these texts: what a model knows of such tools by itself is not said.
_BASH = _tool(
    "bash",
    "Runs a command in a bash shell that starts in the repository root and lives for the whole step, with one stream "
    "for output and errors, the middle left out if long, and no standard input. At a timeout the shell and all it "
    "started are killed. Send a background process's output to a file; it ends with the step.",
    (),
    command=_text("Leave out only with restart."),
    restart={"type": "boolean", "description": "Ends the shell and all it started; a fresh one follows."},
    timeout_ms={"type": "integer", "minimum": 0, "description": "Default 120000."},
)
_READ = _tool(
    "read",
    "Reads a text file, whole or a range of its lines, without line numbers.",
    ("file_path",),
    file_path=_text(_PATH),
    view_range={
        "type": "array",
        "items": {"type": "integer"},
        "minItems": 2,
        "maxItems": 2,
        "description": "First and last line, from 1, both included; 0 as the last means the end.",
    },
)
_WRITE = _tool(
    "write",
    "Writes a text file, replacing what it held; makes missing folders.",
    ("file_path", "content"),
    file_path=_text(_PATH),
    content=_text("The whole new content."),
)
_EDIT = _tool(
    "edit",
    "Replaces an exact piece of text in a file. It must occur exactly once, unless replace_all is true.",
    ("file_path", "old_string", "new_string"),
    file_path=_text(_PATH),
    old_string=_text("Exactly as in the file, with its white space."),
    new_string=_text("What to put there."),
    replace_all={"type": "boolean", "description": "Replaces every occurrence."},
)
_GLOB = _tool(
    "glob",
    "Lists files and folders whose path fits a pattern such as `src/**/*.{py,pyi}`; follows no symbolic links. Leaves "
    "out `.git`, and `node_modules`, `.venv` and `__pycache__` unless they are named.",
    ("pattern",),
    pattern=_text("Relative to `path`."),
    path=_text("The folder to look in; the root if left out."),
)
_GREP = _tool(
    "grep",
    "Searches text files line by line and gives `path:line:text` for each match. Leaves out what glob does.",
    ("pattern",),
    pattern=_text("A regular expression (Python syntax)."),
    path=_text("The file or folder to search; the root if left out."),
)

#: By the name that `allowedTools` uses.
TOOL_SPECS_BY_NAME = MappingProxyType(
    {"Bash": _BASH, "Read": _READ, "Write": _WRITE, "Edit": _EDIT, "Glob": _GLOB, "Grep": _GREP}
)
TOOL_SPECS: tuple[ToolSpec, ...] = tuple(TOOL_SPECS_BY_NAME.values())
#: Every other name in `allowedTools` is ignored with SF210.
KNOWN_TOOL_NAMES = frozenset(TOOL_SPECS_BY_NAME)
READ_ONLY_TOOLS = frozenset({"Read", "Glob", "Grep"})
