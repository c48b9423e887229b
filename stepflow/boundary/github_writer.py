"""`Writer` on PyGithub: one request per write, patience for reads, GitHub's errors as `WriteFailed`.

Takes: the API's address, the repository, the token. Gives: a `Writer`.
May touch: the GitHub API. The token stays in here: no error that leaves holds a request, a header or a secret.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from stepflow.boundary.github_errors import reading, translated, write_failed
from stepflow.boundary.github_reader import NOBODY, comment_of, comments_of, permission_of, viewer_of
from stepflow.boundary.github_requests import GitHubRequests
from stepflow.boundary.patience import Patience
from stepflow.boundary.writer import Account, Comment, IssueNow, PullRequest, Release, WriteFailed
from stepflow.domain.redact import Redactor
from stepflow.domain.way import DIRECT, Way

if TYPE_CHECKING:
    from github.NamedUser import NamedUser
    from github.Organization import Organization
    from github.Repository import Repository


class GitHubWriter:
    """One repository, written to with one token. Close it at the end."""

    def __init__(
        self,
        *,
        api_url: str,
        repository: str,
        token: str,
        redactor: Redactor | None = None,
        patience: Patience | None = None,
        way: Way = DIRECT,
    ) -> None:
        self._redactor = (redactor or Redactor()).knowing(token)
        self._repository_name = repository
        self._way = way
        self._api = GitHubRequests(api_url=api_url, repository=repository, token=token, way=way)
        self._viewer: Account | None = None
        self.patience = patience or Patience()

    def close(self) -> None:
        """Close the connections."""
        self._api.close()

    @reading
    def viewer(self) -> Account:
        """Whose token this is; asked once."""
        if self._viewer is None:
            self._viewer = viewer_of(self._api)
        return self._viewer

    @reading
    def permission(self, login: str) -> str:
        """The role where it is one of GitHub's own, else the permission that a custom role stands for."""
        return permission_of(self._api, self._repository.url, login)

    @reading
    def default_branch(self) -> str:
        """The repository's default branch."""
        return self._repository.default_branch

    @reading
    def full_name(self) -> str:
        """The repository's present name, also when it was renamed."""
        _, data = self._api.requestJsonAndCheck("GET", self._repository.url)
        return str(data["full_name"])

    @reading
    def issue(self, number: int) -> IssueNow:
        """The issue now."""
        _, data = self._api.requestJsonAndCheck("GET", f"{self._repository.url}/issues/{number}")
        return IssueNow(
            state=str(data["state"]),
            title=str(data["title"]),
            body=str(data.get("body") or ""),
            labels=tuple(str(label if isinstance(label, str) else label["name"]) for label in data["labels"]),
        )

    @reading
    def comments(self, number: int) -> tuple[Comment, ...]:
        """All comments of an issue, oldest first."""
        return comments_of(self._repository, number)

    @translated
    def create_comment(self, number: int, body: str) -> Comment:
        """A new comment."""
        return comment_of(self._repository.get_issue(number).create_comment(body))

    @translated
    def update_comment(self, comment_id: int, body: str) -> Comment:
        """Replace a comment's text."""
        _, data = self._api.requestJsonAndCheck(
            "PATCH", f"{self._repository.url}/issues/comments/{comment_id}", input={"body": body}
        )
        return Comment(
            id=int(data["id"]),
            author_id=int((data["user"] or {}).get("id", NOBODY)),
            body=body,
            url=str(data["html_url"]),
        )

    @translated
    def add_labels(self, number: int, labels: tuple[str, ...]) -> None:
        """Put labels on an issue, in the form that GitHub describes; PyGithub's method sends a bare list."""
        path = f"{self._repository.url}/issues/{number}/labels"
        self._api.requestJsonAndCheck("POST", path, input={"labels": list(labels)})

    @translated
    def remove_label(self, number: int, label: str) -> None:
        """Take one label off an issue; PyGithub's own method leaves a slash in the name as it is."""
        path = f"{self._repository.url}/issues/{number}/labels/{quote(label, safe='')}"
        self._api.requestJsonAndCheck("DELETE", path)

    @translated
    def close_issue(self, number: int) -> None:
        """Close an issue as completed."""
        self._repository.get_issue(number).edit(state="closed", state_reason="completed")

    @reading
    def open_pull_requests(self, branch: str) -> tuple[PullRequest, ...]:
        """The open pull requests from a branch of this repository."""
        found = self._open_from(self._repository_name, branch)
        # GitHub looks for the branch of this owner, which a transfer has changed.
        return found if found or not self._api.has_moved else self._open_from(self.full_name(), branch)

    def _open_from(self, repository: str, branch: str) -> tuple[PullRequest, ...]:
        found = self._repository.get_pulls(state="open", head=f"{repository.partition('/')[0]}:{branch}")
        return tuple(
            PullRequest(number=pull.number, author_id=_author(pull.user), base=pull.base.ref, url=pull.html_url)
            for pull in found
            if pull.head.ref == branch
        )

    @translated
    def create_pull_request(self, *, branch: str, base: str, title: str, body: str, draft: bool) -> PullRequest:
        """A new pull request."""
        pull = self._repository.create_pull(base, branch, title=title, body=body, draft=draft)
        return PullRequest(number=pull.number, author_id=_author(pull.user), base=base, url=pull.html_url)

    @translated
    def update_pull_request(self, number: int, *, title: str, body: str) -> None:
        """Replace title and body."""
        self._repository.get_pull(number).edit(title=title, body=body)

    @reading
    def releases(self) -> tuple[Release, ...]:
        """The newest hundred releases, drafts too."""
        page = self._repository.get_releases().get_page(0)
        return tuple(Release(tag=release.tag_name, url=release.html_url) for release in page)

    @translated
    def create_release(self, *, tag: str, target: str, name: str, body: str, draft: bool) -> Release:
        """A new release; its tag is made at `target` if it does not exist."""
        made = self._repository.create_git_release(tag, name, body, draft=draft, target_commitish=target)
        return Release(tag=tag, url=made.html_url)

    def failure(self, action: str, exc: Exception) -> WriteFailed:
        """The vendor's exception in our words."""
        return write_failed(action, self._repository_name, exc, self._redactor, way=self._way)

    @property
    def _repository(self) -> Repository:
        return self._api.repository


def _author(user: NamedUser | Organization | None) -> int:
    return user.id if user else NOBODY
