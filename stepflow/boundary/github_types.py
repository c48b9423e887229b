"""What GitHub answers, and how a call to it fails."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from stepflow.errors import BoundaryError

TOO_MANY, SERVER_ERRORS = 429, 500


class GitHubFailed(BoundaryError):
    """GitHub, or the way to it, failed. `passes`: the same may succeed a little later; `limited`: a rate limit forbids
    it until then, `retry_after` seconds from the answer or at `resets_at` (seconds since the epoch), if it said so."""

    passes = False
    limited = False
    retry_after: float | None = None
    resets_at: float | None = None

    def given_up(self, hint: str = "") -> Self:
        """The same failure, which nobody waits out any more, perhaps with another hint."""
        self.passes, self.hint = False, hint or self.hint
        return self


class WriteFailed(GitHubFailed):
    """GitHub did not do what was asked. `status` is the HTTP status, None when no answer came; 429 stands for every
    rate limit."""

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        hint: str = "",
        retry_after: float | None = None,
        resets_at: float | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.status, self.retry_after, self.resets_at = status, retry_after, resets_at
        self.limited = status == TOO_MANY
        self.passes = status is None or status == TOO_MANY or status >= SERVER_ERRORS


class Refused(BoundaryError):
    """The trust rules forbid writing; nothing was written. About commits the message begins with `refused: `."""


@dataclass(frozen=True, kw_only=True)
class Account:
    """Whom the token belongs to."""

    id: int
    login: str


@dataclass(frozen=True, kw_only=True)
class IssueNow:
    """An issue as it is at this moment; `state` is `open` or `closed`."""

    state: str
    title: str
    body: str
    labels: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Comment:
    """A comment on an issue."""

    id: int
    author_id: int
    body: str
    url: str


@dataclass(frozen=True, kw_only=True)
class PullRequest:
    """An open pull request."""

    number: int
    author_id: int
    base: str
    url: str


@dataclass(frozen=True, kw_only=True)
class Release:
    """A release, by its tag."""

    tag: str
    url: str


@dataclass(frozen=True, kw_only=True)
class Pushed:
    """The commit that now is the tip of the branch."""

    branch: str
    commit: str
