"""Reads what the runs of a repository left on GitHub: the markers of their comments and reviews, their pull requests,
and what became of those.

Everything is read by GraphQL, a hundred at a time, so that ten thousand pull requests fit into an hour of a job's
token. Only texts of one account count, because anybody can copy a marker.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated, Any

from pydantic import AliasPath, BeforeValidator, Field

from stepflow.boundary.github_api import GitHubReader
from stepflow.boundary.github_client import NotGitHub
from stepflow.boundary.github_failures import ISSUE_LIST, PULL_REQUEST, ReadSubject
from stepflow.boundary.github_types import WITHOUT_NULL, Answer, ListPage, N
from stepflow.boundary.own_texts import NUMBER, Marker, read_author, read_marker
from stepflow.domain.reports.ledger import DAYS_TO_REVERT, AgentChange, AgentRun, RepositoryHistory, RunRecord
from stepflow.domain.text import Spent
from stepflow.errors import BoundaryError

_PAGE = "pageInfo { hasNextPage endCursor }"
_TEXTS = f"{{ {_PAGE} nodes {{ author {{ __typename login }} body updatedAt }} }}"
_PULL = f"""
number title body state headRefName createdAt mergedAt
author {{ __typename login }}
mergeCommit {{ oid }}
commits(first: 100) {{ totalCount nodes {{ commit {{ oid author {{ email }} }} }} }}
comments(first: 50) {_TEXTS}
reviews(first: 50) {_TEXTS}
"""
_NEWEST_FIRST = "orderBy: {field: CREATED_AT, direction: DESC}"


def _document(parameters: str, fields: str) -> str:
    """A document about one repository; its answer says what it cost and how much of the hour is left."""
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
    "of: defaultBranchRef { target { oid ... on Commit { listed: history(first: 100, after: $after, since: $since) "
    f"{{ {_PAGE} nodes {{ committedDate message }} }} }} }} }}",
)
#: Every document of GraphQL that the ledger sends.
LEDGER_DOCUMENTS = (PULL_REQUESTS, ISSUES, COMMENTS, REVIEWS, COMMITS)

#: Points of the hour's limit that are left to others, such as the jobs that share the repository's token.
RESERVE = 50
DELETED = "ghost"
_COMMITS = ReadSubject("repository", "contents")
_LINK = re.compile(rf"^Pull request: #({NUMBER})$", re.MULTILINE)
_REVERTED_COMMIT = re.compile(r"\bThis reverts commit ([0-9a-f]{7,64})\b")
_SHORTEST_OID = 7
#: Costs are written with six digits, and up to twenty of them are added.
_ROUNDING = 0.0001

#: GitHub sends null for what is gone.
_String = Annotated[str, BeforeValidator(lambda text: text or "")]
_EMPTY: dict[str, object] = {"nodes": ()}


class _RateLimit(Answer):
    cost: int
    remaining: int
    resets_at: datetime = Field(validation_alias="resetAt")


class _Text(Answer):
    """A comment or a review."""

    login: _String = Field("", validation_alias=AliasPath("author", "login"))
    kind: _String = Field("", validation_alias=AliasPath("author", "__typename"))
    body: _String = ""
    updated_at: datetime = Field(validation_alias="updatedAt")

    @property
    def account(self) -> str:
        """The account as `viewer` names it."""
        return account_name(self.login, self.kind)


class _CommitOfPull(Answer):
    oid: str = Field(validation_alias=AliasPath("commit", "oid"))
    email: _String = Field("", validation_alias=AliasPath("commit", "author", "email"))


class _Issue(Answer):
    number: int
    comments: ListPage[_Text]
    reviews: ListPage[_Text] = ListPage[_Text].model_validate(_EMPTY)


class _PullRequest(_Issue):
    title: str
    body: _String
    state: str
    branch: str = Field(validation_alias="headRefName")
    login: _String = Field("", validation_alias=AliasPath("author", "login"))
    kind: _String = Field("", validation_alias=AliasPath("author", "__typename"))
    created_at: datetime = Field(validation_alias="createdAt")
    merged_at: datetime | None = Field(validation_alias="mergedAt")
    merge_commit: _String = Field("", validation_alias=AliasPath("mergeCommit", "oid"))
    commit_count: int = Field(validation_alias=AliasPath("commits", "totalCount"))
    commits: Annotated[tuple[_CommitOfPull, ...], WITHOUT_NULL] = Field(validation_alias=AliasPath("commits", "nodes"))

    def is_only_by(self, account: str) -> bool:
        """Whether the account made every commit. Beyond the hundred that are read, nobody knows."""
        address = re.compile(rf"\d+\+{re.escape(account)}@users\.noreply\..+", re.IGNORECASE)
        return self.commit_count == len(self.commits) and all(address.fullmatch(each.email) for each in self.commits)


class _CommitOnBranch(Answer):
    committed_at: datetime = Field(validation_alias="committedDate")
    message: _String


def account_name(login: str, kind: str) -> str:
    """Return the name under which an account is its token's viewer: a GraphQL author of the kind `Bot` lacks the
    ending. GitHub shows a deleted account as `ghost`."""
    return f"{login}[bot]" if kind == "Bot" else login or DELETED


class _RepositoryAnswer(Answer):
    """The answer to a document about one repository."""

    limit: _RateLimit | None = Field(None, validation_alias="rateLimit")
    repository: dict[str, Any]


class LedgerReader(GitHubReader):
    """Reads the history of a repository's runs. Methods raise what those of `GitHubReader` do."""

    _limit: _RateLimit | None = None

    def history(self, *, read_on: date, since: date | None = None, author: str = "") -> RepositoryHistory:
        """Read everything, or what was opened and recorded from the day `since` on. `author` is the account whose texts
        count, if it is not the token's own."""
        account = author or self.viewer().login
        begin = datetime.combine(since, time(), UTC) if since else None
        pulls = tuple(self._pulls(begin))
        issues = tuple(self._list_nodes("list the issues", ISSUES, _Issue, ISSUE_LIST, since=_timestamp(begin)))
        texts = [(each.number, text) for each in (*issues, *pulls) for text in self._texts(each)]
        found = _HistoryBuilder(account=account, since=since)
        for pull in pulls:
            found.add_pull(pull)
        for number, text in texts:
            found.add_text(number, text)
        merges = [pull.merged_at for pull in found.pulls if pull.merged_at]
        if merges:
            found.add_reverts(pulls, self._commits(min(merges)), self._repository)
        return found.history(self._repository, read_on)

    def _pulls(self, begin: datetime | None) -> Iterator[_PullRequest]:
        for pull in self._list_nodes("list the pull requests", PULL_REQUESTS, _PullRequest, PULL_REQUEST):
            if begin and pull.created_at < begin:
                return
            yield pull

    def _commits(self, begin: datetime) -> Iterator[_CommitOnBranch]:
        return self._list_nodes("list the commits", COMMITS, _CommitOnBranch, _COMMITS, since=_timestamp(begin))

    def _texts(self, issue: _Issue) -> Iterator[_Text]:
        """Yield all comments and reviews; those that are not on the first page are read now."""
        subject = PULL_REQUEST if isinstance(issue, _PullRequest) else ISSUE_LIST
        for first, document, doing in (
            (issue.comments, COMMENTS, "list the comments"),
            (issue.reviews, REVIEWS, "list the reviews"),
        ):
            yield from first.nodes
            if first.more:
                yield from self._list_nodes(
                    doing, document, _Text, subject, number=issue.number, after=first.after or None
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
        found = (found["target"] or {}) if "target" in found else found
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


def _timestamp(moment: datetime | None) -> str | None:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}" if moment else None


@dataclass(kw_only=True)
class _HistoryBuilder:
    """What was found so far."""

    account: str
    since: date | None
    pulls: list[_PullRequest] = field(default_factory=list)
    #: By agent, issue and run; a pull request of a run without an issue counts as its issue.
    runs: dict[tuple[str, int, str], RunRecord] = field(default_factory=dict)
    #: The marker that knows of the highest cost, by agent and issue.
    costliest: dict[tuple[str, int], Marker] = field(default_factory=dict)
    #: Agent and digest by pull request, as comments say it.
    links: dict[int, tuple[str, str]] = field(default_factory=dict)
    reverted: set[int] = field(default_factory=set)
    others: set[str] = field(default_factory=set)

    def is_ours(self, account: str) -> bool:
        """Whether this is the account whose texts count."""
        return account.casefold() == self.account.casefold()

    def add_pull(self, pull: _PullRequest) -> None:
        """Add a pull request, and the run that wrote it."""
        if not self.is_ours(account_name(pull.login, pull.kind)):
            return
        self.pulls.append(pull)
        if written := read_author(pull.body, pull.branch):
            self._add_run(written.agent, written.issue or pull.number, written.record)

    def add_text(self, number: int, text: _Text) -> None:
        """Add what the marker of a comment or review says. Another workflow of the same account may have copied one
        from another issue."""
        marker = read_marker(text.body)
        if marker is None or marker.issue != number:
            return
        if not self.is_ours(text.account):
            self.others.add(text.account)
            return
        history = marker.history or _old_record(marker, text.updated_at)
        for record in history:
            self._add_run(marker.agent, number, record)
        for link in _LINK.findall(text.body):
            self.links[int(link)] = (marker.agent, history[-1].digest if history else "")
        known = self.costliest.get((marker.agent, number))
        if known is None or marker.cost.usd >= known.cost.usd:
            self.costliest[marker.agent, number] = marker

    def _add_run(self, agent: str, issue: int, record: RunRecord) -> None:
        """Keep of several records of a run the one that was written last."""
        known = self.runs.get((agent, issue, record.run))
        if known is None or _age(record) >= _age(known):
            self.runs[agent, issue, record.run] = record

    def add_reverts(self, pulls: Iterable[_PullRequest], commits: Iterable[_CommitOnBranch], repository: str) -> None:
        """Find out which pull requests were reverted, by another pull request or by a commit on the default branch."""
        ours = {pull.number: pull for pull in self.pulls}
        by_oid: dict[str, list[tuple[str, _PullRequest]]] = {}
        for pull in self.pulls:
            for oid in filter(None, (pull.merge_commit, *(each.oid for each in pull.commits))):
                by_oid.setdefault(oid[:_SHORTEST_OID], []).append((oid, pull))
        named = re.compile(rf"^Reverts (?:{re.escape(repository)})?#({NUMBER})\b", re.MULTILINE | re.IGNORECASE)
        for pull in pulls:
            for number in named.findall(pull.body) if pull.merged_at else ():
                if int(number) in ours:
                    self._add_revert(ours[int(number)], pull.merged_at)
        for commit in commits:
            for short in _REVERTED_COMMIT.findall(commit.message):
                for oid, pull in by_oid.get(short[:_SHORTEST_OID], ()):
                    if oid.startswith(short):
                        self._add_revert(pull, commit.committed_at)

    def _add_revert(self, pull: _PullRequest, at: datetime | None) -> None:
        if pull.merged_at and at and pull.merged_at <= at <= pull.merged_at + timedelta(days=DAYS_TO_REVERT):
            self.reverted.add(pull.number)

    def history(self, repository: str, read_on: date) -> RepositoryHistory:
        """Return all of it."""
        begin = self.since.isoformat() if self.since else ""
        runs = sorted(self.runs.items(), key=lambda each: (each[1].day, each[0]))
        return RepositoryHistory(
            repository=repository,
            account=self.account,
            read_on=read_on,
            since=self.since,
            runs=tuple(AgentRun(agent=agent, record=record) for (agent, _, _), record in runs if record.day >= begin),
            changes=tuple(filter(None, map(self._change, reversed(self.pulls)))),
            unlisted=Spent() if self.since else self._unlisted_cost(),
            other_accounts=tuple(sorted(self.others)),
        )

    def _change(self, pull: _PullRequest) -> AgentChange | None:
        """Return a pull request of a run; None for one that the account opened for another reason."""
        written = read_author(pull.body, pull.branch)
        of = (written.agent, written.record.digest) if written else self.links.get(pull.number)
        if of is None:
            return None
        return AgentChange(
            number=pull.number,
            agent=of[0],
            digest=of[1],
            merged_on=pull.merged_at.date() if pull.merged_at else None,
            is_open=pull.state == "OPEN",
            is_untouched=pull.is_only_by(self.account),
            is_reverted=pull.number in self.reverted,
        )

    def _unlisted_cost(self) -> Spent:
        """Return the cost of the runs that have no record: those of old comments, and those before the newest."""
        known: dict[tuple[str, int], Spent] = {}
        for (agent, issue, _), record in self.runs.items():
            known[agent, issue] = known.get((agent, issue), Spent()) + record.cost
        total = Spent()
        for of, marker in self.costliest.items():
            listed = known.get(of, Spent())
            if (usd := marker.cost.usd - listed.usd) > _ROUNDING:
                total += Spent(usd=usd, at_least=marker.before.at_least)
        return replace(total, usd=round(total.usd, 6))


def _age(record: RunRecord) -> tuple[bool, float, float]:
    """Order the records of one run by when they were written: its cost and its time only grow."""
    return record.outcome is not None, record.cost.usd, record.minutes or 0.0


def _old_record(marker: Marker, updated_at: datetime) -> tuple[RunRecord, ...]:
    """Return what a comment without a history says about its last run; nothing for one that cost nothing, which may
    never have begun."""
    cost = marker.cost_of(marker.run)
    if not cost.usd and not cost.at_least:
        return ()
    day = marker.periods[0].period if marker.periods else updated_at.date().isoformat()
    return (RunRecord(run=marker.run, digest="", outcome=None, cost=cost, minutes=None, day=day),)
