"""Texts that runs have written on GitHub, recognized by their author and hidden markers: a run's comment with the
engine's own lines, and a run's part of a pull request's body."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from urllib.parse import quote

from stepflow.boundary.github_types import Account, Comment, IssueNow, PullRequest
from stepflow.domain.effect import APPROVE, EffectStatus, Receipt
from stepflow.domain.reports.ledger import RunRecord
from stepflow.domain.run import Issue
from stepflow.domain.text import Spent
from stepflow.domain.words import Outcome
from stepflow.ports import Clock

NO_COMMIT = "none"
#: The number of an issue. Anybody can write one that no integer may be read from.
NUMBER = "[0-9]{1,18}"
#: How our comments begin and end. If another workflow of the same account quotes one, it has other text around it.
_HEAD = "<!-- stepflow -->"
_OWN_COMMENT = re.compile(
    rf"{_HEAD}\n(?P<text>.*)\n\n"
    rf"<!-- stepflow run=(?P<run>\S+) agent=(?P<agent>\S+) issue=(?P<issue>{NUMBER}) "
    r"commit=(?P<commit>[0-9a-f]{40,64}|none) "
    r"cost=(?P<cost>\d{1,9}\.\d{1,9}\+?) before=(?P<before>\d{1,9}\.\d{1,9}\+?)"
    r"(?P<periods>(?: day=\d{4}-\d\d-\d\d runs=\d{1,9} today=\d{1,9}\.\d{1,9}\+?)?"
    r"(?: month=\d{4}-\d\d runs=\d{1,9} spent=\d{1,9}\.\d{1,9}\+?)?)"
    r"(?: history=(?P<history>\S+))? -->\s*",
    re.DOTALL,
)
_PERIOD = re.compile(r" (?:day|month)=(\S+) runs=(\d+) (?:today|spent)=(\S+)")
_NOTHING = Spent()
#: Decimal places of a cost in a marker.
_DIGITS = 6
#: The runs that a comment's history lists: the newest.
MOST_RECORDS = 20
_IN_PROGRESS = "running"
_RECORD = re.compile(
    r"(?P<run>[\w.-]+):(?P<digest>[0-9a-f]{12}):(?P<outcome>[a-z_]+):(?P<cost>\d{1,9}\.\d{1,9}\+?)"
    r":(?P<minutes>\d{1,9}\.\d):(?P<day>\d{4}-\d\d-\d\d)",
    re.ASCII,
)


class Period(StrEnum):
    """A time whose costs are summed. It begins at midnight or on the first of the month (UTC)."""

    DAY = "day"
    MONTH = "month"

    def of(self, day: str) -> str:
        """Return the name of the period in which a day is: `2026-01-31` or `2026-01`."""
        return day if self is Period.DAY else day[: len("2026-01")]


@dataclass(frozen=True, kw_only=True)
class PeriodCost:
    """What an agent's runs on an issue cost in one day or month, and how many there were."""

    period: str
    runs: int = 0
    cost: Spent = _NOTHING

    def __str__(self) -> str:
        is_day = self.period != Period.MONTH.of(self.period)
        name, spent = (Period.DAY, "today") if is_day else (Period.MONTH, "spent")
        return f"{name}={self.period} runs={self.runs} {spent}={_figure(self.cost)}"


@dataclass(frozen=True, kw_only=True)
class Marker:
    """The hidden facts at the end of a comment of ours."""

    run: str
    agent: str
    issue: int
    #: The commit that we pushed last; `none` if we never pushed.
    commit: str = NO_COMMIT
    #: The cost of this run together with `before`.
    cost: Spent = _NOTHING
    #: The cost of the agent's earlier runs on the issue.
    before: Spent = _NOTHING
    #: The parts of `cost` that belong to the day and the month of this run.
    periods: tuple[PeriodCost, ...] = ()
    #: The agent's newest runs on the issue, oldest first; none for runs that could not be prepared.
    history: tuple[RunRecord, ...] = ()

    def __str__(self) -> str:
        words = f"run={self.run} agent={self.agent} issue={self.issue} commit={self.commit}"
        costs = f"cost={_figure(self.cost)} before={_figure(self.before)}"
        history = [f"history={','.join(map(_write_record, self.history))}"] if self.history else []
        return f"<!-- stepflow {' '.join([words, costs, *map(str, self.periods), *history])} -->"

    def minus(self, run: str) -> Spent:
        """Return the cost of all runs except this one, so that a resumed run does not count its first part twice."""
        return self.before if self.run == marker_word(run) else self.cost

    def cost_of(self, run: str) -> Spent:
        """Return the recorded cost of this run so far; zero if the marker belongs to another run."""
        if self.run != marker_word(run):
            return _NOTHING
        at_least = self.cost.at_least and not self.before.at_least
        return Spent(usd=round(max(0.0, self.cost.usd - self.before.usd), _DIGITS), at_least=at_least)


@dataclass(frozen=True, kw_only=True)
class OwnComment:
    """A comment of ours with its marker."""

    comment: Comment
    marker: Marker


def whole_cost(own: OwnComment | None, *, run: str, cost: Spent) -> Spent:
    """Return the cost of a run: the higher of `cost` and what our comment recorded, which is higher when the run was
    resumed from an older folder."""
    return cost.or_more(own.marker.cost_of(run)) if own else cost


def find_own_comment(comments: tuple[Comment, ...], viewer: Account, *, agent: str, issue: int) -> OwnComment | None:
    """Return our newest comment about this agent and issue."""
    own = reversed(_own_comments(comments, viewer, issue))
    return next((each for each in own if each.marker.agent == marker_word(agent)), None)


def find_costliest(texts: tuple[Comment, ...], viewer: Account, *, agent: str, issue: int) -> OwnComment | None:
    """Return our text about this agent and issue, comment or review, whose marker knows of the highest cost; the newest
    of those."""
    own = [each for each in _own_comments(texts, viewer, issue) if each.marker.agent == marker_word(agent)]
    return max(reversed(own), key=lambda each: each.marker.cost.usd, default=None)


def find_asking_comment(comments: tuple[Comment, ...], viewer: Account, *, issue: int) -> OwnComment | None:
    """Return our newest comment on the issue that asks to approve a plan, of any agent."""
    own = reversed(_own_comments(comments, viewer, issue))
    return next((each for each in own if f"`{APPROVE} " in each.comment.body), None)


def spent_on_issue(comments: tuple[Comment, ...], viewer: Account, *, issue: int, run: str) -> Spent:
    """Return the cost of all other runs on the issue, from the text of each agent that knows of the most."""
    most: dict[str, Spent] = {}
    for each in _own_comments(comments, viewer, issue):
        most[each.marker.agent] = each.marker.minus(run).or_more(most.get(each.marker.agent, _NOTHING))
    return sum(most.values(), _NOTHING)


def _own_comments(comments: tuple[Comment, ...], viewer: Account, issue: int) -> list[OwnComment]:
    """Return our comments about the issue, oldest first. Others can copy a marker, but not our author id; another
    workflow of the same account quotes it within other text."""
    return [
        OwnComment(comment=comment, marker=marker)
        for comment in comments
        if comment.author_id == viewer.id and (marker := read_marker(comment.body)) and marker.issue == issue
    ]


def today(clock: Clock | None) -> str:
    """Return the day (UTC) of a marker that is made now."""
    now = datetime.now(UTC) if clock is None else datetime.fromtimestamp(clock.now(), UTC)
    return now.date().isoformat()


def make_marker(
    own: OwnComment | None,
    *,
    run: str,
    agent: str,
    issue: int,
    commit: str,
    cost: Spent,
    day: str,
    record: RunRecord | None = None,
) -> Marker:
    """Make the marker of a run's comment of that `day`, which replaces `own`. Without a `commit`, that of `own` is
    kept, and without a `record` its history."""
    before = own.marker.minus(run) if own else _NOTHING
    whole = whole_cost(own, run=run, cost=cost)
    history = own.marker.history if own else ()
    if record:
        others = [each for each in history if each.run != record.run]
        history = (*others, replace(record, cost=whole))[-MOST_RECORDS:]
    return Marker(
        run=marker_word(run),
        agent=marker_word(agent),
        issue=issue,
        commit=commit or (own.marker.commit if own else NO_COMMIT),
        cost=before + whole,
        before=before,
        periods=tuple(_add_to_period(own.marker if own else None, run, whole, each.of(day)) for each in Period),
        history=history,
    )


def _add_to_period(marker: Marker | None, run: str, whole: Spent, period: str) -> PeriodCost:
    """Return the cost of the period with that of a run, which is not counted twice if the marker has it already."""
    earlier = next((each for each in marker.periods if each.period == period), None) if marker else None
    if marker is None or earlier is None:
        return PeriodCost(period=period, runs=1, cost=whole)
    is_same = marker.run == marker_word(run)
    others = Spent(usd=max(0.0, earlier.cost.usd - marker.cost_of(run).usd), at_least=earlier.cost.at_least)
    return PeriodCost(period=period, runs=earlier.runs + (not is_same), cost=others + whole)


def read_marker(body: str) -> Marker | None:
    """Read the marker in the last line of a comment; None unless `mark_comment` has made the whole comment."""
    if (match := _own(body)) is None:
        return None
    return Marker(
        run=match["run"],
        agent=match["agent"],
        issue=int(match["issue"]),
        commit=match["commit"],
        cost=_read_figure(match["cost"]),
        before=_read_figure(match["before"]),
        periods=tuple(
            PeriodCost(period=period, runs=int(runs), cost=_read_figure(cost))
            for period, runs, cost in _PERIOD.findall(match["periods"])
        ),
        history=tuple(_read_records(match["history"] or "")),
    )


def _write_record(record: RunRecord) -> str:
    outcome = record.outcome or _IN_PROGRESS
    return f"{record.run}:{record.digest}:{outcome}:{_figure(record.cost)}:{record.minutes:.1f}:{record.day}"


def _read_records(history: str) -> Iterator[RunRecord]:
    """Read the records, without those that another version of the engine wrote in words unknown here."""
    for match in filter(None, map(_RECORD.fullmatch, history.split(","))):
        outcome = match["outcome"]
        if outcome in {_IN_PROGRESS, *Outcome}:
            yield RunRecord(
                run=match["run"],
                digest=match["digest"],
                outcome=None if outcome == _IN_PROGRESS else Outcome(outcome),
                cost=_read_figure(match["cost"]),
                minutes=float(match["minutes"]),
                day=match["day"],
            )


def without_marker(body: str) -> str:
    """Return the text of a comment of ours without its marker."""
    match = _own(body)
    return match["text"].rstrip() if match else body


def mark_comment(text: str, marker: Marker) -> str:
    """Return a comment's full body."""
    return f"{_HEAD}\n{text.rstrip()}\n\n{marker}"


#: How the text of a comment about a run in progress begins. No text of the model's can, since hidden text is removed.
_PROGRESS_MARK = "<!-- stepflow progress -->"


def mark_progress(text: str) -> str:
    """Return the text of a comment about a run in progress."""
    return f"{_PROGRESS_MARK}\n{text}"


def is_progress(body: str) -> bool:
    """Whether a comment is about a run in progress; if that run is over, it could not write its result."""
    match = _own(body)
    return match is not None and match["text"].startswith(_PROGRESS_MARK)


def marker_word(text: str) -> str:
    """Turn a name into one word of a marker. Two valid agent names never give the same word."""
    return re.sub(r"[^\w.-]+", "-", text, flags=re.ASCII)


def _own(body: str) -> re.Match[str] | None:
    """Match a comment of ours, also after an edit on GitHub's page, which changes the line breaks."""
    return _OWN_COMMENT.fullmatch(body.replace("\r\n", "\n"))


def _figure(spent: Spent) -> str:
    return f"{spent.usd:.{_DIGITS}f}{'+' if spent.at_least else ''}"


def _read_figure(figure: str) -> Spent:
    return Spent(usd=float(figure.rstrip("+")), at_least=figure.endswith("+"))


#: The account of a job's own token; it starts no workflow but by a dispatch.
JOB_ACCOUNT = "github-actions[bot]"


def pull_request_lines(receipt: Receipt, viewer: Account) -> tuple[str, ...]:
    """Say where the pull request is, or why there is none."""
    if receipt.status is EffectStatus.FORBIDDEN:
        return (
            "**GitHub did not allow this token to open a pull request.** In the repository's settings under *Actions → "
            "General → Workflow permissions* turn on *Allow GitHub Actions to create and approve pull requests*, and "
            "give the job `pull-requests: write`. The commits are pushed: "
            f"[open the pull request by hand]({receipt.url}).",
        )
    line = f"Pull request: #{receipt.number}"
    if viewer.login != JOB_ACCOUNT or receipt.status is not EffectStatus.APPLIED:
        return (line,)
    return (
        line,
        "It was opened with the job's own token, so its workflows wait until somebody with write access selects "
        "*Approve workflows to run* there (where there is no such button, close and reopen it). With the token of a "
        "GitHub App as `github-token` they start by themselves.",
    )


def workflow_lines(workflow: str, pushed: Receipt, repository_url: str) -> tuple[str, ...]:
    """Say where to find the runs of the workflow on the pushed branch, which is started last."""
    query = quote(f"branch:{pushed.branch}")
    runs = f"{repository_url}/actions/workflows/{quote(workflow)}?query={query}"
    return (f"[Runs of `{workflow}` on the branch]({runs})",)


def branch_lines(planned: str, pushed: str) -> tuple[str, ...]:
    """Say where the commits are if they are not on the planned branch."""
    if planned == pushed:
        return ()
    return (f"Branch `{planned}` contains somebody else's commits, so those of this run are on `{pushed}`.",)


def has_same_text(used: Issue, now: Issue | IssueNow) -> bool:
    """Whether title and body are unchanged."""
    return (_plain(used.title), _plain(used.body)) == (_plain(now.title), _plain(now.body))


def edited_lines(used: Issue, now: IssueNow) -> tuple[str, ...]:
    """Say that the issue was edited after the run read it, if it was."""
    if has_same_text(used, now):
        return ()
    return ("The issue has been edited since this run was triggered; the run used the text as it was then.",)


def _plain(text: str) -> str:
    return text.replace("\r\n", "\n").strip()


#: GitHub accepts 65,536 characters.
LONGEST_BODY = 65_000
_OWN_PART = re.compile(
    r"<!-- stepflow title=(?P<title>[0-9a-f]{16}) text=(?P<digest>[0-9a-f]{16})"
    rf"(?: agent=(?P<agent>\S+) issue=(?P<issue>{NUMBER}|none) history=(?P<history>\S+))? -->\n"
    r"(?P<text>(?:(?!<!-- stepflow title=).)*?)\n<!-- /stepflow -->",
    re.DOTALL,
)


@dataclass(frozen=True, kw_only=True)
class PullRequestAuthor:
    """The run that wrote our part of a pull request."""

    agent: str
    #: None for a run without an issue.
    issue: int | None
    record: RunRecord

    def __str__(self) -> str:
        issue = "none" if self.issue is None else self.issue
        return f"agent={self.agent} issue={issue} history={_write_record(self.record)}"


def read_author(body: str, branch: str) -> PullRequestAuthor | None:
    """Read which run wrote our part of a pull request from this branch; None for any other, and for one that
    another workflow copied, such as into a backport: its branch is none of the agent's."""
    part = _OWN_PART.search(body.replace("\r\n", "\n"))
    records = tuple(_read_records(part["history"])) if part and part["history"] else ()
    if part is None or not records:
        return None
    issue = None if part["issue"] == "none" else int(part["issue"])
    own = "run-" if issue is None else rf"issue-{issue}(?![0-9])"
    if not re.search(rf"{re.escape(part['agent'])}/{own}", branch):
        return None
    return PullRequestAuthor(agent=part["agent"], issue=issue, record=records[0])


def mark_body(title: str, text: str, author: PullRequestAuthor | None) -> str:
    """Put markers around the body, with digests of the text and of its title."""
    facts = f" {author}" if author else ""
    return f"<!-- stepflow title={_digest(title)} text={_digest(text)}{facts} -->\n{text}\n<!-- /stepflow -->"


def update_text(title: str, text: str, pull: PullRequest, author: PullRequestAuthor | None) -> tuple[str, str]:
    """Return title and body of the pull request with our new part. A title or part that a person has changed is kept,
    and so is the rest of the body. Nothing changes if the result would be too long."""
    body = pull.body.replace("\r\n", "\n")
    own, updated = _OWN_PART.search(body), mark_body(title, text, author)
    if own is None:
        body = f"{body.rstrip()}\n\n{updated}".lstrip()
    else:
        kept = "" if _digest(own["text"]) == own["digest"] else f"{own['text'].strip()}\n\n"
        body = f"{body[: own.start()]}{kept}{updated}{body[own.end() :]}"
    if len(body) > LONGEST_BODY:
        return pull.title, pull.body
    is_ours = own is not None and _digest(pull.title) == own["title"]
    return (title if is_ours else pull.title), body


def _digest(text: str) -> str:
    """Digest a text without its outer blanks and its kind of line breaks, which GitHub does not preserve."""
    return hashlib.sha256(text.replace("\r\n", "\n").strip().encode()).hexdigest()[:16]
