"""What the runs on an issue cost, kept in the markers of our own comments and nowhere else."""

from __future__ import annotations

import pytest

from stepflow.boundary.apply import apply_effects
from stepflow.boundary.failure import report_failure
from stepflow.boundary.github_types import Account, Comment
from stepflow.boundary.github_writer import GitHubWriter
from stepflow.boundary.own_texts import (
    Marker,
    OwnComment,
    PeriodCost,
    make_marker,
    mark_comment,
    read_marker,
    spent_on_issue,
)
from stepflow.boundary.plan import plan_effects
from stepflow.domain.text import Spent
from stepflow.domain.words import Outcome
from tests.boundary.agents import BOT, agent, facts, failed_run, result, settings
from tests.servers.github_api import GitHubServer

EVE = Account(id=666, login="eve")


def comment(marker: Marker, author: Account = BOT) -> Comment:
    return Comment(id=1, author_id=author.id, body=mark_comment("Done.", marker), url="u")


def spent(*comments: Comment, run: str = "now") -> Spent:
    return spent_on_issue(comments, BOT, issue=7, run=run)


def dollars(usd: float) -> Spent:
    return Spent(usd=usd)


@pytest.mark.parametrize("cost", [Spent(), Spent(usd=12.345678), Spent(usd=0.5, at_least=True)])
def test_a_marker_is_read_as_it_was_written(cost: Spent) -> None:
    marker = Marker(run="r", agent="fixer", issue=7, cost=cost, before=Spent(usd=0.25))
    assert read_marker(mark_comment("text", marker)) == marker


@pytest.mark.parametrize(
    "figure",
    [
        "",
        " cost=-5.0 before=0.0",
        " cost=nan before=0.0",
        " cost=1.0",
        f" cost={9:010}.0 before=0.0",
    ],
)
def test_figures_that_we_never_write_make_it_no_marker(figure: str) -> None:
    body = "<!-- stepflow -->\nDone.\n\n<!-- stepflow run=r agent=fixer issue=7 commit=none{} -->"
    assert read_marker(body.format(" cost=1.0 before=0.0")) is not None
    assert read_marker(body.format(figure)) is None


def test_all_agents_of_the_issue_count_and_each_by_its_newest_comment() -> None:
    marks = [
        Marker(run="a", agent="fixer", issue=7, cost=dollars(1)),
        Marker(run="b", agent="fixer", issue=7, cost=dollars(3), before=dollars(1)),
        Marker(run="c", agent="tester", issue=7, cost=dollars(0.5)),
        Marker(run="d", agent="fixer", issue=8, cost=dollars(100)),
    ]
    assert spent(*map(comment, marks)) == dollars(3.5)


def test_a_marker_that_somebody_else_wrote_counts_nothing() -> None:
    forged = Marker(run="a", agent="fixer", issue=7, cost=dollars(999))
    own = Marker(run="a", agent="fixer", issue=7, cost=dollars(2))
    assert spent(comment(forged, EVE)) == Spent()
    assert spent(comment(own), comment(forged, EVE)) == dollars(2)
    assert spent(comment(Marker(run="a", agent="fixer", issue=7), EVE), comment(own)) == dollars(2)


def test_a_run_that_goes_on_does_not_count_its_beginning_twice() -> None:
    first = Marker(run="now", agent="fixer", issue=7, cost=dollars(3), before=dollars(1))
    assert spent(comment(first), run="now") == dollars(1)
    assert spent(comment(first), run="next") == dollars(3)


def completed(writer: GitHubWriter, run_id: str, cost: float) -> Spent | None:
    plan = plan_effects(
        agent(), facts(run_id=run_id), result(), settings(), summary="s", commits=None, cost=dollars(cost)
    )
    return apply_effects(plan, writer=writer, pusher=None, record=lambda _: None).spent


def failed(writer: GitHubWriter, run_id: str, cost: float) -> Spent | None:
    failure = report_failure(failed_run(Outcome.ABORTED, "t", run_id=run_id, cost=dollars(cost)), writer)
    return failure.spent if failure else None


def test_run_after_run_the_comment_keeps_the_sum_also_of_failures(github: GitHubServer, writer: GitHubWriter) -> None:
    sums = [
        completed(writer, "run-1", 1.0),
        failed(writer, "run-2", 0.5),
        # Resumed: its whole cost takes the place of what the failure told.
        completed(writer, "run-2", 2.0),
        failed(writer, "run-2", 2.5),
        completed(writer, "run-3", 1.0),
    ]
    assert sums == [dollars(usd) for usd in (1.0, 1.5, 3.0, 3.5, 4.5)]
    assert len(github.state.comments) == 1
    marker = read_marker(github.state.comments[0]["body"])
    assert marker is not None
    assert (marker.cost, marker.before) == (dollars(4.5), dollars(3.5))


DAY, NEXT_DAY = "2026-11-27", "2026-11-28"


def costs_of(*runs: tuple[str, float, str], place: int = 0) -> list[tuple[str, int, float]]:
    """What the marker says of the day (or, in the place 1, of the month) after each of these runs: its id, its cost so
    far, and its day."""
    own, said = None, []
    for run, usd, day in runs:
        marker = make_marker(own, run=run, agent="fixer", issue=7, commit="", cost=dollars(usd), day=day)
        own = OwnComment(comment=comment(marker), marker=marker)
        assert read_marker(own.comment.body) == marker
        said.append((marker.periods[place].period, marker.periods[place].runs, marker.periods[place].cost.usd))
    return said


def test_a_marker_keeps_what_the_runs_of_its_month_cost() -> None:
    runs = [("a", 1, DAY), ("b", 0, NEXT_DAY), ("b", 0.5, NEXT_DAY), ("c", 2, "2026-12-01"), ("d", 1, "2026-12-31")]
    assert costs_of(*runs, place=1) == [
        ("2026-11", 1, 1),
        ("2026-11", 2, 1),
        ("2026-11", 2, 1.5),
        ("2026-12", 1, 2),
        ("2026-12", 2, 3),
    ]


@pytest.mark.parametrize(
    ("words", "periods"),
    [
        ("", ()),
        (
            " day=2026-11-27 runs=2 today=1.5 month=2026-11 runs=3 spent=2.0",
            (PeriodCost(period=DAY, runs=2, cost=dollars(1.5)), PeriodCost(period="2026-11", runs=3, cost=dollars(2))),
        ),
    ],
)
def test_a_marker_is_read_with_and_without_the_costs_of_periods(words: str, periods: tuple[PeriodCost, ...]) -> None:
    facts = "run=r agent=fixer issue=7 commit=none cost=1.0 before=0.0"
    marker = read_marker(f"<!-- stepflow -->\nDone.\n\n<!-- stepflow {facts}{words} -->")
    assert marker is not None
    assert marker.periods == periods
    assert read_marker(mark_comment("Done.", marker)) == marker


def test_a_run_that_writes_its_comment_again_counts_once_in_its_day() -> None:
    assert costs_of(("a", 1, DAY), ("b", 0, DAY), ("b", 0.5, DAY), ("b", 0.75, DAY), ("c", 1, DAY))[1:] == [
        (DAY, 2, 1),
        (DAY, 2, 1.5),
        (DAY, 2, 1.75),
        (DAY, 3, 2.75),
    ]
