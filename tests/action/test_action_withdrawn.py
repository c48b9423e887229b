"""Nobody gets more runs of `builtin/triage` than the caps allow by taking away what started one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.action.entry_process import EntryProcess
from tests.action.test_action_triage import MENTION, closing, comment_on, event_of, open_issue, outcomes, triage
from tests.checkout import Invocation
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


@pytest.mark.parametrize(("take_away", "told"), [(delete, "has been deleted"), (rewrite, "no longer starts triage")])
def test_a_start_that_is_no_longer_there_is_refused(job: World, take_away: Any, told: str) -> None:
    started = say(job, COMMAND)
    take_away(job)
    done = run(job, *started)
    assert (outcomes(done), done.exit_code, job.model.bodies) == (["skipped"], 0, []), done.log
    assert told in done.outputs["reason"]
    started = say(job, COMMAND, "bob")
    take_away(job)
    done = run(job, *started)
    assert (outcomes(done), done.exit_code, job.model.bodies) == (["refused"], 1, []), done.log


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
