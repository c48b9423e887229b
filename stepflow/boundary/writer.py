"""What the boundary needs of GitHub (`Writer`) and of git (`Pusher`), what they answer and how they fail."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, Self

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


class Writer(Protocol):
    """One repository on GitHub. Every method may raise `WriteFailed`; none writes twice."""

    def viewer(self) -> Account:
        """Whose token this is."""
        ...

    def permission(self, login: str) -> str:
        """What this account may do: a word of `Permission`, `none` for a stranger."""
        ...

    def default_branch(self) -> str:
        """The repository's default branch."""
        ...

    def issue(self, number: int) -> IssueNow:
        """The issue now."""
        ...

    def comments(self, number: int) -> tuple[Comment, ...]:
        """All comments of an issue, oldest first."""
        ...

    def create_comment(self, number: int, body: str) -> Comment:
        """A new comment."""
        ...

    def update_comment(self, comment_id: int, body: str) -> Comment:
        """Replace a comment's text."""
        ...

    def add_labels(self, number: int, labels: tuple[str, ...]) -> None:
        """Put labels on an issue."""
        ...

    def remove_label(self, number: int, label: str) -> None:
        """Take one label off an issue."""
        ...

    def close_issue(self, number: int) -> None:
        """Close an issue as completed."""
        ...

    def open_pull_requests(self, branch: str) -> tuple[PullRequest, ...]:
        """The open pull requests from a branch of this repository."""
        ...

    def create_pull_request(self, *, branch: str, base: str, title: str, body: str, draft: bool) -> PullRequest:
        """A new pull request."""
        ...

    def update_pull_request(self, number: int, *, title: str, body: str) -> None:
        """Replace title and body."""
        ...

    def releases(self) -> tuple[Release, ...]:
        """The newest hundred releases, drafts too."""
        ...

    def create_release(self, *, tag: str, target: str, name: str, body: str, draft: bool) -> Release:
        """A new release; its tag is made at `target` if it does not exist."""
        ...


@dataclass(frozen=True, kw_only=True)
class Pushed:
    """The commit that now is the tip of the branch."""

    branch: str
    commit: str


class Pusher(Protocol):
    """Brings the run's commits to GitHub."""

    def push(self, branch: str, *, author: Account, replaces: str | None) -> Pushed:
        """Push to `branch`, or to `<branch>-2` and so on if that is somebody else's.

        `replaces` is the commit that we pushed before: only a branch that still stands there, or whose tip is known as
        ours by itself, is ever overwritten.
        Raises `Refused` when the commits may not leave, `BoundaryError` when git or the server fail.
        """
        ...
