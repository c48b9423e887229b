"""Reads what a repository has: what a day brought, labels, similar issues, the artifacts of jobs, and merged pull
requests with the issues that they closed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from functools import partial
from itertools import takewhile
from typing import TypeVar

from pydantic import AliasPath, Field

from stepflow.boundary.github_api import GitHubReader
from stepflow.boundary.github_client import LONGEST_TEXT
from stepflow.boundary.github_failures import ARTIFACT, ISSUE_LIST, PULL_REQUEST
from stepflow.boundary.github_types import (
    MERGED_PULLS,
    Answer,
    Dated,
    IssueComment,
    IssueEvent,
    ListPage,
    OpenedIssue,
    SimilarIssue,
    read_part,
)

#: Characters of the words to search for. GitHub takes 256 of a whole query without its qualifiers.
_LONGEST_QUERY = 200


D = TypeVar("D", bound=Dated)


class Artifact(Answer):
    """Files that a job kept."""

    id: int
    is_expired: bool = Field(validation_alias="expired")


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
    merge: str = Field("", validation_alias=AliasPath("mergeCommit", "oid"))
    commits: int = Field(validation_alias=AliasPath("commits", "totalCount"))
    headline: str = Field("", validation_alias=AliasPath("commits", "nodes", 0, "commit", "messageHeadline"))
    issues: tuple[ClosedIssue, ...] = Field((), validation_alias=AliasPath("closingIssuesReferences", "nodes"))


class RepositoryReader(GitHubReader):
    """Reads the repository around an issue. Methods raise what those of `GitHubReader` do."""

    def issues_since(self, time: datetime) -> tuple[OpenedIssue, ...]:
        """The issues that were opened since then."""
        query = {"state": "all", "since": _timestamp(time), "sort": "created", "direction": "desc"}
        issues = self._newer("list the issues", OpenedIssue, "/issues", time, **query)
        return tuple(issue for issue in issues if issue.pull_request is None)

    def comments_since(self, time: datetime) -> tuple[IssueComment, ...]:
        """The comments that were written or changed since then."""
        return self._list("list the comments", IssueComment, "/issues/comments", ISSUE_LIST, since=_timestamp(time))

    def events_since(self, time: datetime) -> tuple[IssueEvent, ...]:
        """What was done with issues since then, newest first."""
        return self._newer("list the events of issues", IssueEvent, "/issues/events", time)

    def similar_issues(self, words: str, *, most: int) -> tuple[SimilarIssue, ...]:
        """Issues of this repository that GitHub finds by these words, best first. Whatever could be a qualifier or an
        operator is taken out of the words, so that nobody's text can widen the search."""
        repository = self.full_name()
        plain = " ".join(re.findall(r"\w+", words)).lower()[:_LONGEST_QUERY]
        query = {"q": f"{plain} repo:{repository} is:issue", "per_page": str(most), "search_type": "hybrid"}

        def search() -> tuple[SimilarIssue, ...]:
            data = self._client.ask("GET", self._client.search_url, parameters=query)[1]
            return read_part(tuple[SimilarIssue, ...], data, "items")

        found = self._read("search for similar issues", search, ISSUE_LIST)
        return tuple(issue for issue in found if issue.repository.endswith(f"/repos/{repository}"))

    def artifacts(self, name: str) -> tuple[Artifact, ...]:
        """The artifacts of this name that are still there, newest first; at most a hundred."""
        query = {"name": name, "per_page": "100"}

        def read() -> tuple[Artifact, ...]:
            data = self._client.ask("GET", "/actions/artifacts", parameters=query)[1]
            return tuple(each for each in read_part(list[Artifact], data, "artifacts") if not each.is_expired)

        return self._read("list the artifacts", read, ARTIFACT)

    def packed_artifact(self, artifact: Artifact) -> bytes:
        """The archive with an artifact's files; empty when it is gone, or too large."""
        path = f"/actions/artifacts/{artifact.id}/zip"
        return self._read(
            "give an artifact", lambda: self._client.stored_bytes(path, last_bytes=LONGEST_TEXT), ARTIFACT
        )

    def _newer(self, doing: str, kind: type[D], path: str, time: datetime, **query: str) -> tuple[D, ...]:
        """Those of a list with the newest first that are not older than `time`."""

        def read() -> Iterator[D]:
            listed = (each for page in self._client.pages(path, query) for each in kind.many(page))
            return takewhile(lambda each: each.created_at >= time, listed)

        return self._read(doing, lambda: tuple(read()), ISSUE_LIST)

    def merged_pulls(self) -> Iterator[MergedPull]:
        """Yield those of the repository, newest first; each page is read when it is needed."""
        after: str | None = ""
        while after is not None:
            page = self._read("list the merged pull requests", partial(self._read_page, after), PULL_REQUEST)
            yield from page.nodes
            after = page.after if page.more else None

    def _read_page(self, after: str) -> ListPage[MergedPull]:
        data = self._ask_graph(MERGED_PULLS, after=after or None)
        return read_part(ListPage[MergedPull], data, "repository", "pullRequests")


def _timestamp(time: datetime) -> str:
    return f"{time:%Y-%m-%dT%H:%M:%SZ}"
