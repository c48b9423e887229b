"""Reads merged pull requests with the issues that they closed, as evals need them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from functools import partial
from typing import Annotated

from pydantic import AliasPath, BeforeValidator, Field

from stepflow.boundary.github_api import GitHubReader
from stepflow.boundary.github_failures import PULL_REQUEST
from stepflow.boundary.github_types import MERGED_PULLS, Answer

#: Null for a commit that is gone.
_Oid = Annotated[str, BeforeValidator(lambda commit: commit["oid"] if commit else "")]
_LastHeadline = Annotated[str, BeforeValidator(lambda nodes: nodes[-1]["commit"]["messageHeadline"] if nodes else "")]


class RenamedTitle(Answer):
    """A change of an issue's title."""

    at: datetime = Field(validation_alias="createdAt")
    before: str = Field(validation_alias="previousTitle")


class ClosedIssue(Answer):
    """An issue that a pull request closed, as it is now. `edited_at` is when its body was last edited, if ever."""

    number: int
    title: str
    body: str
    repository: str = Field(validation_alias=AliasPath("repository", "nameWithOwner"))
    edited_at: datetime | None = Field(None, validation_alias="lastEditedAt")
    renames: tuple[RenamedTitle, ...] = Field((), validation_alias=AliasPath("timelineItems", "nodes"))

    def title_at(self, time: datetime) -> str:
        """The title that the issue had then."""
        later = (rename for rename in self.renames if rename.at > time)
        return next((rename.before for rename in sorted(later, key=lambda rename: rename.at)), self.title)


class MergedPull(Answer):
    """A merged pull request. `merge` is the commit on its base branch, empty if GitHub does not know it. `issues` are
    the first two that it closed, `headline` is that of its last commit."""

    number: int
    url: str
    opened_at: datetime = Field(validation_alias="createdAt")
    merge: _Oid = Field(validation_alias="mergeCommit")
    commits: int = Field(validation_alias=AliasPath("commits", "totalCount"))
    headline: _LastHeadline = Field(validation_alias=AliasPath("commits", "nodes"))
    issues: tuple[ClosedIssue, ...] = Field((), validation_alias=AliasPath("closingIssuesReferences", "nodes"))


class _MergedPage(Answer):
    pulls: tuple[MergedPull, ...] = Field(validation_alias=AliasPath("repository", "pullRequests", "nodes"))
    more: bool = Field(validation_alias=AliasPath("repository", "pullRequests", "pageInfo", "hasNextPage"))
    after: str | None = Field(None, validation_alias=AliasPath("repository", "pullRequests", "pageInfo", "endCursor"))


class MergedPullReader(GitHubReader):
    """Reads merged pull requests."""

    def merged_pulls(self) -> Iterator[MergedPull]:
        """Yield those of the repository, newest first; each page is read when it is needed."""
        after: str | None = ""
        while after is not None:
            page = self._read("list the merged pull requests", partial(self._read_page, after), PULL_REQUEST)
            yield from page.pulls
            after = page.after if page.more else None

    def _read_page(self, after: str) -> _MergedPage:
        owner, _, name = self._repository.partition("/")
        return _MergedPage.model_validate(
            self._client.graphql(MERGED_PULLS, owner=owner, name=name, after=after or None)
        )
