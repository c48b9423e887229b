"""The shape of `steps_registry.json`, gate dialect (registry.md §4 and §5).

Takes: nothing. Gives: the pydantic models, the one source of the file format and of its published JSON Schema.
May touch: nothing.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, Strict, WithJsonSchema

from stepflow.definition.agent_file import AtLeastZero, Mode
from stepflow.definition.shapes import NEEDED, NULL_ALLOWED, FileModel, NeededText, ShapeCodes
from stepflow.domain.json import JsonObject, JsonValue
from stepflow.domain.words import FailureAction, StepKind

#: Text `#/…` or `{file, schema}`; read by `schema_refs`, which names each fault.
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


class GateEntry(FileModel):
    """`structuredGate` (registry.md §5.3)."""

    no_effect = frozenset({"targetMode"})
    allowed_intents: Annotated[list[str] | None, NEEDED] = None
    intent_field: NeededText = None
    intent_schema_ref: NeededText = None
    target_field: str | None = None
    handoff_fields: list[str] = Field(default_factory=list)
    fail_fast: bool = True
    fallback_intent: str | None = None


class RuleEntry(FileModel):
    """One value of `transitions` (registry.md §5.4)."""

    target: Annotated[str | None, NULL_ALLOWED] = None
    condition: str | None = None
    targets: dict[str, str] | None = None
    fallback: Annotated[str | None, NULL_ALLOWED] = None


class InputEntry(FileModel):
    """One value of `inputs` (prompts.md §6.3)."""

    from_: Annotated[str | None, NEEDED, Field(alias="from")] = None
    required: bool = False
    default: Annotated[JsonValue, NULL_ALLOWED] = None


class CommandEntry(FileModel):
    """`runner` of a closure step (registry.md §5.5); `timeout` in milliseconds."""

    command: NeededText = None
    args: list[str] = Field(default_factory=list)
    timeout: Annotated[float, Field(gt=0)] = 30000


class StepEntry(FileModel):
    """One value of `steps` (registry.md §5.1)."""

    no_effect = frozenset({"type", "description", "condition", "priority"})
    step_id: NeededText = None
    name: str | None = None
    step_kind: Annotated[StepKind, Strict(False)] | None = None
    c2: NeededText = None
    c3: NeededText = None
    edition: str | None = None
    adaptation: str | None = None
    fallback_key: str | None = None
    uv_variables: Annotated[list[str] | None, NULL_ALLOWED] = None
    uses_stdin: Annotated[bool | None, NULL_ALLOWED] = None
    output_schema_ref: SchemaRef = None
    structured_gate: GateEntry | None = None
    transitions: dict[str, RuleEntry] | None = None
    inputs: dict[str, InputEntry] = Field(default_factory=dict)
    model: str | None = None
    permission_mode: Mode | None = None
    format_retries: AtLeastZero | None = None
    runner: CommandEntry | None = None


class PatternEntry(FileModel):
    """One value of `failurePatterns` (registry.md §5.7)."""

    description: NeededText = None
    edition: NeededText = None
    adaptation: str | None = None
    params: list[str] | None = None


class ValidatorEntry(FileModel):
    """One value of `validators` (registry.md §5.6); `timeout` in seconds."""

    type: Annotated[Literal["command"] | None, NEEDED] = None
    command: NeededText = None
    success_when: NeededText = None
    failure_pattern: NeededText = None
    extract_params: dict[str, str] = Field(default_factory=dict)
    recoverable_by_default: bool = True
    timeout: Annotated[float, Field(gt=0)] = 600
    guards: list[str] = Field(default_factory=list)
    guard: Literal["report", "block"] = "report"


class ConditionEntry(FileModel):
    """One of `validationConditions`."""

    validator: NeededText = None
    params: dict[str, JsonValue] = Field(default_factory=dict)


class OnFailure(FileModel):
    """`onFailure` of a validation entry."""

    action: Annotated[FailureAction, Strict(False)] = FailureAction.RETRY
    max_attempts: Annotated[int, Field(ge=1)] = 3


class ValidationStepEntry(FileModel):
    """One value of `validationSteps` (registry.md §5.7)."""

    step_id: NeededText = None
    name: str | None = None
    description: str | None = None
    c2: NeededText = None
    c3: NeededText = None
    validation_conditions: Annotated[list[ConditionEntry] | None, NEEDED] = None
    on_failure: OnFailure = OnFailure()
    output_schema_ref: SchemaRef = None
    output_schema: JsonObject | None = None


class GateRegistry(FileModel):
    """`steps_registry.json` of the gate dialect."""

    for_editors: ClassVar[frozenset[str]] = frozenset({"$schema"})
    agent_id: NeededText = None
    version: NeededText = None
    c1: NeededText = None
    user_prompts_base: str | None = None
    schemas_base: str | None = None
    path_template: str | None = None
    path_template_no_adaptation: str | None = None
    entry_step: str | None = None
    entry_step_mapping: dict[str, str] = Field(default_factory=dict)
    failure_patterns: dict[str, PatternEntry] = Field(default_factory=dict)
    validators: dict[str, ValidatorEntry] = Field(default_factory=dict)
    validation_steps: dict[str, ValidationStepEntry] = Field(default_factory=dict)
    steps: Annotated[dict[str, StepEntry], NEEDED] = Field(default_factory=dict)


#: Faults of these places have codes of their own.
REGISTRY_CODES = ShapeCodes(
    missing=(
        (r"/validators/[^/]+/[^/]+", "SF601"),
        (r"/steps/[^/]+/structuredGate/allowedIntents", "SF323"),
        (r"/steps/[^/]+/structuredGate/intentField", "SF324"),
        (r"/steps/[^/]+/structuredGate/intentSchemaRef", "SF325"),
        (r"/steps/[^/]+/runner/command", "SF311"),
    ),
    wrong=(
        (r"/validators/[^/]+/type", "SF601"),
        (r"/validators/[^/]+/successWhen", "SF602"),
        (r"/validationSteps/[^/]+/onFailure(/.*)?", "SF607"),
        (r"/steps/[^/]+/structuredGate/intentField", "SF324"),
        (r"/steps/[^/]+/structuredGate/intentSchemaRef", "SF325"),
        (r"/steps/[^/]+/runner(/.*)?", "SF311"),
    ),
)
