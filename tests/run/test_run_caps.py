"""The caps of a day and of a month hold in whatever order the jobs of their starts run, several at once, and whatever
they say of their cost."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from stepflow.boundary.github_types import IssueComment, IssueEvent, OpenedIssue
from stepflow.boundary.own_texts import Period, PeriodCost
from stepflow.definition.loading import load_agent
from stepflow.domain.text import Spent
from stepflow.run.caps import Past, RunStart, describe_reached_cap, find_starts
from stepflow.run.start.inputs import Inputs, read_inputs
from stepflow.run.start.trigger import Trigger

MORNING = datetime(2026, 11, 27, 8, tzinfo=UTC)
TODAY = "2026-11-27"
TRIAGE = load_agent("builtin/triage")
BUDGET = 0.02


def opened(number: int, person: str, seconds: float) -> RunStart:
    at = (MORNING + timedelta(seconds=seconds)).replace(microsecond=0)
    return RunStart(at=at, kind="issues.opened", id=number, issue=number, person=person)


def trigger_of(start: RunStart) -> Trigger:
    return Trigger(
        agent="triage", actor=start.person, issue_number=start.issue, start_kind=start.kind, start_id=start.id
    )


def reached_cap(inputs: Inputs, trigger: Trigger, *starts: RunStart, period: Period = Period.DAY) -> str:
    return describe_reached_cap(inputs, TRIAGE, trigger, Past(day=TODAY, starts=starts, costs={}), period)


@pytest.mark.sample(14)
@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("period", Period)
def test_no_order_of_jobs_starts_or_costs_more_than_the_caps(seed: int, period: Period) -> None:
    chance = random.Random(seed)
    most, dollars = chance.randint(1, 20), chance.choice([0.02, 0.1, 0.3, 0.5, 10])
    given = {"agent": "builtin/triage", "start": {"events": "issues.opened"}}
    inputs = read_inputs({**given, "limits": {"runs-per-person-per-day": most, f"usd-per-{period}": dollars}})
    people = [chance.choice(["eve", "mallory", "trudy"]) for _ in range(50)]
    starts = sorted(opened(number, person, chance.uniform(0, 60)) for number, person in enumerate(people, 1))
    waiting, running = chance.sample(starts, len(starts)), list[RunStart]()
    costs: dict[tuple[str, int, str], PeriodCost] = {}
    spent, ran = 0.0, Counter[str]()
    while waiting or running:
        if running and (not waiting or len(running) > 4 or chance.random() < 0.4):
            ended, cost = running.pop(chance.randrange(len(running))), chance.uniform(0, BUDGET)
            spent += cost
            if chance.random() < 0.6:
                name = period.of(TODAY)
                costs["triage", ended.issue, name] = PeriodCost(period=name, runs=1, cost=Spent(usd=cost))
            continue
        start = waiting.pop()
        past = Past(day=TODAY, starts=tuple(starts), costs=dict(costs))
        if not any(describe_reached_cap(inputs, TRIAGE, trigger_of(start), past, each) for each in Period):
            running.append(start)
            ran[start.person] += 1
    assert max(ran.values()) <= most
    assert spent <= dollars
    assert ran.total() >= 1


def test_a_start_that_github_does_not_list_yet_comes_last() -> None:
    inputs = read_inputs({"limits": {"runs-per-person-per-day": 2}})
    listed = (opened(1, "eve", 0), opened(2, "eve", 1))
    assert reached_cap(inputs, trigger_of(opened(3, "eve", 2)), *listed)
    assert reached_cap(inputs, trigger_of(opened(2, "eve", 1)), *listed) == ""


def test_a_run_that_nothing_on_an_issue_started_counts_for_the_budget_alone() -> None:
    inputs = read_inputs({"limits": {"runs-per-person-per-day": 1, "usd-per-day": 0.04}})
    dispatched = Trigger(agent="triage", actor="eve")
    one, two = opened(1, "eve", 0), opened(2, "bob", 1)
    assert reached_cap(inputs, dispatched, one) == ""
    assert reached_cap(inputs, dispatched, one, two)


def test_what_was_started_earlier_in_the_month_counts_for_the_month_alone() -> None:
    inputs = read_inputs({"limits": {"runs-per-person-per-day": 1, "usd-per-day": 0.02, "usd-per-month": 0.04}})
    days = 24 * 60 * 60
    # The second of a day was beyond the cap of its person, so it never ran.
    first, second, third = opened(1, "eve", -2 * days), opened(2, "eve", -2 * days + 60), opened(3, "eve", -days)
    now = trigger_of(opened(4, "eve", 0))
    assert [reached_cap(inputs, now, first, second, period=each) for each in Period] == ["", ""]
    for_day, for_month = [reached_cap(inputs, now, first, second, third, period=each) for each in Period]
    assert for_day == ""
    assert for_month == (
        "$0.00 are spent this month and $0.0400 are kept for 2 runs whose cost is not known. Of $0.0400 "
        "(limits.usd-per-month) that leaves less than this run's budget of $0.0200."
    )


def cost_of(usd: float, *, period: str = TODAY, runs: int = 1) -> PeriodCost:
    return PeriodCost(period=period, runs=runs, cost=Spent(usd=usd))


@pytest.mark.parametrize(
    ("costs", "fits"),
    [
        ({}, False),
        ({("triage", 1, TODAY): cost_of(0.0)}, True),
        # What another agent says of the issue, and what is said of another issue or day, is not what this run cost.
        ({("fixer", 1, TODAY): cost_of(0.0)}, False),
        ({("triage", 2, TODAY): cost_of(0.0)}, False),
        ({("triage", 1, "2026-11-26"): cost_of(0.0, period="2026-11-26")}, False),
        # What any agent costs counts, up to the cap itself.
        ({("triage", 1, TODAY): cost_of(0.0), ("fixer", 9, TODAY): cost_of(0.01)}, True),
        ({("triage", 1, TODAY): cost_of(0.0), ("fixer", 9, TODAY): cost_of(0.011)}, False),
    ],
)
def test_a_run_counts_as_its_whole_budget_until_its_own_comment_says_what_it_cost(
    costs: dict[tuple[str, int, str], PeriodCost], *, fits: bool
) -> None:
    inputs = read_inputs({"limits": {"usd-per-day": 0.03}})
    past = Past(day=TODAY, starts=(opened(1, "eve", 0),), costs=costs)
    reached = describe_reached_cap(inputs, TRIAGE, trigger_of(opened(3, "bob", 2)), past, Period.DAY)
    assert (reached == "") is fits, reached


def issue(number: int, **facts: object) -> OpenedIssue:
    made = {"id": number, "number": number, "author": "eve", "author_type": "User", "created_at": MORNING, **facts}
    return OpenedIssue.model_validate(made)


def comment(body: str, **facts: object) -> IssueComment:
    made = {"id": 5, "author": "eve", "author_type": "User", "created_at": MORNING, "issue": "x/7", "body": body}
    return IssueComment.model_validate({**made, "url": "https://github.example/o/r/issues/7", **facts})


def event(name: str, **facts: object) -> IssueEvent:
    made = {"id": 9, "author": "eve", "author_type": "User", "created_at": MORNING, "event": name, "issue": 7}
    return IssueEvent.model_validate({**made, "opened_by": "eve", **facts})


START = {"events": "issues.opened,issues.reopened,issues.assigned", "mention": "helper"}
ALL = {"agent": "builtin/triage", "start": START}
BY_BOTS = {**ALL, "start": {**START, "bots": "helper"}}


@pytest.mark.parametrize(
    ("what", "inputs", "kind"),
    [
        (issue(7), ALL, "issues.opened"),
        (issue(7), {"agent": "builtin/triage"}, ""),
        (issue(7, author_type="Bot"), ALL, ""),
        (
            issue(7, author="helper[bot]", author_type="Bot"),
            {**ALL, "start": {**START, "bots": "helper"}},
            "issues.opened",
        ),
        (comment("@helper, please"), ALL, "issue_comment.created"),
        (comment("/stepflow run triage\nplease"), ALL, "issue_comment.created"),
        (comment("/stepflow run fix"), ALL, ""),
        (comment("@helper", url="https://github.example/o/r/pull/7"), ALL, ""),
        (event("reopened"), ALL, "issues.reopened"),
        (event("assigned", assignee="helper"), ALL, "issues.assigned"),
        (event("assigned", assignee="ann"), ALL, ""),
        (event("labeled", label="Agent:Triage"), ALL, "issues.labeled"),
        (event("labeled", label="bug"), ALL, ""),
    ],
)
def test_what_starts_the_agent_is_counted_and_nothing_else(
    what: OpenedIssue | IssueComment | IssueEvent, inputs: dict[str, str], kind: str
) -> None:
    found = find_starts(
        read_inputs(inputs),
        TRIAGE,
        issues=[what] if isinstance(what, OpenedIssue) else [],
        comments=[what] if isinstance(what, IssueComment) else [],
        events=[what] if isinstance(what, IssueEvent) else [],
    )
    assert [(start.kind, start.issue) for start in found] == ([(kind, 7)] if kind else [])


def test_strangers_cannot_use_up_the_day_of_an_agent_that_they_may_not_start() -> None:
    review, inputs = load_agent("builtin/review"), read_inputs({**ALL, "agent": "builtin/review"})
    trusted = [issue(1, association="MEMBER"), issue(2, association="COLLABORATOR")]
    issues = [issue(3), issue(4, association="CONTRIBUTOR"), *trusted]
    events = [event("reopened"), event("reopened", author="ann", id=10)]
    found = find_starts(inputs, review, issues=issues, comments=[comment("@helper")], events=events)
    assert [(start.kind, start.id) for start in found] == [
        ("issues.opened", 1),
        ("issues.opened", 2),
        ("issues.reopened", 10),
    ]
