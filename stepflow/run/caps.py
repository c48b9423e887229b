"""The caps of a day and of a month (UTC): how many runs one person may start, and what all runs may cost.

Two runs that begin at once must not both take what is left for one. So nothing is reserved: what starts runs (issues,
comments, labels) is on GitHub before any of them begins, in an order that all runs see alike. Each of them counts what
came before its own start. A start whose run has not said what it cost counts as a run's whole budget.

Strangers can delete or rewrite the comment that started a run, but not the run of the workflow that it caused. So for
an agent that anyone may start, these runs count too.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from stepflow.boundary.github_types import Dated, IssueComment, IssueEvent, OpenedIssue, WorkflowRun
from stepflow.boundary.own_texts import Period, PeriodCost, marker_word, read_marker
from stepflow.boundary.settings import check_actor, is_named
from stepflow.domain.agent.definition import AgentDefinition
from stepflow.domain.run import label_of
from stepflow.domain.text import count, usd
from stepflow.domain.words import Provider, StartEvent
from stepflow.errors import BeyondCap, InputError, Refused
from stepflow.run.issue import refused_if_silent, repository_reader
from stepflow.run.request import RunRequest, boundary_settings
from stepflow.run.start.inputs import Inputs
from stepflow.run.start.trigger import COMMENT, TRUSTED_ASSOCIATIONS, Trigger, is_assigned
from stepflow.run.taken_back import starts_agent

if TYPE_CHECKING:
    from stepflow.boundary.repository_reader import RepositoryReader

_NOW = {Period.DAY: "today", Period.MONTH: "this month"}
_NEXT = {Period.DAY: "tomorrow", Period.MONTH: "next month"}
#: The file in GITHUB_WORKFLOW_REF, such as `o/r/.github/workflows/triage.yml@refs/heads/main`.
_WORKFLOW_FILE = re.compile(r"/\.github/workflows/([^/@]+)@")
#: The account that GitHub shows in place of all that were deleted.
_DELETED = "ghost"


@dataclass(frozen=True, kw_only=True, order=True)
class RunStart:
    """Something on GitHub that starts a run of the agent."""

    at: datetime
    kind: str
    #: The id that GitHub gives things of this kind, in their order.
    id: int
    issue: int
    person: str

    @property
    def day(self) -> str:
        """The day (UTC) of the start."""
        return self.at.date().isoformat()


@dataclass(frozen=True, kw_only=True)
class Past:
    """What the periods of a day have brought so far: everything that started a run of the agent, in its order, and what
    the comment of each agent on each issue says of each period."""

    day: str
    starts: tuple[RunStart, ...]
    costs: Mapping[tuple[str, int, str], PeriodCost]
    #: Earlier starts by comments that are gone or were edited; nobody knows on which issue.
    withdrawn: tuple[RunStart, ...] = ()


def check_caps(request: RunRequest, agent: AgentDefinition, now: float, *, is_resumed: bool) -> None:
    """Check the caps of a run that has or needs some, before anything is paid for. A run that is resumed has been
    counted before.

    Raises `InputError` if caps are missing that must be there, `Refused` if a cap is reached, and `BeyondCap` instead
    of that for somebody without write access.
    """
    inputs, token = request.inputs, request.inputs.read_token
    if token is None and inputs.limits.sum_runs:
        raise InputError(
            "The limits `usd-per-day`, `usd-per-month` and `runs-per-person-per-day` need a read-token, with which "
            "comments are read.",
            hint="Pass `read-token: ${{ github.token }}`.",
        )
    if token is None or is_resumed:
        return
    with closing(repository_reader(request, token.get_secret_value())) as reader, refused_if_silent():
        as_writer = boundary_settings(replace(request, anyone_may_start=False))
        is_stranger = agent.anyone_may_start and check_actor(reader, as_writer) is not None
        lacks_cap = inputs.limits.usd_per_day is None or inputs.limits.runs_per_person_per_day is None
        if is_stranger and lacks_cap and inputs.model.provider is not Provider.SCRIPTED:
            raise InputError(
                f"Anyone may start {agent.name}, so its workflow must set the limits `usd-per-day` and "
                "`runs-per-person-per-day`.",
                hint="Set both in `limits`, for example to 2 and 5.",
            )
        if not inputs.limits.sum_runs:
            return
        past = _read_past(reader, request, agent, datetime.fromtimestamp(now, UTC))
    for period in Period:
        if reason := describe_reached_cap(inputs, agent, request.trigger, past, period):
            hint = f"Start the run again {_NEXT[period]} (UTC), or raise the limit."
            raise BeyondCap(reason, hint=hint) if is_stranger else Refused(reason, hint=hint)


def check_counted_runs(request: RunRequest) -> None:
    """Check that the workflow runs that count for the caps can be listed. Raises `InputError` if not."""
    token, job = request.inputs.read_token, _read_job(request.environment)
    if token and job:
        with closing(repository_reader(request, token.get_secret_value())) as reader:
            reader.workflow_runs_since(job[0], datetime.now(UTC))


def _read_past(reader: RepositoryReader, request: RunRequest, agent: AgentDefinition, now: datetime) -> Past:
    """Read the day of the repository until now, or its month if that has a cap."""
    inputs, trigger, job = request.inputs, request.trigger, _read_job(request.environment)
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    since = midnight if inputs.limits.usd_per_month is None else midnight.replace(day=1)
    viewer, listed = reader.viewer(), reader.comments_since(since)
    comments = [each for each in listed if each.author_id != viewer.id and each.created_at >= since]
    if agent.anyone_may_start and job:
        comments = [each for each in comments if not each.was_edited or each.id == trigger.start_id]
    issues, events = reader.issues_since(since), reader.events_since(since)
    starts = sorted(find_starts(inputs, agent, issues=issues, comments=comments, events=events))
    withdrawn = list[RunStart]()
    if agent.anyone_may_start and job:
        workflow, own = job
        runs = [run for run in reader.workflow_runs_since(workflow, since) if run.id < own]
        runs = [run for run in runs if run.author != viewer.login]
        withdrawn = [*find_withdrawn(inputs, runs, _written_before(trigger, starts, comments), starts)]
    markers = (read_marker(each.body) for each in listed if each.author_id == viewer.id)
    costs = {(each.agent, each.issue, cost.period): cost for each in markers if each for cost in each.periods}
    return Past(day=now.date().isoformat(), starts=tuple(starts), costs=costs, withdrawn=tuple(withdrawn))


def _read_job(environment: Mapping[str, str]) -> tuple[str, int] | None:
    """Return the file of the job's workflow and the id of the workflow run; None outside of GitHub Actions."""
    file = _WORKFLOW_FILE.search(environment.get("GITHUB_WORKFLOW_REF", ""))
    number = environment.get("GITHUB_RUN_ID", "")
    return (file[1], int(number)) if file and number.isdigit() else None


def _written_before(trigger: Trigger, starts: Sequence[RunStart], comments: list[IssueComment]) -> list[IssueComment]:
    """Return the comments that are certainly older than this run's start."""
    if trigger.start_kind == COMMENT and (own := trigger.start_id):
        return [each for each in comments if each.id < own]
    place = _find_own(starts, trigger)
    if place < len(starts):
        return [each for each in comments if each.created_at < starts[place].at]
    return [] if trigger.start_kind else comments


def describe_reached_cap(inputs: Inputs, agent: AgentDefinition, trigger: Trigger, past: Past, period: Period) -> str:
    """Say which cap of the period leaves nothing for the run of this trigger; empty if none does."""
    name, most = period.of(past.day), inputs.limits.runs_per_person_per_day
    starts = [start for start in past.starts if period.of(start.day) == name]
    withdrawn = [start for start in past.withdrawn if period.of(start.day) == name]
    admitted, of_person = list[RunStart](), Counter[tuple[str, str]]()
    for start in (*withdrawn, *starts[: _find_own(starts, trigger)]):
        if most is None or start.person == _DELETED or of_person[start.day, start.person] < most:
            admitted.append(start)
            of_person[start.day, start.person] += 1
    if trigger.start_kind and most is not None and of_person[past.day, trigger.actor] >= most:
        started = f"{trigger.actor} has started {count(most, 'run')} today"
        return f"{started}, and limits.runs-per-person-per-day allows no more."
    cap = inputs.limits.usd_per_day if period is Period.DAY else inputs.limits.usd_per_month
    if cap is None:
        return ""
    costs = {(by, issue): cost for (by, issue, its), cost in past.costs.items() if its == name}
    said = {issue: cost.runs for (by, issue), cost in costs.items() if by == marker_word(agent.name)}
    silent = Counter(start.issue for start in admitted) - Counter(said)
    budget = 0.0 if inputs.model.provider is Provider.SCRIPTED else inputs.budget(agent)
    spent, kept = sum(cost.cost.usd for cost in costs.values()), silent.total() * budget
    if spent + kept + budget <= cap:
        return ""
    return (
        f"{usd(spent)} are spent {_NOW[period]} and {usd(kept)} are kept for {count(silent.total(), 'run')} whose cost "
        f"is not known. Of {usd(cap)} (limits.usd-per-{period}) that leaves less than this run's budget of "
        f"{usd(budget)}."
    )


def find_starts(
    inputs: Inputs,
    agent: AgentDefinition,
    *,
    issues: Iterable[OpenedIssue],
    comments: Iterable[IssueComment],
    events: Iterable[IssueEvent],
) -> Iterator[RunStart]:
    """Yield what started runs of the agent, by people who may start one."""

    def may_start(each: OpenedIssue | IssueComment | IssueEvent) -> bool:
        if not each.author or not _is_person_or_named(each, inputs):
            return False
        # On an issue of somebody else, only people with a role in the repository cause an event.
        by_member = isinstance(each, IssueEvent) and each.author != each.opened_by
        return by_member or agent.anyone_may_start or each.association in TRUSTED_ASSOCIATIONS

    for issue in filter(may_start, issues if StartEvent.ISSUES_OPENED in inputs.start.events else ()):
        yield _start(StartEvent.ISSUES_OPENED, issue, issue.number, issue.number)
    for comment in filter(may_start, comments):
        is_on_issue = "/pull/" not in comment.url
        if is_on_issue and starts_agent(comment.body, inputs, agent):
            yield _start(COMMENT, comment, comment.id, comment.issue)
    for event in filter(may_start, events):
        kind, labels = f"issues.{event.event}", [label_of(agent.name, each) for each in inputs.start.labels]
        by_label = event.event == "labeled" and event.label.casefold() in map(str.casefold, labels)
        if by_label or (kind in inputs.start.events and is_assigned(event.event, event.assignee, inputs)):
            yield _start(kind, event, event.id, event.issue)


def find_withdrawn(
    inputs: Inputs, runs: Iterable[WorkflowRun], comments: Iterable[IssueComment], starts: Iterable[RunStart]
) -> Iterator[RunStart]:
    """Yield what may have started runs of an agent that anyone may start, and is no longer there to be read.

    Each comment causes a run of the workflow. Those that were skipped started no agent. As many of the others as their
    author has no unchanged comments left for on that day count as starts.
    """
    by_comment = [run for run in runs if run.event == "issue_comment" and _is_person_or_named(run, inputs)]
    skipped = Counter(_day_of(run) for run in by_comment if run.was_skipped)
    written = {each.id: _day_of(each) for each in comments}
    listed = Counter((each.person, each.day) for each in starts if each.kind == COMMENT and each.id in written)
    # Which comments the skipped runs belong to is unknown: at most they belong to those that start nothing.
    explained = (Counter(written.values()) - skipped) | listed
    for run in reversed(by_comment):
        if run.was_skipped:
            continue
        if explained[_day_of(run)] > 0:
            explained[_day_of(run)] -= 1
        else:
            yield RunStart(at=run.created_at, kind=COMMENT, id=run.id, issue=0, person=run.author or _DELETED)


def _day_of(each: Dated) -> tuple[str, str]:
    return each.author, each.created_at.date().isoformat()


def _is_person_or_named(each: Dated, inputs: Inputs) -> bool:
    return not each.is_by_bot or is_named(each.author, inputs.start.bots)


def _start(kind: str, each: OpenedIssue | IssueComment | IssueEvent, number: int, issue: int) -> RunStart:
    return RunStart(at=each.created_at, kind=kind, id=number, issue=issue, person=each.author)


def _find_own(starts: Sequence[RunStart], trigger: Trigger) -> int:
    """Return the place of this run's own start, the last one if GitHub does not list it (yet). Of events, whose id a
    workflow is not told, the newest one of this kind that the actor caused on the issue."""
    return next(
        (
            place
            for place, start in reversed([*enumerate(starts)])
            if (start.kind, start.issue) == (trigger.start_kind, trigger.issue_number)
            and start.person == trigger.actor
            and trigger.start_id in (None, start.id)
        ),
        len(starts),
    )
