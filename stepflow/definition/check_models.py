"""The models of a registry in the check dialect. `fields.yaml` describes their fields."""

from __future__ import annotations

from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from stepflow.definition.file_models import AtLeastOne, AtLeastZero, Registry, StepSettings
from stepflow.definition.shapes import inside
from stepflow.domain.agent.agent_settings import NULL_ALLOWED, Code, FileModel, PathPart, refuse
from stepflow.domain.json import JsonValue
from stepflow.domain.words import Dialect

_PROMPT_PATH = inside('the prompt path "{}"', "Name a file under the base path.")


class PromptEntry(FileModel):
    """A prompt by path, or by its C3L address."""

    path: Annotated[str, _PROMPT_PATH] | None = None
    fallback: Annotated[str, _PROMPT_PATH] | None = None
    c1: PathPart | None = None
    c2: PathPart | None = None
    c3: PathPart | None = None
    edition: PathPart | None = None
    adaptation: PathPart | None = None

    @model_validator(mode="after")
    def _check_reference(self) -> Self:
        given = [key for key in ("c1", "c2", "c3", "edition", "adaptation") if getattr(self, key) is not None]
        fault = ""
        if self.path is not None and given:
            fault = f'has both "path" and "{given[0]}"'
        elif self.path is None and not (self.c1 and self.c2 and self.c3):
            fault = 'has neither "path" nor "c1", "c2" and "c3"'
        if fault:
            fix = 'Write {"c1": "steps", "c2": "phase", "c3": "<name>"}, or {"path": "<file>"}.'
            raise refuse("SF701", f"the prompt reference {fault}", fix)
        return self


class TransitionEntry(FileModel):
    """What an outcome leads to."""

    next: Annotated[str | None, NULL_ALLOWED] = None
    fallback: Annotated[str | None, NULL_ALLOWED] = None
    retry: bool = False
    max_retries: Annotated[AtLeastZero, Code(wrong="SF705")] = 0
    complete: bool = False


class CheckEntry(FileModel):
    """`check` of a step."""

    prompt: Annotated[PromptEntry | None, Code(wrong="SF701", inside=True)] = None
    response_format: dict[str, JsonValue] | None = None
    on_pass: TransitionEntry | None = None
    on_fail: TransitionEntry | None = None


class IterationsEntry(FileModel):
    """`iterations` of a step."""

    min: AtLeastOne = 1
    max: AtLeastOne = 1

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.min > self.max:
            message = f'"iterations" has min {self.min}, which is more than max {self.max}'
            raise refuse("SF705", message, "Make min at most max.")
        return self


class HandoffEntry(FileModel):
    """One of `handoff`."""

    key: Annotated[str, Code("SF708", "SF708"), Field(pattern=r"^[A-Za-z0-9_-]+$")]
    description: str | None = None


class CheckStepEntry(StepSettings):
    """One value of `steps`."""

    no_effect = frozenset({"variables", "customVariables", "description"})
    id: str | None = None
    prompt: Annotated[PromptEntry | None, Code("SF701", "SF701", inside=True)]
    iterations: Annotated[IterationsEntry, Code(wrong="SF705", inside=True)] = IterationsEntry()
    check: Annotated[CheckEntry | None, Code("SF702", "SF702")]
    handoff: list[HandoffEntry] = Field(default_factory=list)


class CheckRegistry(Registry):
    """`steps_registry.json` of the check dialect."""

    dialect = Dialect.CHECK

    no_effect: ClassVar[frozenset[str]] = frozenset({"editions"})
    default_c1: ClassVar[str] = "steps"
    prompts_base: Annotated[Annotated[str, inside('"basePath" is "{}", which')] | None, Field(alias="basePath")] = None
    steps: dict[str, CheckStepEntry]
