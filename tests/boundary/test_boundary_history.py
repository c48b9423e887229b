"""What our texts on GitHub keep about each run: its definition, outcome, cost and minutes."""

from __future__ import annotations

import pytest

from stepflow.boundary.failure import report_failure
from stepflow.boundary.github_writer import GitHubWriter
from stepflow.boundary.own_texts import (
    MOST_RECORDS,
    Marker,
    PullRequestAuthor,
    mark_body,
    mark_comment,
    read_author,
    read_marker,
    today,
)
from stepflow.domain.reports.ledger import RunRecord
from stepflow.domain.text import Spent
from stepflow.domain.words import Outcome
from tests.boundary.agents import apply, failed_run, plan_everything
from tests.servers.github_api import GitHubServer

DAY = "2026-11-27"
DIGEST = "0123456789ab"


def record(run: str = "run-1", outcome: Outcome | None = Outcome.COMPLETED, **changes: object) -> RunRecord:
    return RunRecord(**{"run": run, "digest": DIGEST, "outcome": outcome, "day": DAY, **changes})  # type: ignore[arg-type]


def history(github: GitHubServer) -> tuple[RunRecord, ...]:
    (comment,) = github.state.comments
    marker = read_marker(comment["body"])
    assert marker is not None
    return marker.history


def fail(writer: GitHubWriter, run: str, *, outcome: Outcome = Outcome.ABORTED, usd: float = 1.0) -> None:
    failed = failed_run(outcome, "t", run_id=run, cost=Spent(usd=usd), digest=DIGEST + "f" * 52, seconds=90.0)
    report_failure(failed, writer)


def test_a_comment_keeps_a_record_of_each_run_that_it_replaced(github: GitHubServer, writer: GitHubWriter) -> None:
    fail(writer, "run-1", outcome=Outcome.AWAITING_APPROVAL)
    fail(writer, "run-2", usd=0.25)
    # Resumed: the record of a run is replaced, not repeated.
    fail(writer, "run-1", usd=3.0)
    day = today(None)
    assert history(github) == (
        record("run-2", Outcome.ABORTED, cost=Spent(usd=0.25), minutes=1.5, day=day),
        record("run-1", Outcome.ABORTED, cost=Spent(usd=3.0), minutes=1.5, day=day),
    )


def test_the_newest_runs_are_kept(github: GitHubServer, writer: GitHubWriter) -> None:
    for number in range(MOST_RECORDS + 5):
        fail(writer, f"run-{number}")
    assert [each.run for each in history(github)] == [f"run-{number}" for number in range(5, MOST_RECORDS + 5)]
    assert len(github.state.comments[0]["body"]) < 2_500


def test_a_run_that_could_not_be_prepared_has_no_record(github: GitHubServer, writer: GitHubWriter) -> None:
    fail(writer, "run-1")
    report_failure(failed_run(Outcome.INVALID_DEFINITION, "t", run_id="run-2"), writer)
    assert [each.run for each in history(github)] == ["run-1"]


RECORDS = [
    record(cost=Spent(usd=1.25, at_least=True), minutes=12.5),
    record("1001-1-a.b", None),
    *(record(outcome=outcome) for outcome in Outcome),
]


def test_records_are_read_as_they_were_written() -> None:
    marker = Marker(run="r", agent="fixer", issue=7, history=tuple(RECORDS))
    assert read_marker(mark_comment("Done.", marker)) == marker


@pytest.mark.parametrize("issue", [7, None])
def test_a_pull_request_says_which_run_wrote_it(issue: int | None) -> None:
    author = PullRequestAuthor(agent="fixer", issue=issue, record=RECORDS[0])
    body = f"Hello.\n\n{mark_body('Parse', 'It parses.', author)}\n\nBye."
    branch = "bots/fixer/issue-7-2" if issue else "fixer/run-1001-1"
    assert read_author(body.replace("\n", "\r\n"), branch) == author
    assert read_author(mark_body("Parse", "It parses.", None), branch) is None


@pytest.mark.parametrize("branch", ["backport-8-to-v2", "stepflow/fixer/issue-70", "stepflow/writer/issue-7"])
def test_a_part_that_another_workflow_copied_into_its_pull_request_is_not_ours(branch: str) -> None:
    body = mark_body("Parse", "It parses.", PullRequestAuthor(agent="fixer", issue=7, record=RECORDS[0]))
    assert read_author(f"Backport of #8.\n\n{body}", branch) is None


def test_a_run_that_opens_a_pull_request_signs_it(github: GitHubServer, writer: GitHubWriter) -> None:
    apply(plan_everything(), writer)
    (pull,) = github.state.pulls
    author = read_author(pull["body"], pull["head"])
    assert author is not None
    assert (author.agent, author.issue, author.record) == ("fixer", 7, *history(github))


@pytest.mark.parametrize(
    "damaged",
    ["run-2", "run-2:xyz:completed:1.0:1.0:2026-11-27", f"run-2:{DIGEST}:retired:1.000000:1.0:{DAY}", ""],
)
def test_a_record_in_unknown_words_is_left_out_and_the_marker_stays_ours(damaged: str) -> None:
    body = mark_comment("Done.", Marker(run="r", agent="fixer", issue=7, history=(record(),)))
    marker = read_marker(body.replace("history=", f"history={damaged},"))
    assert marker is not None
    assert marker.history == (record(),)
