"""The models of agent.json and of both kinds of registry. `fields.yaml` describes their fields."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    Strict,
    WithJsonSchema,
)

from stepflow.definition.diagnostics import format_value
from stepflow.definition.shapes import PathTemplate, dotted, inside
from stepflow.domain.agent.agent_settings import (
    LARGEST_OUTPUT,
    NULL_ALLOWED,
    Code,
    FileModel,
    GitHubSettings,
    Parameter,
    PathPart,
    StepCommand,
    VerdictConfig,
    refuse,
)
from stepflow.domain.agent.validation import (
    PatternEntry,
    ValidatorEntry,
    check_pattern,
)
from stepflow.domain.json import JsonObject, JsonValue
from stepflow.domain.words import Dialect, Effort, FailureAction, Network, PermissionMode, StepKind

_SCHEMAS_BASE = inside('the schemas base is "{}", which', "Name a folder of the agent.")


AgentName = Annotated[str, Code(wrong="SF101"), Field(pattern=r"^[a-z][a-z0-9-]*$")]
Mode = Annotated[PermissionMode, Strict(False)]
EffortLevel = Annotated[Effort, Strict(False)]
AtLeastZero = Annotated[int, Field(ge=0)]
Models = Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=1)]
OutputTokens = Annotated[int, Field(ge=1, le=LARGEST_OUTPUT)]


class PromptSettings(FileModel):
    """`runner.flow.prompts`."""

    no_effect = frozenset({"fallbackDir"})
    registry: Annotated[str, inside('the registry path "{}"', "Name a file inside the agent folder.")] | None = None


class SchemaFiles(FileModel):
    """`runner.flow.schemas`."""

    base: Annotated[str, _SCHEMAS_BASE] | None = None
    default: str | None = None


class ModelSettings(FileModel):
    """The keys about models that the agent and a step may have."""

    model: str | None = None
    models: Models | None = None
    fallback_model: str | None = None
    effort: EffortLevel | None = None
    max_output_tokens: OutputTokens | None = None
    format_retries: AtLeastZero | None = None


class FlowSettings(ModelSettings):
    """`runner.flow`."""

    no_effect = frozenset({"askUserAutoResponse"})
    system_prompt_path: str | None = None
    prompts: PromptSettings = PromptSettings()
    schemas: SchemaFiles = SchemaFiles()
    model: Annotated[str | None, Field(alias="defaultModel")] = None


class VerdictSettings(FileModel):
    """`runner.verdict`."""

    type: Annotated[str | None, Code(wrong="SF203")] = None
    config: Annotated[VerdictConfig, Code(wrong="SF204", inside=True)] = VerdictConfig()


class Boundaries(FileModel):
    """`runner.boundaries`."""

    no_effect = frozenset({"sandbox"})
    allowed_tools: list[str] | None = None
    permission_mode: Mode | None = None
    network: Annotated[Network, Strict(False)] | None = None
    max_usd: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None


class Integrations(FileModel):
    """`runner.integrations`."""

    github: GitHubSettings = GitHubSettings()


class Logging(FileModel):
    """`runner.logging`."""

    no_effect = frozenset({"directory", "maxFiles"})
    format: Literal["jsonl", "text"] = "jsonl"


class RunnerKeys(FileModel):
    """`runner`."""

    no_effect = frozenset({"actions", "execution"})
    flow: FlowSettings = FlowSettings()
    verdict: VerdictSettings = VerdictSettings()
    boundaries: Boundaries = Boundaries()
    integrations: Integrations = Integrations()
    logging: Logging = Logging()


#: No file is guidance.
GUIDANCE_OFF = "off"


def _check_guidance(value: JsonValue) -> JsonValue:
    if value != GUIDANCE_OFF and not (isinstance(value, list) and all(isinstance(path, str) for path in value)):
        message = f'"guidance" is {format_value(value)}, but it must be a list of files, or "{GUIDANCE_OFF}"'
        raise refuse("SF106", message, 'Write ["AGENTS.md"], for example.')
    return value


Guidance = Annotated[
    Literal["off"] | list[str],
    BeforeValidator(_check_guidance),
    WithJsonSchema({"anyOf": [{"const": "off"}, {"type": "array", "items": {"type": "string"}}]}),
]


class McpServerEntry(FileModel):
    """One value of `mcpServers`: a program that runs in the sandbox, or a server that is called from outside of it."""

    type: Literal["stdio", "http"] | None = None
    command: str | None = None
    args: list[str] = Field(default_factory=list)
    env: dict[str, str] = Field(default_factory=dict)
    url: str | None = None
    headers: dict[str, str] = Field(default_factory=dict)


class AgentFile(FileModel):
    """`agent.json`."""

    for_editors: ClassVar[frozenset[str]] = frozenset({"$schema"})
    name: AgentName
    version: str
    display_name: str
    description: str
    guidance: Guidance | None = None
    skills: list[str] = Field(default_factory=list)
    setup_reads: list[Annotated[str, AfterValidator(check_pattern)]] = Field(default_factory=list)
    keep_for_checks: list[Annotated[str, AfterValidator(check_pattern)]] = Field(default_factory=list)
    mcp_servers: dict[str, McpServerEntry] = Field(default_factory=dict)
    parameters: dict[str, Parameter] = Field(default_factory=dict)
    started_by: Literal["anyone"] | None = None
    runner: RunnerKeys | None


#: `#/…` or `{file, schema}`; `SchemaFolder` reads it and reports each fault.
SchemaRef = Annotated[
    JsonValue,
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "pattern": "^#/"},
                {
                    "type": "object",
                    "properties": {"file": {"type": "string"}, "schema": {"type": "string"}},
                    "required": ["file", "schema"],
                },
            ]
        }
    ),
]


_INTENT_PATH = dotted(
    "SF324", '"intentField" is "{}", which is not a dotted path', 'Write names with dots, as in "next_action.action".'
)
_HANDOFF_PATH = dotted("SF106", 'the handoff field "{}" is not a dotted path')


class GateEntry(FileModel):
    """`structuredGate`."""

    no_effect = frozenset({"targetMode"})
    allowed_intents: Annotated[list[str], Code("SF323")]
    intent_field: Annotated[str, Code("SF324", "SF324"), _INTENT_PATH]
    intent_schema_ref: Annotated[str, Code("SF325", "SF325")]
    target_field: Annotated[str, dotted("SF106", '"targetField" is "{}", which is not a dotted path')] | None = None
    handoff_fields: list[Annotated[str, _HANDOFF_PATH]] = Field(default_factory=list)
    fail_fast: bool = True
    fallback_intent: str | None = None


class ApprovalEntry(FileModel):
    """`approval` of a step or of a transition: who must agree before the step begins."""

    by: Annotated[Literal["write", "maintain", "admin"], Code("SF355", "SF355")]


class RuleEntry(FileModel):
    """One value of `transitions`."""

    target: Annotated[str | None, NULL_ALLOWED] = None
    condition: str | None = None
    targets: dict[str, str] | None = None
    fallback: Annotated[str | None, NULL_ALLOWED] = None
    approval: Annotated[ApprovalEntry | None, Code(wrong="SF355", inside=True)] = None


class InputEntry(FileModel):
    """One value of `inputs`."""

    from_: Annotated[str, Field(alias="from")]
    required: bool = False
    default: Annotated[JsonValue, NULL_ALLOWED] = None


class StepSettings(ModelSettings):
    """The keys that a step may have in either dialect."""

    name: str | None = None
    uses_stdin: Annotated[bool | None, NULL_ALLOWED] = None
    permission_mode: Mode | None = None
    approval: Annotated[ApprovalEntry | None, Code(wrong="SF355", inside=True)] = None
    guidance: list[str] = Field(default_factory=list)
    tools: list[str] | None = None
    accepts_risk: Annotated[str, Field(pattern=r"\S")] | None = None


class StepEntry(StepSettings):
    """One value of `steps`."""

    no_effect = frozenset({"type", "description", "condition", "priority"})
    step_id: str
    step_kind: Annotated[StepKind, Strict(False)] | None = None
    c2: PathPart
    c3: PathPart
    edition: PathPart | None = None
    adaptation: PathPart | None = None
    fallback_key: str | None = None
    uv_variables: Annotated[list[str] | None, NULL_ALLOWED] = None
    output_schema_ref: SchemaRef = None
    structured_gate: GateEntry | None = None
    transitions: dict[str, RuleEntry] | None = None
    inputs: dict[str, InputEntry] = Field(default_factory=dict)
    runner: Annotated[StepCommand | None, Code(wrong="SF311", inside=True)] = None


class ConditionEntry(FileModel):
    """One of `validationConditions`."""

    validator: str
    params: dict[str, JsonValue] = Field(default_factory=dict)


class OnFailureKeys(FileModel):
    """`onFailure` of a validation entry."""

    action: Annotated[FailureAction, Strict(False)] = FailureAction.RETRY
    max_attempts: Annotated[int, Field(ge=1)] = 3


class ValidationStepEntry(FileModel):
    """One value of `validationSteps`."""

    step_id: str
    name: str | None = None
    description: str | None = None
    c2: PathPart
    c3: PathPart
    validation_conditions: list[ConditionEntry]
    on_failure: Annotated[OnFailureKeys, Code(wrong="SF607", inside=True)] = OnFailureKeys()
    output_schema_ref: SchemaRef = None
    output_schema: JsonObject | None = None


class EntrySteps(FileModel):
    """`entrySteps`: a key for each `FollowUpKind`."""

    review: str | None = None
    checks: str | None = None


class Registry(FileModel):
    """The keys that `steps_registry.json` has in both dialects."""

    for_editors: ClassVar[frozenset[str]] = frozenset({"$schema"})
    apart = frozenset({"steps", "validators", "failurePatterns", "validationSteps"})
    dialect: ClassVar[Dialect]
    #: The first part of the addresses of prompts where no "c1" is written.
    default_c1: ClassVar[str] = ""
    agent_id: str | None = None
    version: str | None = None
    c1: PathPart | None = None
    entry_step: str | None = None
    entry_step_mapping: dict[str, str] = Field(default_factory=dict)
    entry_steps: EntrySteps = EntrySteps()
    failure_patterns: dict[str, PatternEntry] = Field(default_factory=dict)
    validators: dict[str, ValidatorEntry] = Field(default_factory=dict)
    validation_steps: dict[str, ValidationStepEntry] = Field(default_factory=dict)
    prompts_base: str | None = None


class GateRegistry(Registry):
    """`steps_registry.json` of the gate dialect."""

    dialect = Dialect.GATE

    agent_id: str
    version: str
    c1: PathPart
    prompts_base: Annotated[
        Annotated[str, inside('"userPromptsBase" is "{}", which')] | None, Field(alias="userPromptsBase")
    ] = None
    schemas_base: Annotated[str, _SCHEMAS_BASE] | None = None
    path_template: PathTemplate | None = None
    path_template_no_adaptation: PathTemplate | None = None
    steps: dict[str, StepEntry]
