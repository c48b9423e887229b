"""Reads what a repository has beside a run's own issue: what a day brought, similar issues, merged pull requests with
the issues that they closed, what runs left there, the artifacts of jobs, and who signed them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from functools import partial
from itertools import islice, takewhile
from pathlib import Path
from typing import Annotated, Any, TypeVar
from urllib.parse import quote

from pydantic import AliasPath, BeforeValidator, Field, TypeAdapter, ValidationError

from stepflow.boundary.github_api import GitHubReader
from stepflow.boundary.github_client import LONGEST_TEXT, NotGitHub
from stepflow.boundary.github_failures import ARTIFACT, ISSUE_LIST, PULL_REQUEST, WORKFLOW_RUN, ReadSubject
from stepflow.boundary.github_types import (
    MERGED_PULLS,
    WITHOUT_NULL,
    Answer,
    Dated,
    IssueComment,
    IssueEvent,
    ListPage,
    N,
    OpenedIssue,
    SimilarIssue,
    WorkflowRun,
    read_part,
)
from stepflow.domain.json import JsonObject
from stepflow.errors import BoundaryError, InputError
from stepflow.programs import run_program

#: The time that `gh` has, and characters of what it says.
_GH_SECONDS, _LONGEST_REFUSAL = 120, 600
_CERTIFICATE = ("verificationResult", "signature", "certificate")
#: Characters of the words to search for. GitHub takes 256 of a whole query without its qualifiers.
_LONGEST_QUERY = 200
#: Events of a repository among which one of a run that has just been started is looked for.
MOST_EVENTS = 500


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
        """Return the title that the issue had then."""
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
        """Return the issues that were opened since then."""
        query = {"state": "all", "since": _timestamp(time), "sort": "created", "direction": "desc"}
        issues = self._newer("list the issues", OpenedIssue, "/issues", time, **query)
        return tuple(issue for issue in issues if issue.pull_request is None)

    def comments_since(self, time: datetime) -> tuple[IssueComment, ...]:
        """Return the comments that were written or changed since then."""
        return self._list("list the comments", IssueComment, "/issues/comments", ISSUE_LIST, since=_timestamp(time))

    def events_since(self, time: datetime) -> tuple[IssueEvent, ...]:
        """Return what was done with issues since then, newest first."""
        return self._newer("list the events of issues", IssueEvent, "/issues/events", time)

    def newest_event(
        self, issue: int, kinds: Collection[str], *, label: str = "", assignee: str = ""
    ) -> IssueEvent | None:
        """Return the newest event of these kinds of an issue or pull request, about this label or assignee if one is
        given; None if there is none among the `MOST_EVENTS` newest of the repository."""

        def is_meant(event: IssueEvent) -> bool:
            is_about = (not label or event.label.casefold() == label.casefold()) and (
                not assignee or event.assignee.casefold() == assignee.casefold()
            )
            return event.issue == issue and event.event in kinds and is_about

        def read() -> IssueEvent | None:
            listed = (each for page in self._client.pages("/issues/events") for each in IssueEvent.many(page))
            return next(filter(is_meant, islice(listed, MOST_EVENTS)), None)

        return self._read("list the events of issues", read, ISSUE_LIST)

    def find_comment(self, number: int) -> IssueComment | None:
        """Return a comment on an issue; None if somebody has deleted it."""
        return self._find("read a comment", IssueComment, f"/issues/comments/{number}")

    def workflow_runs_since(self, workflow: str, time: datetime) -> tuple[WorkflowRun, ...]:
        """Return the runs of a workflow since then, newest first. Of a list that is narrowed by a parameter, GitHub
        gives no more than a thousand."""
        path = f"/actions/workflows/{quote(workflow, safe='')}/runs"

        def read() -> Iterator[WorkflowRun]:
            pages = self._client.pages(path, {"exclude_pull_requests": "true"})
            listed = (run for page in pages for run in read_part(list[WorkflowRun], page, "workflow_runs"))
            return takewhile(lambda run: run.created_at >= time, listed)

        return self._read("list the runs of a workflow", lambda: tuple(read()), WORKFLOW_RUN)

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
        """Return the artifacts of this name that are still there, newest first; at most a hundred."""
        query = {"name": name, "per_page": "100"}

        def read() -> tuple[Artifact, ...]:
            data = self._client.ask("GET", "/actions/artifacts", parameters=query)[1]
            return tuple(each for each in read_part(list[Artifact], data, "artifacts") if not each.is_expired)

        return self._read("list the artifacts", read, ARTIFACT)

    def packed_artifact(self, artifact: Artifact) -> bytes:
        """Return the archive with an artifact's files; empty when it is gone, or too large."""
        path = f"/actions/artifacts/{artifact.id}/zip"
        return self._read(
            "give an artifact", lambda: self._client.stored_bytes(path, last_bytes=LONGEST_TEXT), ARTIFACT
        )

    def _newer(self, doing: str, kind: type[D], path: str, time: datetime, **query: str) -> tuple[D, ...]:
        """Return those of a list with the newest first that are not older than `time`."""

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


_PAGE = "pageInfo { hasNextPage endCursor }"
_TEXTS = f"{{ {_PAGE} nodes {{ author {{ __typename login }} body }} }}"
_PULL = f"""
number title body state headRefName baseRef {{ name }} createdAt mergedAt
author {{ __typename login }}
mergeCommit {{ oid }}
commits(first: 100) {{ totalCount nodes {{ commit {{ oid author {{ email }} committer {{ email }} }} }} }}
comments(first: 50) {_TEXTS}
reviews(first: 50) {_TEXTS}
"""
_NEWEST_FIRST = "orderBy: {field: CREATED_AT, direction: DESC}"


def _document(parameters: str, fields: str) -> str:
    """Return a document about one repository; its answer says what it cost and how much of the hour is left."""
    return (
        f"query ($owner: String!, $name: String!, {parameters}) {{ rateLimit {{ cost remaining resetAt }} "
        f"repository(owner: $owner, name: $name) {{ {fields} }} }}"
    )


PULL_REQUESTS = _document(
    "$after: String",
    f"listed: pullRequests(first: 100, after: $after, {_NEWEST_FIRST}) {{ {_PAGE} nodes {{ {_PULL} }} }}",
)
ISSUES = _document(
    "$after: String, $since: DateTime",
    f"listed: issues(first: 100, after: $after, {_NEWEST_FIRST}, filterBy: {{since: $since}}) "
    f"{{ {_PAGE} nodes {{ number comments(first: 50) {_TEXTS} }} }}",
)
COMMENTS = _document(
    "$number: Int!, $after: String",
    "of: issueOrPullRequest(number: $number) { "
    f"... on Issue {{ listed: comments(first: 100, after: $after) {_TEXTS} }} "
    f"... on PullRequest {{ listed: comments(first: 100, after: $after) {_TEXTS} }} }}",
)
REVIEWS = _document(
    "$number: Int!, $after: String",
    f"of: pullRequest(number: $number) {{ listed: reviews(first: 100, after: $after) {_TEXTS} }}",
)
COMMITS = _document(
    "$after: String, $since: GitTimestamp",
    "of: defaultBranchRef { name target { oid ... on Commit { "
    "listed: history(first: 100, after: $after, since: $since) "
    f"{{ {_PAGE} nodes {{ oid committedDate message }} }} }} }} }}",
)
#: Every document of GraphQL that the ledger sends.
LEDGER_DOCUMENTS = (PULL_REQUESTS, ISSUES, COMMENTS, REVIEWS, COMMITS)

#: Points of the hour's limit that are left to others, such as the jobs that share the repository's token.
RESERVE = 50
DELETED = "ghost"
#: The address of GitHub as the committer, which on Enterprise Server ends in that server's name.
_GITHUB = "noreply@"
_COMMITS = ReadSubject("repository", "contents")
#: GitHub sends null for what is gone.
_String = Annotated[str, BeforeValidator(lambda text: text or "")]
_EMPTY: dict[str, object] = {"nodes": ()}


class _RateLimit(Answer):
    cost: int
    remaining: int
    resets_at: datetime = Field(validation_alias="resetAt")


class _Written(Answer):
    """What somebody wrote."""

    login: _String = Field("", validation_alias=AliasPath("author", "login"))
    kind: _String = Field("", validation_alias=AliasPath("author", "__typename"))

    @property
    def account(self) -> str:
        """The author, named as `viewer` names an account: a GraphQL author of the kind `Bot` lacks the ending. GitHub
        shows a deleted account as `ghost`."""
        return f"{self.login}[bot]" if self.kind == "Bot" else self.login or DELETED


class IssueText(_Written):
    """A comment or a review."""

    body: _String = ""


class CommitOfPull(Answer):
    """A commit of a pull request."""

    oid: str = Field(validation_alias=AliasPath("commit", "oid"))
    email: _String = Field("", validation_alias=AliasPath("commit", "author", "email"))
    committer: _String = Field("", validation_alias=AliasPath("commit", "committer", "email"))


class ListedIssue(Answer):
    """An issue with its texts."""

    number: int
    comments: ListPage[IssueText]
    reviews: ListPage[IssueText] = ListPage[IssueText].model_validate(_EMPTY)


class ListedPull(_Written, ListedIssue):
    """A pull request with its commits and texts."""

    title: str
    body: _String
    state: str
    branch: str = Field(validation_alias="headRefName")
    #: Empty if it was deleted.
    base: _String = Field("", validation_alias=AliasPath("baseRef", "name"))
    created_at: datetime = Field(validation_alias="createdAt")
    merged_at: datetime | None = Field(validation_alias="mergedAt")
    merge_commit: _String = Field("", validation_alias=AliasPath("mergeCommit", "oid"))
    commit_count: int = Field(validation_alias=AliasPath("commits", "totalCount"))
    commits: Annotated[tuple[CommitOfPull, ...], WITHOUT_NULL] = Field(validation_alias=AliasPath("commits", "nodes"))

    def is_only_by(self, account: str) -> bool:
        """Return whether the account made every commit, and nobody has amended one. GitHub is the committer of those
        that it writes itself. Beyond the hundred that are read, nobody knows."""
        address = re.compile(rf"\d+\+{re.escape(account)}@users\.noreply\..+", re.IGNORECASE)
        return self.commit_count == len(self.commits) and all(
            address.fullmatch(each.email)
            and (address.fullmatch(each.committer) or each.committer.startswith(_GITHUB) or not each.committer)
            for each in self.commits
        )

    @property
    def oids(self) -> tuple[str, ...]:
        """The commits that it came as."""
        return tuple(filter(None, (self.merge_commit, *(each.oid for each in self.commits))))


class CommitOnBranch(Answer):
    """A commit of the default branch."""

    oid: _String = ""
    committed_at: datetime = Field(validation_alias="committedDate")
    message: _String


class _RepositoryAnswer(Answer):
    """The answer to a document about one repository."""

    limit: _RateLimit | None = Field(None, validation_alias="rateLimit")
    repository: dict[str, Any]


class LedgerReader(GitHubReader):
    """Reads what the ledger is made of by GraphQL, a hundred at a time, so that ten thousand pull requests fit into an
    hour of a job's token. Methods raise what those of `GitHubReader` do."""

    _limit: _RateLimit | None = None
    #: The default branch, once its commits are read.
    commits_branch = ""

    def pulls(self, begin: datetime | None) -> Iterator[ListedPull]:
        """Yield the pull requests that were opened from `begin` on, newest first."""
        for pull in self._list_nodes("list the pull requests", PULL_REQUESTS, ListedPull, PULL_REQUEST):
            if begin and pull.created_at < begin:
                return
            yield pull

    def issues(self, begin: datetime | None) -> Iterator[ListedIssue]:
        """Yield the issues that changed from `begin` on."""
        since = _timestamp(begin) if begin else None
        return self._list_nodes("list the issues", ISSUES, ListedIssue, ISSUE_LIST, since=since)

    def commits(self, begin: datetime) -> Iterator[CommitOnBranch]:
        """Yield the commits of the default branch from `begin` on, newest first."""
        return self._list_nodes("list the commits", COMMITS, CommitOnBranch, _COMMITS, since=_timestamp(begin))

    def texts(self, issue: ListedIssue) -> Iterator[IssueText]:
        """Yield all comments and reviews; those that are not on the first page are read now."""
        subject = PULL_REQUEST if isinstance(issue, ListedPull) else ISSUE_LIST
        for first, document, doing in (
            (issue.comments, COMMENTS, "list the comments"),
            (issue.reviews, REVIEWS, "list the reviews"),
        ):
            yield from first.nodes
            if first.more:
                yield from self._list_nodes(
                    doing, document, IssueText, subject, number=issue.number, after=first.after or None
                )

    def _list_nodes(
        self, doing: str, document: str, kind: type[N], subject: ReadSubject, **variables: object
    ) -> Iterator[N]:
        """Yield all nodes of a list, page by page."""
        after, known = variables.pop("after", None), set[str]()

        def read() -> tuple[tuple[N, ...], str]:
            page = self._read_page(document, kind, {**variables, "after": after})
            if page.more and (not page.after or page.after in known):
                raise NotGitHub("a page of the answer leads back to one before")
            return page.nodes, page.after if page.more else ""

        while after != "":
            self._demand_points()
            nodes, after = self._read(doing, read, subject)
            known.add(after)
            yield from nodes

    def _read_page(self, document: str, kind: type[N], variables: dict[str, object]) -> ListPage[N]:
        answered = _RepositoryAnswer.model_validate(self._ask_graph(document, **variables))
        self._limit = answered.limit or self._limit
        found = answered.repository
        # Of a repository without a commit there is no branch.
        found = (found["of"] or {}) if "of" in found else found
        if "target" in found:
            self.commits_branch, found = found.get("name") or "", found["target"] or {}
        return ListPage[kind].model_validate(found.get("listed") or _EMPTY)  # type: ignore[valid-type]

    def _demand_points(self) -> None:
        """Raise `BoundaryError` before the limit of the hour is used up."""
        limit = self._limit
        if limit and limit.remaining < limit.cost + RESERVE:
            raise BoundaryError(
                f"GitHub lets this token use {limit.remaining} more points of its GraphQL API until "
                f"{limit.resets_at:%H:%M} UTC, which is too little to read on.",
                hint="Start again then, or read less with --since.",
            )


class SignedStatement(Answer):
    """A statement whose signature is valid, with what the certificate says of the job that signed it. `signer` is the
    workflow file with its ref; `source_ref` and `source_commit` are what the job was started on."""

    statement: JsonObject = Field(validation_alias=AliasPath("verificationResult", "statement"))
    signer: str = Field(validation_alias=AliasPath(*_CERTIFICATE, "buildSignerURI"))
    source: str = Field(validation_alias=AliasPath(*_CERTIFICATE, "sourceRepositoryURI"))
    source_ref: str = Field(validation_alias=AliasPath(*_CERTIFICATE, "sourceRepositoryRef"))
    source_commit: str = Field(validation_alias=AliasPath(*_CERTIFICATE, "sourceRepositoryDigest"))


def read_signatures(
    journal: Path, policy: Sequence[str], *, program: Path | None, host: str, token: str
) -> tuple[SignedStatement, ...]:
    """Return the statements about this file that were signed as the policy demands. It is in the words of
    `gh attestation verify`, which knows whose certificates to trust and asks this `host` alone. Raises `BoundaryError`
    if there are none, and `InputError` without `gh`."""
    if program is None:
        raise InputError(
            "The signature cannot be checked, because there is no `gh`.",
            hint="Install GitHub's command line (https://cli.github.com), or leave the signature out with --unsigned.",
        )
    words = (str(program), "attestation", "verify", str(journal), "--format", "json", *policy)
    environment = {**os.environ, **({"GH_TOKEN": token} if token else {}), "GH_HOST": host, "NO_COLOR": "1"}
    try:
        # Not in the checkout, whose settings `gh` would read.
        done = run_program(*words, folder=journal.parent, environment=environment, seconds=_GH_SECONDS)
    except OSError as exc:
        raise BoundaryError(f"`gh attestation verify` does not run: {exc}.", hint="Try it again.") from exc
    if done.returncode:
        said = " ".join(done.stderr.decode(errors="replace").split())[-_LONGEST_REFUSAL:]
        raise BoundaryError(f"`gh attestation verify` refused it: {said}")
    try:
        return tuple(TypeAdapter(tuple[SignedStatement, ...]).validate_python(json.loads(done.stdout)))
    except (ValueError, ValidationError) as exc:
        raise BoundaryError(
            "The answer of `gh attestation verify` cannot be read.", hint="Use its newest version."
        ) from exc
