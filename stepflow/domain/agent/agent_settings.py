"""Settings from an agent's files that other rooms read as written, and the base class of all models of these files."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, ClassVar, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, Strict, ValidationInfo, ValidatorFunctionWrapHandler, field_validator
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from stepflow.domain.effect import AllowedEffect
from stepflow.domain.json import JsonValue
from stepflow.domain.words import CloseBy, ClosureAction

#: Marks a key for which `null` means the same as an absent key.
NULL_ALLOWED = "null allowed"

Item = TypeVar("Item")
#: A list in a file. The list itself is converted to a tuple; its items stay strict.
Items = Annotated[tuple[Item, ...], Strict(False)]


@dataclass(frozen=True)
class Code:
    """Gives a key its own error codes: one for a missing key, one for a wrong value.

    With `inside`, the second code also covers every error inside the value.
    """

    missing: str = "SF107"
    wrong: str | None = None
    inside: bool = False


@dataclass(frozen=True)
class Accepted:
    """Replaces a value whose error is already reported, so that it is not checked again."""

    value: object


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
    #: True if every key that is not a field has no effect.
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
