"""The caps of a day and of a month (UTC): how many runs one person may start, and what all runs may cost.

Two runs that begin at once must not both take what is left for one. So nothing is reserved: what starts runs (issues,
comments, labels) is on GitHub before any of them begins, in an order that all runs see alike. Each of them counts what
came before its own start. A start whose run has not said what it cost counts as a run's whole budget.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from stepflow.boundary.github_types import IssueComment, IssueEvent, OpenedIssue
from stepflow.boundary.own_texts import Period, PeriodCost, marker_word, read_marker
from stepflow.boundary.settings import BeyondCap, Refused, check_actor, is_named
from stepflow.definition.builtin import PREFIX
from stepflow.domain.agent.definition import AgentDefinition
from stepflow.domain.run import label_of
from stepflow.domain.text import count, usd
from stepflow.domain.words import Provider, StartEvent
from stepflow.errors import InputError
from stepflow.run.issue import refused_if_silent, repository_reader
from stepflow.run.request import RunRequest, boundary_settings
from stepflow.run.start.inputs import Inputs
from stepflow.run.start.trigger import COMMENT, TRUSTED_ASSOCIATIONS, Trigger, is_assigned, starts_by_comment

if TYPE_CHECKING:
    from stepflow.boundary.repository_reader import RepositoryReader

_NOW = {Period.DAY: "today", Period.MONTH: "this month"}
_NEXT = {Period.DAY: "tomorrow", Period.MONTH: "next month"}


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


def check_caps(request: RunRequest, agent: AgentDefinition, now: float, *, is_resumed: bool) -> None:
    """Check the caps of a run that has or needs some, before anything is paid for. A run that is resumed has been
    counted before.

    Raises `InputError` if caps are missing that must be there, `Refused` if a cap is reached, and `BeyondCap` instead
    of that for somebody without write access.
    """
    inputs, token = request.inputs, request.inputs.read_token
    if token is None and inputs.has_caps:
        raise InputError(
            "The inputs `budget-usd-per-day`, `budget-usd-per-month` and `runs-per-person-per-day` need a read-token, "
            "with which comments are read.",
            hint="Pass `read-token: ${{ github.token }}`.",
        )
    if token is None or is_resumed:
        return
    with closing(repository_reader(request, token.get_secret_value())) as reader, refused_if_silent():
        as_writer = boundary_settings(replace(request, anyone_may_start=False))
        is_stranger = agent.anyone_may_start and check_actor(reader, as_writer) is not None
        lacks_cap = inputs.budget_usd_per_day is None or inputs.runs_per_person_per_day is None
        if is_stranger and lacks_cap and inputs.provider is not Provider.SCRIPTED:
            raise InputError(
                f"Anyone may start {agent.name}, so its workflow must set `budget-usd-per-day` and "
                "`runs-per-person-per-day`.",
                hint="Set both, for example to 2 and 5.",
            )
        if not inputs.has_caps:
            return
        past = _read_past(reader, inputs, agent, datetime.fromtimestamp(now, UTC))
    for period in Period:
        if reason := describe_reached_cap(inputs, agent, request.trigger, past, period):
            hint = f"Start the run again {_NEXT[period]} (UTC), or raise the input."
            raise BeyondCap(reason, hint=hint) if is_stranger else Refused(reason, hint=hint)


def _read_past(reader: RepositoryReader, inputs: Inputs, agent: AgentDefinition, now: datetime) -> Past:
    """Read the day of the repository until now, or its month if that has a cap."""
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    since = midnight if inputs.budget_usd_per_month is None else midnight.replace(day=1)
    viewer, comments = reader.viewer(), reader.comments_since(since)
    starts = sorted(
        find_starts(
            inputs,
            agent,
            issues=reader.issues_since(since),
            comments=[each for each in comments if each.author_id != viewer.id and each.created_at >= since],
            events=reader.events_since(since),
        )
    )
    markers = (read_marker(each.body) for each in comments if each.author_id == viewer.id)
    costs = {(each.agent, each.issue, cost.period): cost for each in markers if each for cost in each.periods}
    return Past(day=now.date().isoformat(), starts=tuple(starts), costs=costs)


def describe_reached_cap(inputs: Inputs, agent: AgentDefinition, trigger: Trigger, past: Past, period: Period) -> str:
    """Say which cap of the period leaves nothing for the run of this trigger; empty if none does."""
    name, most = period.of(past.day), inputs.runs_per_person_per_day
    starts = [start for start in past.starts if period.of(start.day) == name]
    admitted, of_person = list[RunStart](), Counter[tuple[str, str]]()
    for start in starts[: _find_own(starts, trigger)]:
        if most is None or of_person[start.day, start.person] < most:
            admitted.append(start)
            of_person[start.day, start.person] += 1
    if trigger.start_kind and most is not None and of_person[past.day, trigger.actor] >= most:
        return f"{trigger.actor} has started {count(most, 'run')} today, and runs-per-person-per-day allows no more."
    cap = inputs.budget_usd_per_day if period is Period.DAY else inputs.budget_usd_per_month
    if cap is None:
        return ""
    costs = {(by, issue): cost for (by, issue, its), cost in past.costs.items() if its == name}
    said = {issue: cost.runs for (by, issue), cost in costs.items() if by == marker_word(agent.name)}
    silent = Counter(start.issue for start in admitted) - Counter(said)
    budget = 0.0 if inputs.provider is Provider.SCRIPTED else inputs.budget(agent)
    spent, kept = sum(cost.cost.usd for cost in costs.values()), silent.total() * budget
    if spent + kept + budget <= cap:
        return ""
    return (
        f"{usd(spent)} are spent {_NOW[period]} and {usd(kept)} are kept for {count(silent.total(), 'run')} whose cost "
        f"is not known. Of {usd(cap)} (budget-usd-per-{period}) that leaves less than this run's budget of "
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
        if not each.author or (each.is_by_bot and not is_named(each.author, inputs.allow_bots)):
            return False
        # On an issue of somebody else, only people with a role in the repository cause an event.
        by_member = isinstance(each, IssueEvent) and each.author != each.opened_by
        return by_member or agent.anyone_may_start or each.association in TRUSTED_ASSOCIATIONS

    for issue in filter(may_start, issues if StartEvent.ISSUES_OPENED in inputs.start_on else ()):
        yield _start(StartEvent.ISSUES_OPENED, issue, issue.number, issue.number)
    for comment in filter(may_start, comments):
        is_on_issue = "/pull/" not in comment.url
        if is_on_issue and (starts_by_comment(comment.body, inputs) or "").removeprefix(PREFIX) == agent.name:
            yield _start(COMMENT, comment, comment.id, comment.issue)
    for event in filter(may_start, events):
        kind, labels = f"issues.{event.event}", [label_of(agent.name, each) for each in inputs.trigger_labels]
        by_label = event.event == "labeled" and event.label.casefold() in map(str.casefold, labels)
        if by_label or (kind in inputs.start_on and is_assigned(event.event, event.assignee, inputs)):
            yield _start(kind, event, event.id, event.issue)


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
