"""The shape of `steps_registry.json`, check dialect (registry.md §6).

Takes: nothing. Gives: the pydantic models, the one source of the file format and of its published JSON Schema.
May touch: nothing.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from stepflow.definition.agent_file import AtLeastZero, Mode
from stepflow.definition.registry_file import REGISTRY_CODES, PatternEntry, ValidationStepEntry, ValidatorEntry
from stepflow.definition.shapes import NEEDED, NULL_ALLOWED, FileModel, ShapeCodes
from stepflow.domain.json import JsonValue

AtLeastOne = Annotated[int, Field(ge=1)]


class PromptEntry(FileModel):
    """A prompt by path, or by its C3L address (registry.md §6.1)."""

    path: str | None = None
    fallback: str | None = None
    c1: str | None = None
    c2: str | None = None
    c3: str | None = None
    edition: str | None = None
    adaptation: str | None = None


class TransitionEntry(FileModel):
    """What an outcome leads to (registry.md §6.2)."""

    next: Annotated[str | None, NULL_ALLOWED] = None
    fallback: Annotated[str | None, NULL_ALLOWED] = None
    retry: bool = False
    max_retries: AtLeastZero = 0
    complete: bool = False


class CheckEntry(FileModel):
    """`check` of a step."""

    prompt: PromptEntry | None = None
    response_format: dict[str, JsonValue] | None = None
    on_pass: TransitionEntry | None = None
    on_fail: TransitionEntry | None = None


class IterationsEntry(FileModel):
    """`iterations` of a step."""

    min: AtLeastOne = 1
    max: AtLeastOne = 1


class HandoffEntry(FileModel):
    """One of `handoff`."""

    key: Annotated[str | None, NEEDED, Field(pattern=r"^[A-Za-z0-9_-]+$")] = None
    description: str | None = None


class CheckStepEntry(FileModel):
    """One value of `steps` (registry.md §6.1)."""

    no_effect = frozenset({"variables", "customVariables", "description"})
    id: str | None = None
    name: str | None = None
    prompt: Annotated[PromptEntry | None, NEEDED] = None
    iterations: IterationsEntry = IterationsEntry()
    check: Annotated[CheckEntry | None, NEEDED] = None
    handoff: list[HandoffEntry] = Field(default_factory=list)
    model: str | None = None
    permission_mode: Mode | None = None
    uses_stdin: Annotated[bool | None, NULL_ALLOWED] = None
    format_retries: AtLeastZero | None = None


class CheckRegistry(FileModel):
    """`steps_registry.json` of the check dialect."""

    no_effect: ClassVar[frozenset[str]] = frozenset({"editions"})
    for_editors: ClassVar[frozenset[str]] = frozenset({"$schema"})
    agent_id: str | None = None
    version: str | None = None
    base_path: str | None = None
    c1: str | None = None
    entry_step: str | None = None
    entry_step_mapping: dict[str, str] = Field(default_factory=dict)
    failure_patterns: dict[str, PatternEntry] = Field(default_factory=dict)
    validators: dict[str, ValidatorEntry] = Field(default_factory=dict)
    validation_steps: dict[str, ValidationStepEntry] = Field(default_factory=dict)
    steps: Annotated[dict[str, CheckStepEntry], NEEDED] = Field(default_factory=dict)


#: Faults of these places have codes of their own.
CHECK_CODES = ShapeCodes(
    missing=(
        *REGISTRY_CODES.missing,
        (r"/steps/[^/]+/prompt", "SF701"),
        (r"/steps/[^/]+/check", "SF702"),
        (r"/steps/[^/]+/handoff/.*", "SF708"),
    ),
    wrong=(
        *REGISTRY_CODES.wrong,
        (r"/steps/[^/]+/(check/)?prompt(/.*)?", "SF701"),
        (r"/steps/[^/]+/iterations(/.*)?", "SF705"),
        (r"/steps/[^/]+/check/on(Pass|Fail)/maxRetries", "SF705"),
        (r"/steps/[^/]+/check", "SF702"),
        (r"/steps/[^/]+/handoff/[0-9]+/key", "SF708"),
    ),
)
