"""The six tools that a step may offer to the model (flow.md §14).

Takes: a step's kind, the agent's `allowedTools`, a permission mode. Gives: the tools' specifications as data.
May touch: nothing; `toolbox/` runs them.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from stepflow.domain.conversation import ToolSpec
from stepflow.domain.words import PermissionMode, StepKind

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from stepflow.domain.json import JsonObject, JsonValue


def effective_tools(
    kind: StepKind | None, allowed_tools: AbstractSet[str] | None, mode: PermissionMode
) -> tuple[ToolSpec, ...]:
    """The kind's tools, less what `allowed_tools` (None: all) or the mode leaves out, in the order of `TOOL_SPECS`.

    A step without a kind has the tools of a work step (registry.md §5.2). Names that nobody knows are ignored.
    """
    named = _TOOLS_OF_KIND[kind or StepKind.WORK]
    if allowed_tools is not None and "*" not in allowed_tools:
        named = named & allowed_tools
    if mode is PermissionMode.PLAN:
        named = named & READ_ONLY_TOOLS
    return tuple(TOOL_SPECS_BY_NAME[name] for name in TOOL_SPECS_BY_NAME if name in named)


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


_PATH = "Path of the file, relative to the repository root."

_BASH = _tool(
    "bash",
    "Runs a command in a bash shell that starts in the repository root and lives for the whole step: the current "
    "folder, variables and functions stay from call to call. Standard output and standard error come back together; "
    "of long output the middle is left out. A non-zero exit code is an error. A command that runs into its timeout "
    "is killed with everything the shell has started, and the next call gets a fresh shell. Commands have no "
    "standard input. Start a background process with its output sent to a file; it ends with the step.",
    (),
    command=_text("The command. Leave it out only together with restart."),
    restart={"type": "boolean", "description": "True ends the shell and everything it started; a fresh one follows."},
    timeout_ms={
        "type": "integer",
        "minimum": 0,
        "description": "Longest run time in milliseconds; 120000 if left out.",
    },
)
_READ = _tool(
    "read",
    "Reads a text file of the repository, whole or a range of its lines. Lines come back as they are, without numbers.",
    ("file_path",),
    file_path=_text(_PATH),
    view_range={
        "type": "array",
        "items": {"type": "integer"},
        "minItems": 2,
        "maxItems": 2,
        "description": "First and last line, counted from 1, both included. A last line of 0 or less means the end.",
    },
)
_WRITE = _tool(
    "write",
    "Writes a text file of the repository, replacing what it held. Missing folders are made.",
    ("file_path", "content"),
    file_path=_text(_PATH),
    content=_text("The whole new content."),
)
_EDIT = _tool(
    "edit",
    "Replaces an exact piece of text in a file of the repository. The old text must occur exactly once, "
    "unless replace_all is true.",
    ("file_path", "old_string", "new_string"),
    file_path=_text(_PATH),
    old_string=_text("The text to replace, exactly as in the file, with its white space."),
    new_string=_text("The text to put there."),
    replace_all={"type": "boolean", "description": "True replaces every occurrence."},
)
_GLOB = _tool(
    "glob",
    "Lists the files and folders of the repository whose path fits a pattern, sorted by name, folders with a final "
    "slash. `*` and `?` stay inside one name, `**` spans folders, `{a,b}` are alternatives. Symbolic links are not "
    "followed; `.git` is never listed, `node_modules`, `.venv` and `__pycache__` only when the pattern or the path "
    "names them.",
    ("pattern",),
    pattern=_text("A pattern relative to `path`, such as `**/*.py`."),
    path=_text("The folder to look in, relative to the repository root; the root if left out."),
)
_GREP = _tool(
    "grep",
    "Searches the text files of the repository for a regular expression (Python syntax), line by line, and gives "
    "`path:line:text` for every line in which it is found. Leaves out the same folders as glob, and binary files.",
    ("pattern",),
    pattern=_text("The regular expression."),
    path=_text("The file or folder to search, relative to the repository root; the root if left out."),
)

#: By the name that `allowedTools` uses.
TOOL_SPECS_BY_NAME = MappingProxyType(
    {"Bash": _BASH, "Read": _READ, "Write": _WRITE, "Edit": _EDIT, "Glob": _GLOB, "Grep": _GREP}
)
TOOL_SPECS: tuple[ToolSpec, ...] = tuple(TOOL_SPECS_BY_NAME.values())
#: Every other name in `allowedTools` is ignored with SF210.
KNOWN_TOOL_NAMES = frozenset(TOOL_SPECS_BY_NAME)
READ_ONLY_TOOLS = frozenset({"Read", "Glob", "Grep"})
#: flow.md §14: every kind may use every tool; none of them holds a token.
_TOOLS_OF_KIND: dict[StepKind, frozenset[str]] = dict.fromkeys(StepKind, KNOWN_TOOL_NAMES)
