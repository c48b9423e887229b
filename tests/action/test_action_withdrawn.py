"""Nobody gets more runs of `builtin/triage` than the caps allow by taking away what started one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from stepflow.boundary.own_texts import Marker, PeriodCost, mark_comment
from stepflow.domain.text import Spent, count, usd
from tests.action.entry_process import EntryProcess
from tests.action.test_action_triage import MENTION, closing, comment_on, event_of, open_issue, outcomes, triage
from tests.checkout import Invocation
from tests.fakes import StillClock
from tests.world import World

pytestmark = pytest.mark.whole
__all__ = ["triage"]
COMMAND = "/stepflow run triage"
EDITED = "2099-01-01T00:00:00Z"


@pytest.fixture
def job(triage: World) -> World:
    """A job of the workflow triage.yml, on an issue by somebody else."""
    triage.runner.environ |= {"GITHUB_WORKFLOW_REF": "o/r/.github/workflows/triage.yml@refs/heads/main"}
    triage.github.state.add_issue(7, "It crashes", "Why?", login="ann")
    triage.play(lambda body: closing())
    return triage


def caused(world: World, by: str, event: str = "issue_comment", **more: Any) -> dict[str, str]:
    """The run of the workflow that GitHub starts for what somebody did: the variables of its job."""
    return {"GITHUB_RUN_ID": str(world.github.state.add_run("triage.yml", event, by, **more)["id"])}


def say(world: World, body: str, by: str = "eve", **more: Any) -> tuple[dict[str, Any], dict[str, str]]:
    """Comment, which starts a job."""
    return comment_on(world, 7, body, by), caused(world, by, **more)


def run(world: World, event: dict[str, Any], variables: dict[str, str], name: str = "issue_comment") -> Invocation:
    runner = replace(world.runner, environ={**world.runner.environ, **variables})
    return runner.run(event, name=name)


def delete(world: World) -> None:
    world.github.state.comments.pop()


def rewrite(world: World) -> None:
    world.github.state.comments[-1] |= {"body": "Thank you.", "updated_at": EDITED}


def restore(world: World) -> None:
    """Rewritten and set back: what it said in between is unknown."""
    world.github.state.comments[-1]["updated_at"] = EDITED


@pytest.mark.parametrize("take_away", [delete, rewrite, restore])
def test_starts_whose_comments_are_taken_away_still_count(job: World, take_away: Any) -> None:
    runs = []
    for _ in range(6):
        runs.append(run(job, *say(job, COMMAND)))
        take_away(job)
    assert outcomes(*runs) == ["completed"] * 3 + ["skipped"] * 3, runs[-1].log
    assert "eve has started 3 runs today" in runs[-1].outputs["reason"]
    assert len(job.model.bodies) == 3


@pytest.mark.fast
@pytest.mark.parametrize(("take_away", "told"), [(delete, "has been deleted"), (rewrite, "no longer starts triage")])
def test_a_start_that_is_no_longer_there_is_refused(job: World, take_away: Any, told: str) -> None:
    for by in ("eve", "bob"):
        started = say(job, COMMAND, by)
        take_away(job)
        done = run(job, *started)
        assert (outcomes(done), done.exit_code, job.model.bodies) == (["skipped"], 0, []), done.log
        assert told in done.outputs["reason"]


DAY_BEFORE, MIDNIGHT, NOON = "2026-11-26T23:59:59Z", "2026-11-27T00:00:00Z", "2026-11-27T12:00:00Z"


def say_and_take_away(world: World, take_away: Callable[[World], None], by: str = "mallory") -> None:
    say(world, COMMAND, by)
    take_away(world)


def begin(world: World, time: str) -> None:
    """Start one run by a new issue, and one by a comment that is gone."""
    world.github.state.now = lambda: time
    open_issue(world, 8, "mallory")
    say_and_take_away(world, delete)


def start_in_each_way(world: World) -> None:
    say(world, COMMAND, "mallory")
    say_and_take_away(world, delete)
    say_and_take_away(world, rewrite, "eve")
    say_and_take_away(world, restore, "eve")


def start_nothing(world: World) -> None:
    say(world, "Thank you.", "mallory")
    say(world, "Thank you.", "eve", conclusion="skipped")
    delete(world)
    caused(world, "mallory", "issues")
    world.github.state.viewer = ("helper", 4711)
    caused(world, "helper")


def start_among_words(world: World) -> None:
    """Start one run each: a comment whose job was skipped neither hides what was taken away nor stands for what is
    there."""
    say_and_take_away(world, delete)
    say(world, "Thank you.", "mallory", conclusion="skipped")
    say(world, COMMAND, "eve")
    say(world, "Thank you.", "eve", conclusion="skipped")
    delete(world)


def write_cost(world: World, by: str = "github-actions[bot]", *, issue: int = 8, more: str = "") -> None:
    """Let a comment say what the run of an issue has cost."""
    periods = (PeriodCost(period=NOON[:10], runs=1, cost=Spent(usd=0.01)),)
    marker = Marker(run="r-0", agent="triage", issue=issue, periods=periods)
    say(world, mark_comment("Done.", marker) + more, by)


@pytest.mark.fast
@pytest.mark.parametrize(
    ("happen", "runs", "spent"),
    [
        pytest.param(lambda world: begin(world, DAY_BEFORE), 0, 0, id="the day before"),
        pytest.param(lambda world: begin(world, MIDNIGHT), 2, 0, id="from midnight on"),
        pytest.param(start_in_each_way, 4, 0, id="there or taken away"),
        pytest.param(
            lambda world: [say_and_take_away(world, delete) for _ in range(5)], 3, 0, id="up to a person's cap"
        ),
        pytest.param(start_nothing, 0, 0, id="what starts nothing"),
        pytest.param(start_among_words, 2, 0, id="among what starts nothing"),
        pytest.param(lambda world: (begin(world, MIDNIGHT), write_cost(world)), 1, 0.01, id="its cost is known"),
        pytest.param(lambda world: (begin(world, MIDNIGHT), write_cost(world, issue=7)), 2, 0.01, id="that of another"),
        pytest.param(lambda world: (begin(world, MIDNIGHT), write_cost(world, more="!")), 2, 0, id="unreadable"),
        pytest.param(
            lambda world: (begin(world, MIDNIGHT), write_cost(world, "mallory")), 2, 0, id="a stranger's word"
        ),
    ],
)
def test_each_start_of_the_day_before_the_own_one_counts_once(
    job: World, happen: Callable[[World], object], runs: int, spent: float
) -> None:
    assert counted(job, happen, {"usd-per-day": 0.01, "usd-per-month": 9}).startswith(
        f"Before the run: {usd(spent)} are spent today and {usd(0.02 * runs)} are kept for {count(runs, 'run')} "
    )


@pytest.mark.fast
@pytest.mark.parametrize(("time", "runs"), [("2026-10-31T23:59:59Z", 0), ("2026-11-01T00:00:00Z", 2)])
def test_a_month_begins_with_its_first_day(job: World, time: str, runs: int) -> None:
    reason = counted(job, lambda world: begin(world, time), {"usd-per-month": 0.01})
    assert f"$0.00 are spent this month and {usd(0.02 * runs)} are kept for {count(runs, 'run')} " in reason


def counted(job: World, happen: Callable[[World], object], caps: dict[str, float]) -> str:
    """What a run has counted that fits into no cap: what happened before its own start, not after."""
    job.github.state.issues[7]["created_at"] = "2026-10-01T12:00:00Z"
    job.github.state.now = lambda: NOON
    happen(job)
    job.github.state.now = lambda: NOON
    started = say(job, COMMAND, "trudy")
    for by in ("mallory", "trent"):
        say(job, "Thank you.", by)
        say_and_take_away(job, delete, by)
    job.runner.clock = StillClock(time=datetime.fromisoformat(NOON).timestamp() + 60)
    job.runner.inputs["limits"] = {**job.runner.inputs["limits"], **caps}
    done = run(job, *started)
    assert outcomes(done) == ["skipped"], done.log
    return done.outputs["reason"]


def test_two_accounts_that_take_turns_have_their_own_caps_and_share_the_day(job: World) -> None:
    runs = []
    for number in range(10):
        runs.append(run(job, *say(job, COMMAND, ("eve", "mallory")[number % 2])))
        delete(job)
    assert outcomes(*runs) == ["completed"] * 6 + ["skipped"] * 4
    # The issue was opened today as well.
    job.runner.inputs["limits"] = {**job.runner.inputs["limits"], "usd-per-day": 0.16}
    done = run(job, *say(job, COMMAND, "trudy"))
    assert outcomes(done) == ["completed"], done.log
    delete(job)
    done = run(job, *say(job, COMMAND, "trent"))
    assert outcomes(done) == ["skipped"], done.log
    assert "$0.1600 are kept for 8 runs whose cost is not known" in done.outputs["reason"]


def test_jobs_that_run_at_once_count_what_was_taken_away_before_each_of_them(job: World) -> None:
    started = []
    for _ in range(6):
        started.append(say(job, COMMAND))
        restore(job)
    processes = []
    for event, variables in reversed(started):
        runner = replace(job.runner, environ={**job.runner.environ, **variables})
        processes.append(EntryProcess(job, runner.prepare(event, name="issue_comment")))
    ended = [process.end(timeout=300).outputs["outcome"] for process in processes]
    assert ended[::-1] == ["completed"] * 3 + ["skipped"] * 3
    assert len(job.model.bodies) == 3


def test_two_accounts_whose_jobs_run_at_once_have_their_own_caps_and_share_the_day(job: World) -> None:
    """The first start of each fits into its cap; the day has room for what was started first."""
    job.github.state.issues[7]["created_at"] = "2026-10-01T12:00:00Z"
    # Two budgets of $0.02, and what these runs say that they cost.
    job.runner.inputs["limits"] = {**job.runner.inputs["limits"], "runs-per-person-per-day": 1, "usd-per-day": 0.05}
    started = []
    for by in ("eve", "mallory", "eve", "mallory", "trudy"):
        started.append(say(job, COMMAND, by))
        restore(job)
    processes = []
    for event, variables in reversed(started):
        runner = replace(job.runner, environ={**job.runner.environ, **variables})
        processes.append(EntryProcess(job, runner.prepare(event, name="issue_comment")))
    ended = [process.end(timeout=300).outputs for process in processes][::-1]
    assert [each["outcome"] for each in ended] == ["completed"] * 2 + ["skipped"] * 3, ended
    assert len(job.model.bodies) == 2
    for each, by in zip(ended[2:4], ("eve", "mallory"), strict=True):
        assert f"{by} has started 1 run today" in each["reason"]
    assert "limits.usd-per-day" in ended[4]["reason"]


@pytest.mark.parametrize("later", [True, False])
def test_no_other_comment_stands_for_one_that_was_taken_away(job: World, later: bool) -> None:
    """Comments that start nothing, whose jobs were skipped or that came after the start, hide no start."""
    for _ in range(3):
        run(job, *say(job, COMMAND))
        delete(job)
    started = say(job, COMMAND)
    if not later:
        delete(job)
    for _ in range(5):
        say(job, "Thank you.", conclusion=None if later else "skipped")
    if not later:
        started = say(job, COMMAND)
    done = run(job, *started)
    assert outcomes(done) == ["skipped"], done.log


def test_an_issue_that_is_opened_after_deleted_commands_counts_them(job: World) -> None:
    for _ in range(3):
        say(job, COMMAND)
        delete(job)
    event, variables = open_issue(job, 8), caused(job, "eve", "issues")
    job.github.state.issues[8]["created_at"] = job.github.state.runs[-1]["created_at"]
    for _ in range(5):
        say(job, "Thank you.")
    done = run(job, event, variables, "issues")
    assert outcomes(done) == ["skipped"], done.log


@pytest.mark.parametrize("conclusion", ["skipped", "success"])
def test_what_starts_nothing_is_not_counted(job: World, conclusion: str) -> None:
    """In a workflow whose job has an `if`, and in one whose job has none."""
    for body in ("Thank you.", "I agree.", f"> {COMMAND}", "Bye."):
        say(job, body, conclusion=conclusion)
    if conclusion == "skipped":
        delete(job)
    job.github.state.add_run("other.yml", "issue_comment", "eve")
    job.github.state.reactions.append((7, "+1"))
    runs = [run(job, *say(job, COMMAND)) for _ in range(4)]
    assert outcomes(*runs) == ["completed"] * 3 + ["skipped"], runs[0].log


def test_a_job_that_is_run_again_is_the_same_start(job: World) -> None:
    started = [say(job, COMMAND) for _ in range(3)]
    runs = [run(job, event, {**variables, "GITHUB_RUN_ATTEMPT": n}) for event, variables in started for n in "12"]
    assert outcomes(*runs) == ["completed"] * 6, runs[-1].log
    delete(job)
    assert outcomes(run(job, started[-1][0], {**started[-1][1], "GITHUB_RUN_ATTEMPT": "3"})) == ["skipped"]


def test_mentions_count_as_commands_do(job: World) -> None:
    job.runner.inputs |= {name.replace("_", "-"): value for name, value in MENTION.items()}
    runs = []
    for _ in range(5):
        runs.append(run(job, *say(job, "@helper-bot, is this known?")))
        delete(job)
    assert outcomes(*runs) == ["completed"] * 3 + ["skipped"] * 2, [each.outputs["reason"] for each in runs]


def test_a_token_that_may_not_list_the_runs_is_named(job: World) -> None:
    job.github.fail("GET", "/actions/workflows/", 403, "Resource not accessible by integration", times=9)
    done = run(job, *say(job, COMMAND))
    assert (outcomes(done), job.model.bodies) == (["misconfigured"], []), done.log
    assert "`actions: read`" in done.log


def test_reopening_counts_as_before(job: World) -> None:
    for _ in range(4):
        job.github.state.add_event(7, "reopened", "ann")
        done = run(job, event_of(job, 7, "reopened", "ann"), caused(job, "ann", "issues"), "issues")
    assert outcomes(done) == ["skipped"], done.log
    assert len(job.model.bodies) == 2
