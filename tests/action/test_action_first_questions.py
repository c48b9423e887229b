"""What GitHub does wrong for a moment at a run's first questions costs a wait, not the run."""

from __future__ import annotations

from itertools import cycle

import pytest

from tests.action.follow_up_world import ANSWERS, failed, follow_up, improve
from tests.action.github_troubles import HTML, SECONDARY
from tests.action.test_action_read_token import DISPATCH
from tests.checkout import Invocation
from tests.world import TOKEN, World, solve

pytestmark = [pytest.mark.whole, pytest.mark.usefixtures("unchecked_base")]

WRONG = "Something went wrong while executing your query. Please include `1A2B` when reporting it."
MOMENTS = {
    "502": {"status": 502},
    "502 in HTML": {"status": 502, "content": HTML},
    "limit of 1 s": {"status": 403, "message": SECONDARY, "headers": {"retry-after": "1"}},
    "lost": {"status": 0},
}
WRONG_IN_GRAPHQL = {"status": 200, "content": f'{{"data": null, "errors": [{{"message": "{WRONG}"}}]}}'}
RUN_QUESTIONS = ("/permission$", "/issues/7$", "/issues/7/comments")
FOLLOW_UP_QUESTIONS = ("/permission$", "/pulls/8$", "/pulls/8/commits", "/pulls/8/files", "/compare/")
CHECK_QUESTIONS = (r"/pulls$|/pulls\?", "/actions/runs/500/jobs", "/actions/jobs/400/logs")


def dispatched(world: World, **inputs: str) -> Invocation:
    world.play(solve())
    event = {**DISPATCH, "inputs": {"issue": "7"}}
    given = {"read-token": TOKEN, "agent": "fixer", **inputs}
    return world.runner.run(event, name="workflow_dispatch", **given)


def disturb(world: World, *paths: str) -> None:
    """Each question meets another of the moments."""
    for path, moment in zip(paths, cycle(MOMENTS.values()), strict=False):
        world.github.fail("GET", path, **moment)


def test_a_run_asks_again(world: World) -> None:
    disturb(world, *RUN_QUESTIONS)
    done = dispatched(world)
    assert done.outputs["outcome"] == "completed", done.log
    assert len(world.clock.slept) == len(RUN_QUESTIONS)
    assert max(world.clock.slept) <= 5


def test_an_anonymous_reader_asks_again(world: World) -> None:
    world.github.state.public = True
    world.github.fail("GET", "/issues/7$", 502)
    done = dispatched(world, boundary="dry-run", **{"read-token": "", "github-token": ""})
    assert done.outputs["outcome"] == "completed", done.log


def test_what_other_runs_have_cost_is_asked_again(world: World) -> None:
    world.github.fail("POST", "viewer", **WRONG_IN_GRAPHQL)
    done = dispatched(world, budget_usd_per_issue="5", budget_usd="2")
    assert done.outputs["outcome"] == "completed", done.log


def test_a_follow_up_asks_again(opened: World) -> None:
    disturb(opened, *FOLLOW_UP_QUESTIONS)
    opened.github.fail("POST", "/graphql viewer", **MOMENTS["502"])
    opened.github.fail("POST", "/graphql repository", **WRONG_IN_GRAPHQL)
    opened.git_server.fail("info/refs", 503)
    done = follow_up(opened, improve(threads=ANSWERS))
    assert done.outputs["outcome"] == "completed", done.log
    assert [fault.times for fault in opened.github.state.faults] == [0] * 7


def test_a_follow_up_on_checks_asks_again(opened: World) -> None:
    opened.github.state.add_job(500, "test", "failure", log=b"it broke")
    disturb(opened, *CHECK_QUESTIONS)
    done = follow_up(opened, improve(), failed(opened), name="workflow_run")
    assert done.outputs["outcome"] == "completed", done.log
    assert "it broke" in str(opened.model.bodies)


@pytest.mark.parametrize("field", ["addPullRequestReviewThreadReply", "resolveReviewThread"])
def test_graphql_that_went_wrong_after_the_write_is_looked_at_again(opened: World, field: str) -> None:
    opened.github.fail("POST", field, after_write=True, **WRONG_IN_GRAPHQL)
    done = follow_up(opened, improve(threads=ANSWERS))
    assert done.outputs["outcome"] == "completed", done.log
    assert [len(each["comments"]) for each in opened.github.state.threads] == [2, 2, 1]


def test_a_limit_that_graphql_names_in_a_header_is_waited_out(opened: World) -> None:
    content = f'{{"data": null, "errors": [{{"type": "RATE_LIMITED", "message": "{SECONDARY}"}}]}}'
    opened.github.fail("POST", "repository", 200, content=content, headers={"retry-after": "7"})
    done = follow_up(opened, improve(threads=ANSWERS))
    assert done.outputs["outcome"] == "completed", done.log
    assert 7 in opened.clock.slept
    assert max(opened.clock.slept) == 7


def test_nobody_waits_beyond_the_deadline(world: World) -> None:
    world.github.fail("GET", "/permission$", 403, times=99, message=SECONDARY, headers={"retry-after": "600"})
    done = dispatched(world, timeout_minutes="5")
    assert (done.exit_code, done.outputs["outcome"]) == (1, "refused"), done.log
    assert world.clock.slept == []
    assert world.model.bodies == []
