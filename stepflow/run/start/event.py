"""The payload of the event that GitHub sends, as far as stepflow reads it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from stepflow.domain.json import JsonObject, JsonValue
from stepflow.domain.value_errors import describe_error
from stepflow.errors import InputError


class _EventShape(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)


class User(_EventShape):
    """A user in an event."""

    login: str = ""
    type: str = "User"


class _Label(_EventShape):
    name: str = ""


class IssuePayload(_EventShape):
    """An issue in an event."""

    number: int
    title: str = ""
    body: str | None = None
    user: User | None = None
    html_url: str = ""
    labels: tuple[_Label, ...] = ()
    author_association: str = "NONE"
    locked: bool = False
    pull_request: dict[str, object] | None = None


class _Comment(_EventShape):
    id: int | None = None
    body: str = ""
    user: User | None = None
    author_association: str = "NONE"


class _Review(_Comment):
    body: Annotated[str, BeforeValidator(lambda text: text or "")] = ""
    state: str = ""


class _EventRepository(_EventShape):
    id: int | None = None
    full_name: str = ""
    default_branch: str = ""
    private: bool | None = None
    archived: bool | None = None


class _PullRequestSide(_EventShape):
    sha: str = ""
    repo: _EventRepository | None = None


class PullRequestPayload(_EventShape):
    """A pull request in an event; the `repo` of its head is null if that repository was deleted."""

    number: int
    user: User | None = None
    labels: tuple[_Label, ...] = ()
    author_association: str = "NONE"
    draft: bool = False
    base: _PullRequestSide = Field(default_factory=_PullRequestSide)
    head: _PullRequestSide = Field(default_factory=_PullRequestSide)

    @property
    def is_from_fork(self) -> bool:
        """Whether its commits come from another repository, so that the job's token only reads."""
        return self.head.repo != self.base.repo


class _WorkflowRun(_EventShape):
    """A workflow run in an event; `head_repository` is null if that repository was deleted."""

    id: int
    conclusion: str | None = None
    head_branch: str | None = None
    head_sha: str = ""
    head_repository: _EventRepository | None = Field(default_factory=_EventRepository)


class EventPayload(_EventShape):
    """The parts of an event's payload that decide about a run."""

    action: str = ""
    label: _Label | None = None
    assignee: User | None = None
    issue: IssuePayload | None = None
    comment: _Comment | None = None
    pull_request: PullRequestPayload | None = None
    review: _Review | None = None
    workflow_run: _WorkflowRun | None = None
    sender: User | None = None
    repository: _EventRepository = Field(default_factory=_EventRepository)
    inputs: dict[str, object] | None = None


def read_event_file(path: str, *, named_by: str) -> JsonObject:
    """Read the payload of an event from the file that a variable or flag names; empty without a path."""
    if not path:
        return {}
    try:
        event = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as exc:
        raise InputError(
            f"The event file {path} cannot be read: {exc}.", hint=f"{named_by} must name a JSON file."
        ) from exc
    if not isinstance(event, dict):
        raise InputError(f"The event file {path} contains no JSON object.", hint=f"{named_by} must name an event.")
    return event


def read_event(payload: Mapping[str, JsonValue]) -> EventPayload:
    """Parse an event's payload. Raises `InputError` if it is not what GitHub sends."""
    try:
        return EventPayload.model_validate(payload)
    except ValidationError as exc:
        first = exc.errors(include_input=False)[0]
        location = ".".join(str(part) for part in first["loc"])
        raise InputError(
            f"The event's payload is not what GitHub sends: {location} {describe_error(first)}.",
            hint="Check the file that GITHUB_EVENT_PATH (or --event) names.",
        ) from None
