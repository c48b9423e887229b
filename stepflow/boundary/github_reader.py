"""Reads GitHub before a run: an issue, what was said about it, what somebody may do.

Takes: the API's address, the repository, a token that can read, or none for a public repository. Gives: typed answers.
May touch: the GitHub API, only to read. The workflow's own token never comes here (boundary.md).
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, urlsplit

import github

from stepflow.boundary.comment import read_marker, spent_on_issue
from stepflow.boundary.github_errors import reading, write_failed
from stepflow.boundary.github_requests import GitHubRequests
from stepflow.boundary.patience import Patience
from stepflow.boundary.writer import Account, Comment
from stepflow.domain.redact import Redactor
from stepflow.domain.run import Issue
from stepflow.domain.way import DIRECT, Way
from stepflow.domain.words import Permission
from stepflow.errors import BoundaryError, InputError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from github.IssueComment import IssueComment
    from github.Repository import Repository

    from stepflow.domain.spent import Spent

NOT_FOUND = 404
#: The author of what a deleted account wrote.
NOBODY = 0
_OLDEST_FIRST = {"sort": "created", "direction": "asc", "per_page": "100"}
_NEXT_LINK = re.compile(r'<([^<>]*)>;\s*rel="next"')
_WHO_AM_I = "query { viewer { databaseId login } }"
_HINTS = {
    401: "The token is not accepted: check `read-token`.",
    403: "The token lacks a permission: to read it needs `issues: read` (and `metadata: read`).",
    NOT_FOUND: "There is no such issue, or it cannot be seen with this token: check the number and `read-token`.",
}
_NO_LIST = (
    "The repository cannot be seen, or has no issues: pass `read-token: ${{ github.token }}` and give the job the "
    "permission `issues: read`."
)


@dataclass(frozen=True, kw_only=True)
class Remark:
    """A comment that a person wrote."""

    author: str
    at: datetime
    body: str


@dataclass(frozen=True, kw_only=True)
class IssuesPage:
    """One page of a list. `listed` counts pull requests too; `next` asks for the page after it, None at the end."""

    issues: tuple[Issue, ...]
    listed: int
    next: Mapping[str, str] | None


class GitHubReader:
    """One repository, read with one token, or anonymously. Close it at the end.

    Every method raises `InputError` where token or number are wrong, and `BoundaryError` where GitHub fails.
    """

    def __init__(
        self,
        *,
        api_url: str,
        repository: str,
        token: str | None,
        redactor: Redactor | None = None,
        patience: Patience | None = None,
        way: Way = DIRECT,
    ) -> None:
        self._redactor = (redactor or Redactor()).knowing(*([token] if token else []))
        self._repository_name = repository
        self._way = way
        self._api = GitHubRequests(api_url=api_url, repository=repository, token=token, way=way)
        self.patience = patience or Patience()

    def close(self) -> None:
        """Close the connections."""
        self._api.close()

    @reading
    def permission(self, login: str) -> str:
        """What this account may do: a word of `Permission`, `none` for a stranger."""
        return permission_of(self._api, self._repository.url, login)

    @reading
    def issue(self, number: int) -> Issue | None:
        """The issue now; None when the number is a pull request's."""
        _, data = self._api.requestJsonAndCheck("GET", f"{self._repository.url}/issues/{number}")
        if data.get("pull_request"):
            return None
        return issue_from(data)

    @reading
    def issues_page(self, label: str, page: Mapping[str, str] | None = None) -> IssuesPage:
        """Up to a hundred open issues with this label, oldest first; `page` is the `next` of the page before."""
        asked = {**(page or {}), "state": "open", "labels": label, **_OLDEST_FIRST}
        headers, data = self._api.requestJsonAndCheck("GET", f"{self._repository.url}/issues", parameters=asked)
        # GitHub lists pull requests as issues too.
        issues = tuple(issue_from(entry) for entry in data if not entry.get("pull_request"))
        return IssuesPage(issues=issues, listed=len(data), next=_next_page(headers.get("link", "")))

    @reading
    def spent(self, number: int, *, run: str) -> Spent:
        """What all other runs on the issue have cost, as far as this token's own account wrote their comments."""
        comments = comments_of(self._repository, number)
        return spent_on_issue(comments, viewer_of(self._api), issue=number, run=run)

    @reading
    def labels(self) -> tuple[str, ...]:
        """The names of all labels that the repository has."""
        return tuple(label.name for label in self._repository.get_labels())

    @reading
    def remarks(self, number: int, *, most: int) -> tuple[Remark, ...]:
        """What people said on the issue, newest first, out of its `most` newest comments; no bot's and none of ours."""
        listed = self._repository.get_issue(number).get_comments().reversed
        newest = tuple(itertools.islice(listed, most))
        return tuple(_remark(comment) for comment in newest if _is_a_persons(comment))

    def failure(self, action: str, exc: Exception) -> InputError | BoundaryError:
        """The vendor's exception in our words."""
        failed = write_failed(action, self._repository_name, exc, self._redactor, way=self._way)
        if failed.status in _HINTS:
            wrong_list = action == "issues_page" and failed.status == NOT_FOUND
            return InputError(failed.message, hint=_NO_LIST if wrong_list else _HINTS[failed.status])
        return failed

    @property
    def _repository(self) -> Repository:
        return self._api.repository


def issue_from(data: Mapping[str, Any]) -> Issue:
    """An issue out of GitHub's JSON."""
    return Issue(
        number=int(data["number"]),
        title=str(data["title"]),
        body=str(data.get("body") or ""),
        author=str((data.get("user") or {}).get("login", "")),
        url=str(data["html_url"]),
        labels=tuple(str(label if isinstance(label, str) else label["name"]) for label in data["labels"]),
    )


def viewer_of(api: GitHubRequests) -> Account:
    """Whose token this is; `GET /user` answers 403 to the tokens of jobs and Apps."""
    _, data = api.graphql_query(_WHO_AM_I, {})
    viewer = data["data"]["viewer"]
    return Account(id=int(viewer["databaseId"]), login=str(viewer["login"]))


def comments_of(repository: Repository, number: int) -> tuple[Comment, ...]:
    """All comments of an issue, oldest first."""
    return tuple(comment_of(comment) for comment in repository.get_issue(number).get_comments())


def comment_of(comment: IssueComment) -> Comment:
    """One comment."""
    author = comment.user.id if comment.user else NOBODY
    return Comment(id=comment.id, author_id=author, body=comment.body or "", url=comment.html_url)


def permission_of(api: GitHubRequests, repository_url: str, login: str) -> str:
    """The role where it is one of GitHub's own, else the permission that a custom role stands for."""
    try:
        _, data = api.requestJsonAndCheck("GET", f"{repository_url}/collaborators/{quote(login, safe='')}/permission")
    except github.GithubException as exc:
        if exc.status != NOT_FOUND:
            raise
        return Permission.NONE
    role, permission = str(data.get("role_name", "")), str(data["permission"])
    return role if role in set(Permission) else permission if permission in set(Permission) else Permission.NONE


def _next_page(link: str) -> Mapping[str, str] | None:
    """What the link to the next page adds to the question: a number or a cursor, whichever GitHub uses."""
    found = _NEXT_LINK.search(link)
    return dict(parse_qsl(urlsplit(found[1]).query)) if found else None


def _is_a_persons(comment: IssueComment) -> bool:
    return comment.user is not None and comment.user.type != "Bot" and read_marker(comment.body or "") is None


def _remark(comment: IssueComment) -> Remark:
    return Remark(author=comment.user.login, at=comment.created_at, body=comment.body or "")
