"""The shape of `agent.json`, runner layout (registry.md §2).

Takes: nothing. Gives: the pydantic models, the one source of the file format and of its published JSON Schema.
May touch: nothing.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, Strict

from stepflow.definition.shapes import NEEDED, NULL_ALLOWED, FileModel, NeededText, ShapeCodes
from stepflow.domain.json import JsonValue
from stepflow.domain.words import CloseBy, ClosureAction, PermissionMode

AgentName = Annotated[str | None, NEEDED, Field(pattern=r"^[a-z][a-z0-9-]*$")]
Mode = Annotated[PermissionMode, Strict(False)]
AtLeastZero = Annotated[int, Field(ge=0)]


class ParameterRules(FileModel):
    """`parameters.<name>.validation`."""

    min: float | None = None
    max: float | None = None
    pattern: str | None = None
    enum: Annotated[list[JsonValue], Field(min_length=1)] | None = None


class ParameterEntry(FileModel):
    """`parameters.<name>` (registry.md §2.3)."""

    type: Annotated[Literal["string", "number", "boolean", "array"] | None, NEEDED] = None
    cli: Annotated[str | None, NEEDED, Field(pattern=r"^--[a-z][a-z0-9-]*$")] = None
    description: str | None = None
    required: bool = False
    default: Annotated[JsonValue, NULL_ALLOWED] = None  # null is of no type, which is told as such
    validation: ParameterRules | None = None


class PromptFiles(FileModel):
    """`runner.flow.prompts`."""

    no_effect = frozenset({"fallbackDir"})
    registry: str | None = None


class SchemaFiles(FileModel):
    """`runner.flow.schemas`."""

    base: str | None = None
    default: str | None = None


class FlowSettings(FileModel):
    """`runner.flow`."""

    no_effect = frozenset({"askUserAutoResponse"})
    system_prompt_path: str | None = None
    prompts: PromptFiles = PromptFiles()
    schemas: SchemaFiles = SchemaFiles()
    default_model: str | None = None
    format_retries: AtLeastZero | None = None


class CompositePart(FileModel):
    """One of `conditions` of `meta:composite`."""

    type: NeededText = None
    config: VerdictConfig | None = None


class VerdictConfig(FileModel):
    """`runner.verdict.config`: the keys of all types (registry.md §2.4)."""

    max_iterations: Annotated[int, Field(ge=1)] | None = None
    max_checks: Annotated[int, Field(ge=1)] | None = None
    verdict_keyword: str | None = None
    signal_type: str | None = None
    required_fields: JsonValue = None
    operator: Literal["and", "or", "first"] | None = None
    conditions: list[CompositePart] | None = None
    handler_path: str | None = None


class VerdictSettings(FileModel):
    """`runner.verdict`."""

    type: str | None = None
    config: VerdictConfig = VerdictConfig()


class Boundaries(FileModel):
    """`runner.boundaries`."""

    no_effect = frozenset({"sandbox"})
    allowed_tools: list[str] | None = None
    permission_mode: Mode | None = None


class CompletionLabels(FileModel):
    """`runner.integrations.github.labels.completion`."""

    add: list[str] = Field(default_factory=list)
    remove: list[str] = Field(default_factory=list)


class Labels(FileModel):
    """`runner.integrations.github.labels`: only one role does anything."""

    rest_has_no_effect = True
    completion: CompletionLabels = CompletionLabels()


class PullRequest(FileModel):
    """`runner.integrations.github.pullRequest` (boundary.md)."""

    enabled: bool = True
    draft: bool = True
    base: str | None = None
    branch_prefix: str | None = None
    title: str | None = None


class Comment(FileModel):
    """`runner.integrations.github.comment` (boundary.md)."""

    enabled: bool = True


class GitHub(FileModel):
    """`runner.integrations.github` (registry.md §2.1, boundary.md)."""

    enabled: bool = True
    default_closure_action: Annotated[ClosureAction, Strict(False)] | None = None
    labels: Labels = Labels()
    allowed_effects: list[Literal["comment", "labels", "close", "pull_request", "release"]] | None = None
    allowed_labels: list[str] | None = None
    pull_request: PullRequest = PullRequest()
    comment: Comment = Comment()
    protected_paths: list[str] | None = None
    close_by: Annotated[CloseBy, Strict(False)] = CloseBy.AUTO


class Integrations(FileModel):
    """`runner.integrations`."""

    github: GitHub = GitHub()


class Logging(FileModel):
    """`runner.logging`."""

    no_effect = frozenset({"directory", "maxFiles"})
    format: Literal["jsonl", "text"] = "jsonl"


class Runner(FileModel):
    """`runner`."""

    no_effect = frozenset({"actions", "execution"})
    flow: FlowSettings = FlowSettings()
    verdict: VerdictSettings = VerdictSettings()
    boundaries: Boundaries = Boundaries()
    integrations: Integrations = Integrations()
    logging: Logging = Logging()


class AgentFile(FileModel):
    """`agent.json`."""

    for_editors: ClassVar[frozenset[str]] = frozenset({"$schema"})
    name: AgentName = None
    version: NeededText = None
    display_name: NeededText = None
    description: NeededText = None
    parameters: dict[str, ParameterEntry] = Field(default_factory=dict)
    runner: Annotated[Runner | None, NEEDED] = None


#: Faults of these places have codes of their own.
AGENT_CODES = ShapeCodes(
    missing=((r"/parameters/[^/]+/(type|cli)", "SF207"), (r"/runner/verdict/config/.*", "SF204")),
    wrong=(
        (r"/name", "SF101"),
        (r"/parameters/[^/]+/(type|cli)", "SF207"),
        (r"/runner/verdict/type", "SF203"),
        (r"/runner/verdict/config(/.*)?", "SF204"),
    ),
)
