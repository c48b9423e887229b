"""What an agent's files say that rooms read just as it is written, and the base of all models of these files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, Strict, ValidationInfo, ValidatorFunctionWrapHandler, field_validator
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from stepflow.domain.effect import AllowedEffect
from stepflow.domain.json import JsonValue
from stepflow.domain.words import CloseBy, ClosureAction

#: Marks a key for which `null` means the same as leaving it out.
NULL_ALLOWED = "null allowed"

Item = TypeVar("Item")
#: A list of a file. Only the list itself may be of another type here; its items stay strict.
Items = Annotated[tuple[Item, ...], Strict(False)]


@dataclass(frozen=True)
class Code:
    """Marks a key whose faults have codes of their own: when it is missing, and when its value is wrong.

    With `inside`, the latter is also the code of whatever is wrong inside the value.
    """

    missing: str = "SF107"
    wrong: str | None = None
    inside: bool = False


@dataclass(frozen=True)
class Accepted:
    """Stands in a document for a value that is not checked again: its fault is reported."""

    value: object


class FileModel(BaseModel):
    """Base of the file models. A required key must not be empty, and only keys that are marked so may be `null`."""

    model_config = ConfigDict(
        # Built for the files that are there: an agent of one dialect has none of the other's.
        defer_build=True,
        extra="forbid",
        frozen=True,
        strict=True,
        alias_generator=to_camel,
        validate_by_name=True,
    )

    #: Keys that are known and do nothing here (SF111).
    no_effect: ClassVar[frozenset[str]] = frozenset()
    #: Keys that editors read, and nobody else: they have their effect there, so nothing is to be said of them.
    for_editors: ClassVar[frozenset[str]] = frozenset()
    #: True when every key that is no field is such a key.
    rest_has_no_effect: ClassVar[bool] = False

    @field_validator("*", mode="wrap")
    @classmethod
    def _check_presence(cls, value: object, check: ValidatorFunctionWrapHandler, info: ValidationInfo) -> object:
        if isinstance(value, Accepted):
            return value.value
        declared = cls.model_fields[info.field_name or ""]
        if declared.is_required() and value is None:
            raise PydanticCustomError("missing", "is null")
        checked = check(value)
        if checked is None and NULL_ALLOWED not in declared.metadata:
            raise PydanticCustomError("null", "is null")
        if declared.is_required() and (checked in ([], {}) or (isinstance(checked, str) and not checked.strip())):
            raise PydanticCustomError("empty", "is empty")
        return checked


class StepCommand(FileModel):
    """`runner` of a closure step: a process that answers instead of the model (definition.md §5.5). `timeout` in
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


#: How much the commits of a run may change, where agent.json does not say.
DEFAULT_MOST_FILES = 300


DEFAULT_MOST_BYTES = 8 * 1024 * 1024


#: What agent.json may say at most. GitHub lists no more files of a pull request, and the bundle in which commits leave
#: the sandbox holds little more.
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
    """`runner.integrations.github.labels`: only one role does anything."""

    rest_has_no_effect = True
    completion: CompletionLabels = CompletionLabels()


class CommentSettings(FileModel):
    """`runner.integrations.github.comment`."""

    enabled: bool = True


#: boundary.md: any other effect is refused when a definition does not list it.
DEFAULT_EFFECTS = (AllowedEffect.COMMENT, AllowedEffect.LABELS, AllowedEffect.CLOSE, AllowedEffect.PULL_REQUEST)


DEFAULT_PROTECTED_PATHS = (".github/**", "**/.agent/**", "action.yml", "CODEOWNERS")


class GitHubSettings(FileModel):
    """`runner.integrations.github` (boundary.md). `allowed_labels` None means every label but the trigger labels."""

    enabled: bool = True
    default_closure_action: Annotated[ClosureAction, Strict(False)] | None = None
    labels: Labels = Labels()
    allowed_effects: Items[Annotated[AllowedEffect, Strict(False)]] = DEFAULT_EFFECTS
    allowed_labels: Items[str] | None = None
    allowed_link_hosts: Items[str] = ()
    pull_request: PullRequestSettings = PullRequestSettings()
    comment: CommentSettings = CommentSettings()
    protected_paths: Items[str] = DEFAULT_PROTECTED_PATHS
    allowed_secret_paths: Items[str] = ()
    close_by: Annotated[CloseBy, Strict(False)] = CloseBy.AUTO

    @property
    def pushes(self) -> bool:
        """Whether commits of a completed run are pushed."""
        return self.enabled and self.pull_request.enabled and AllowedEffect.PULL_REQUEST in self.allowed_effects
