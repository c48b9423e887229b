"""Settings from an agent's files that other rooms read as written, with the base class of all models of these files;
among them the models that a step may use, skills, and tools: those of MCP servers, and the built-in ones as data."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, ClassVar, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    Strict,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    field_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from stepflow.domain.conversation import ToolSpec
from stepflow.domain.effect import AllowedEffect
from stepflow.domain.json import JsonObject, JsonValue
from stepflow.domain.words import CloseBy, ClosureAction, Effort

#: Marks a key for which `null` means the same as an absent key.
NULL_ALLOWED = "null allowed"

Item = TypeVar("Item")
#: A list in a file. The list itself is converted to a tuple; its items stay strict.
Items = Annotated[tuple[Item, ...], Strict(False)]
AtLeastOne = Annotated[int, Field(ge=1)]


@dataclass(frozen=True)
class Code:
    """Gives a key its own error codes: one for a missing key, one for a wrong value.

    With `inside`, the second code also covers every error inside the value.
    """

    missing: str = "SF107"
    wrong: str | None = None
    inside: bool = False


class FileModel(BaseModel):
    """Base of the file models. A required key must not be empty. Only keys marked with `NULL_ALLOWED` may be `null`."""

    model_config = ConfigDict(
        # Built on first use: an agent of one dialect does not need the models of the other.
        defer_build=True,
        extra="forbid",
        frozen=True,
        strict=True,
        alias_generator=to_camel,
        validate_by_name=True,
    )

    #: Known keys that have no effect here (SF111).
    no_effect: ClassVar[frozenset[str]] = frozenset()
    #: Keys that only editors read; they are accepted without a message.
    for_editors: ClassVar[frozenset[str]] = frozenset()
    #: Keys whose values stand apart: a broken one leaves the others to be read.
    apart: ClassVar[frozenset[str]] = frozenset()
    #: True if every key that is not a field has no effect.
    rest_has_no_effect: ClassVar[bool] = False

    @field_validator("*", mode="wrap")
    @classmethod
    def _check_presence(cls, value: object, check: ValidatorFunctionWrapHandler, info: ValidationInfo) -> object:
        declared = cls.model_fields[info.field_name or ""]
        if declared.is_required() and value is None:
            raise PydanticCustomError("missing", "is null")
        checked = check(value)
        if checked is None and NULL_ALLOWED not in declared.metadata:
            raise PydanticCustomError("null", "is null")
        if declared.is_required() and (checked in ([], {}) or (isinstance(checked, str) and not checked.strip())):
            raise PydanticCustomError("empty", "is empty")
        return checked


def refuse(code: str, message: str, fix: str) -> PydanticCustomError:
    """A fault in the shape of a value, with a rule's code."""
    return PydanticCustomError(code, "{message}", {"message": message, "fix": fix})


def _check_part(value: str, info: ValidationInfo) -> str:
    if value and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", value):
        message = f'"{to_camel(info.field_name or "")}" is "{value}", which is not allowed in a path'
        raise refuse("SF109", message, "Use letters, digits, dot, underscore and hyphen only.")
    return value


#: A part of a prompt's address.
PathPart = Annotated[str, AfterValidator(_check_part)]


class StepCommand(FileModel):
    """`runner` of a closure step: a process that answers instead of the model (definition.md §5.5). `timeout` is in
    milliseconds."""

    command: Annotated[str, Code("SF311")]
    args: Items[str] = ()
    timeout: Annotated[float, Field(gt=0)] = 30000


class ParameterRules(FileModel):
    """`parameters.<name>.validation`."""

    min: float | None = None
    max: float | None = None
    pattern: str | None = None
    enum: Annotated[Items[JsonValue], Field(min_length=1)] | None = None


class Parameter(FileModel):
    """`parameters.<name>`: a run argument that the agent declares (definition.md §2.3). `cli` is its flag."""

    type: Annotated[Literal["string", "number", "boolean", "array"], Code("SF207", "SF207")]
    cli: Annotated[str, Code("SF207", "SF207"), Field(pattern=r"^--[a-z][a-z0-9-]*$")]
    description: str | None = None
    required: bool = False
    default: Annotated[JsonValue, NULL_ALLOWED] = None  # null is of no type, which has an error of its own
    validation: ParameterRules | None = None


class CompositePart(FileModel):
    """One of `conditions` of `meta:composite`."""

    type: Annotated[str, Code("SF204")]
    config: VerdictConfig | None = None


class VerdictConfig(FileModel):
    """`runner.verdict.config`: the keys of all verdict types. `required_fields` are names, or names and values."""

    no_effect = frozenset({"handlerPath"})
    max_iterations: AtLeastOne | None = None
    max_visits_per_step: AtLeastOne | None = None
    max_turns_per_step: AtLeastOne | None = None
    max_checks: AtLeastOne | None = None
    verdict_keyword: str | None = None
    signal_type: str | None = None
    required_fields: JsonValue = None
    operator: Literal["and", "or", "first"] | None = None
    conditions: list[CompositePart] | None = None


#: The highest token limit that agent.json may set for one answer. No model of the Messages API gives more.
LARGEST_OUTPUT = 128_000
#: Default limits on what the commits of a run may change.
DEFAULT_MOST_FILES = 300
DEFAULT_MOST_BYTES = 8 * 1024 * 1024
#: The largest limits that agent.json may set. GitHub lists at most this many files of a pull request, and the bundle
#: that carries commits out of the sandbox holds little more.
LARGEST_MOST_FILES = 3000
LARGEST_MOST_BYTES = 24 * 1024 * 1024


class PullRequestSettings(FileModel):
    """`runner.integrations.github.pullRequest` (boundary.md)."""

    enabled: bool = True
    draft: bool = True
    base: str | None = None
    branch_prefix: str = "stepflow/"
    title: str | None = None
    max_files: Annotated[int, Field(ge=1, le=LARGEST_MOST_FILES)] = DEFAULT_MOST_FILES
    max_bytes: Annotated[int, Field(ge=1, le=LARGEST_MOST_BYTES)] = DEFAULT_MOST_BYTES


class CompletionLabels(FileModel):
    """`runner.integrations.github.labels.completion`."""

    add: Items[str] = ()
    remove: Items[str] = ()


class Labels(FileModel):
    """`runner.integrations.github.labels`: only `completion` has an effect."""

    rest_has_no_effect = True
    completion: CompletionLabels = CompletionLabels()


class CommentSettings(FileModel):
    """`runner.integrations.github.comment`. Without a `summary`, the comment is the answer's own text or none."""

    enabled: bool = True
    summary: bool = True


class IssueContext(StrEnum):
    """What the model is shown with the issue, out of the issue's repository."""

    LABELS = "labels"
    SIMILAR_ISSUES = "similar_issues"
    ISSUE_FORMS = "issue_forms"


class ReviewSettings(FileModel):
    """`runner.integrations.github.review`."""

    may_approve: bool = False


#: boundary.md: any other effect is refused unless the definition lists it.
DEFAULT_EFFECTS = (AllowedEffect.COMMENT, AllowedEffect.LABELS, AllowedEffect.CLOSE, AllowedEffect.PULL_REQUEST)
DEFAULT_PROTECTED_PATHS = (".github/**", "**/.agent/**", "action.yml", "CODEOWNERS")


class GitHubSettings(FileModel):
    """`runner.integrations.github` (boundary.md). If `allowed_labels` is None, every label except the trigger labels is
    allowed."""

    enabled: bool = True
    default_closure_action: Annotated[ClosureAction, Strict(False)] | None = None
    labels: Labels = Labels()
    allowed_effects: Items[Annotated[AllowedEffect, Strict(False)]] = DEFAULT_EFFECTS
    allowed_labels: Items[str] | None = None
    allowed_link_hosts: Items[str] = ()
    context: Items[Annotated[IssueContext, Strict(False)]] = ()
    pull_request: PullRequestSettings = PullRequestSettings()
    comment: CommentSettings = CommentSettings()
    review: ReviewSettings = ReviewSettings()
    protected_paths: Items[str] = DEFAULT_PROTECTED_PATHS
    allowed_secret_paths: Items[str] = ()
    close_by: Annotated[CloseBy, Strict(False)] = CloseBy.AUTO

    @property
    def comments(self) -> bool:
        """Return whether a run may comment on its issue."""
        return self.enabled and self.comment.enabled and AllowedEffect.COMMENT in self.allowed_effects

    @property
    def pushes(self) -> bool:
        """Return whether commits of a completed run are pushed."""
        return self.enabled and self.pull_request.enabled and AllowedEffect.PULL_REQUEST in self.allowed_effects


class ClimbCause(StrEnum):
    """Why a step switches to the next model."""

    #: A validator failed at the closing.
    VALIDATOR = "validator"
    #: An answer does not match its schema, and no format retry is left.
    FORMAT = "format"
    #: The model's safeguards refused.
    REFUSAL = "refusal"


@dataclass(frozen=True, kw_only=True)
class Rung:
    """A model and, optionally, its effort. A `fallback` is used only after a refusal."""

    model: str
    effort: Effort | None = None
    fallback: bool = False

    def __str__(self) -> str:
        return f"{self.model}:{self.effort}" if self.effort else self.model

    @classmethod
    def parse(cls, text: str, *, fallback: bool = False) -> Self:
        """Parse `model` or `model:effort`. A model's id may contain colons."""
        model, _, effort = text.rpartition(":")
        if model and effort in tuple(Effort):
            return cls(model=model, effort=Effort(effort), fallback=fallback)
        return cls(model=text, fallback=fallback)


@dataclass(frozen=True, kw_only=True)
class Ladder:
    """Rungs in order. `owner` is the step that defines the ladder, empty for the agent's ladder, which all other steps
    share."""

    owner: str
    rungs: tuple[Rung, ...]

    def find(self, written: str | None) -> Rung:
        """Return the rung with this name, or the first one if there is none."""
        return next((rung for rung in self.rungs if str(rung) == written), self.rungs[0])

    def above(self, rung: Rung, cause: ClimbCause) -> Rung | None:
        """Return the next rung that this cause allows; None at the top."""
        higher = self.rungs[self.rungs.index(rung) + 1 :]
        return next((each for each in higher if cause is ClimbCause.REFUSAL or not each.fallback), None)


@dataclass(frozen=True, kw_only=True)
class ModelChanged:
    """A step switched to the next rung of its ladder. `before` and `to` are as in `models` or `fallbackModel`.
    `owner` is the step that defines the ladder, empty for the agent. A `fallback` is used after a refusal. Unless a
    validator failed, the step starts over, as after `context_overflowed`."""

    # A report publishes neither `step_id` nor `owner`, so one that is read back has the defaults.
    step_id: str = ""
    owner: str = ""
    before: str
    to: str
    fallback: bool
    cause: ClimbCause
    reason: str
    retry_prompt: str | None = None
    retry_source: str | None = None
    work: str = ""
    event: Literal["model_changed"] = "model_changed"

    def __str__(self) -> str:
        return f"{'the fallback model ' if self.fallback else ''}{self.to} takes over from {self.before}"


#: The main file of a skill. A folder that contains it is a skill.
SKILL_FILE = "SKILL.md"


@dataclass(frozen=True, kw_only=True)
class Skill:
    """An Agent Skill as loaded. `files` maps paths in `folder` to their texts; `folder` is relative to the repository
    root."""

    name: str
    description: str
    folder: str
    files: Mapping[str, str]

    def address(self, file: str = SKILL_FILE) -> str:
        """Return the address by which a model reads the frozen text of a file. It cannot be mistaken for a path in a
        checkout."""
        return f"skill://{self.name}/{file}"


#: The prefix of MCP tool names: `mcp__<server>__<tool>`.
MCP_PREFIX = "mcp__"
#: A reference in a header to a value of the input `mcp-secrets`. The group is the value's name.
SECRET_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class McpTool(BaseModel):
    """A tool as listed by its server and pinned by a lock file."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, alias_generator=to_camel, validate_by_name=True)

    name: str
    description: str
    input_schema: JsonObject


@dataclass(frozen=True, kw_only=True)
class McpServer:
    """A server of `mcpServers` in agent.json.

    A server with a `command` (program and arguments) runs in the sandbox, with `env` and the few variables that every
    program needs. A server with a `url` is called from outside the sandbox; in its `headers`, `${NAME}` refers to a
    value of the input `mcp-secrets`. `tools` are pinned by the lock file, and `digest` is their digest.
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
        """Return the names of the `mcp-secrets` values that its headers refer to."""
        return tuple(dict.fromkeys(name for value in self.headers.values() for name in SECRET_REFERENCE.findall(value)))

    def spec_of(self, tool: McpTool) -> ToolSpec:
        """Return the tool as offered to a model."""
        return ToolSpec(
            name=mcp_name(self.name, tool.name), description=tool.description, input_schema=tool.input_schema
        )


def mcp_name(server: str, tool: str) -> str:
    """Return the name that steps and models use for a server's tool."""
    return f"{MCP_PREFIX}{server}__{tool}"


def digest_of(tools: Iterable[McpTool]) -> str:
    """Return a SHA-256 over the names, descriptions and schemas of the tools, regardless of their order."""
    listed = sorted([tool.name, tool.description, json.dumps(tool.input_schema, sort_keys=True)] for tool in tools)
    return f"sha256:{hashlib.sha256(json.dumps(listed).encode()).hexdigest()}"


def _tool(name: str, description: str, *required: str, **properties: JsonObject) -> ToolSpec:
    schema: JsonObject = {"type": "object", "properties": {**properties}}
    if required:
        schema["required"] = list(required)
    return ToolSpec(name=name, description=description, input_schema=schema)


_TEXT: JsonObject = {"type": "string"}
_FLAG: JsonObject = {"type": "boolean"}

# Every request includes these texts, so each fact appears only once. The system prompt says that paths are relative to
# the repository root. Facts that models already know about such tools are left out.
BASH = _tool(
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
    {"Bash": BASH, "Read": _READ, "Write": _WRITE, "Edit": _EDIT, "Glob": _GLOB, "Grep": _GREP}
)
TOOL_SPECS: tuple[ToolSpec, ...] = tuple(TOOL_SPECS_BY_NAME.values())
#: Any other name in `allowedTools` is ignored, with SF210.
KNOWN_TOOL_NAMES = frozenset(TOOL_SPECS_BY_NAME)
READ_ONLY_TOOLS = frozenset({"Read", "Glob", "Grep"})
