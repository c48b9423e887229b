"""Each trouble that GitHub can make at a run's first questions, which costs a wait, and at each write of a follow-up.

Whatever went wrong there, it leaves one reply in each thread, one resolving, one push, one comment, at once or after
the next try. STEPFLOW_FULL=1 tries all cells.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from tests.action.follow_up_world import ANSWERS, failed, follow_up, improve, last_words, open_pull_request
from tests.action.github_troubles import HTML, SECONDARY, TROUBLES, Trouble, effects, plain
from tests.action.test_action_read_token import DISPATCH
from tests.checkout import Invocation, git
from tests.covering import covering
from tests.servers.messages_api import Reply
from tests.world import BRANCH, TOKEN, World, answer, open_world, solve

pytestmark = pytest.mark.whole

COMMITTED = re.compile(r"\b[0-9a-f]{40}\b")
REPLY = "/graphql addPullRequestReviewThreadReply$"
#: Where each write meets GitHub, and the effect that it is part of.
PLACES: dict[str, tuple[str, dict[str, Any]]] = {
    "push": ("push_branch", {}),
    "signed push": ("push_branch", {"method": "POST", "path": "/graphql createCommitOnBranch$"}),
    "first reply": ("answer_threads", {"method": "POST", "path": REPLY}),
    "second reply": ("answer_threads", {"method": "POST", "path": REPLY, "skip": 1}),
    "resolving": ("answer_threads", {"method": "POST", "path": "/graphql resolveReviewThread$"}),
    "comment": ("post_comment", {"method": "PATCH", "path": "/issues/comments/"}),
    "dispatch": ("dispatch_workflow", {"method": "POST", "path": "/dispatches$"}),
}
KINDS = ("push_branch", "answer_threads", "post_comment", "dispatch_workflow")
CELLS = [
    pytest.param(trouble, place, id=f"{trouble} at {place}")
    for trouble, place in covering(tuple(TROUBLES), tuple(PLACES))
    if not (place == "push" and TROUBLES[trouble].not_for_git)
]


@dataclass
class Left:
    """What GitHub has, with what differs from run to run taken out."""

    threads: list[dict[str, Any]]
    comments: list[str]
    pulls: list[dict[str, Any]]
    branches: set[str]
    work: list[str]


@pytest.fixture
def waiting(opened: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """A pull request to follow up on a GitHub whose answers nobody waits for long."""
    monkeypatch.setattr("stepflow.boundary.github_client.TIMEOUT_SECONDS", 1.5)
    return opened


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Left:
    """What a follow-up leaves that meets no trouble."""
    return left_undisturbed(tmp_path_factory.mktemp("undisturbed"))


@pytest.fixture(scope="module")
def verified(tmp_path_factory: pytest.TempPathFactory) -> Left:
    """The same where GitHub writes the commits."""
    return left_undisturbed(tmp_path_factory.mktemp("verified"), commits="verified")


def left_undisturbed(folder: Path, **inputs: str) -> Left:
    with open_world(folder) as world:
        open_pull_request(world).use_ci()
        done = follow_up(world, improve(threads=ANSWERS), **inputs)
        assert effects(done) == dict.fromkeys(KINDS, "applied"), done.log
        return left(world)


@pytest.mark.sample(3)
@pytest.mark.parametrize(("trouble", "place"), CELLS)
def test_trouble_at_a_write_and_the_run_goes_on(
    waiting: World, undisturbed: Left, verified: Left, show: Callable[[str], None], trouble: str, place: str
) -> None:
    waiting.use_ci()
    made, (kind, where) = TROUBLES[trouble], PLACES[place]
    inputs = {"run_folder": str(waiting.runner.folder / "mine")}
    inputs |= {"commits": "verified"} if place == "signed push" else {}
    make(waiting, made, where)
    done = follow_up(waiting, improve(threads=ANSWERS), **inputs)
    asked = len(waiting.model.bodies)
    if made.passes:
        assert (done.outputs["outcome"], done.exit_code) == ("completed", 0), done.log
    else:
        assert (done.outputs["outcome"], done.exit_code) == ("boundary_failed", 1), done.log
        at = KINDS.index(kind)
        statuses = (*["applied"] * at, "failed", *["planned"] * (len(KINDS) - at - 1))
        assert effects(done) == dict(zip(KINDS, statuses, strict=True))
        refused = kind == "dispatch_workflow" and trouble in ("403", "404")
        assert ("the permission `actions: write`" if refused else made.says) in done.outputs["reason"]
        done = again(waiting, [], **inputs)
    assert "Traceback" not in done.log
    assert len(waiting.model.bodies) == asked
    assert set(effects(done).values()) == {"applied"}
    assert left(waiting) == (verified if place == "signed push" else undisturbed)
    assert waiting.github.state.dispatched == [("ci.yml", BRANCH, waiting.branches()[BRANCH])]
    show(f"Follow-up fault | {trouble:22} {place:13} {'at once' if made.passes else 'resumed'}")


def test_a_new_run_after_a_push_without_replies_replies_once(waiting: World) -> None:
    """Without the run folder it begins where the first one has pushed, and finds the work done."""
    waiting.github.fail("POST", REPLY, 500, times=999, skip=1)
    broken = follow_up(waiting, improve(threads=ANSWERS))
    assert effects(broken)["answer_threads"] == "failed", broken.log
    tip = waiting.branches()[BRANCH]
    answers = [{"thread": "PRRT_2", "applied": True, "why": "The commit before does it."}]
    done = again(waiting, [*improve()[1:2], answer("closure.issue", "closing", comment="Done.", threads=answers)])
    assert waiting.branches()[BRANCH] == tip
    # The thread that has its reply is neither shown nor answered again.
    assert [len(each["comments"]) for each in waiting.github.state.threads] == [2, 2, 1]
    assert last_words(waiting, 1) == f"Applied in {tip}. It shouts now."
    assert last_words(waiting, 2) == "Not applied: the run made no commit. The commit before does it."
    assert waiting.github.mutations().count("resolveReviewThread") == 1
    assert len(waiting.comments()) == 1
    assert done.outputs["commit"] == ""


def test_a_new_run_after_a_push_without_replies_may_push_again(waiting: World) -> None:
    waiting.github.fail("POST", REPLY, 500, times=999)
    assert follow_up(waiting, improve(threads=ANSWERS)).outputs["outcome"] == "boundary_failed"
    again(waiting, improve("hello, world, all of it", threads=ANSWERS))
    tip = waiting.branches()[BRANCH]
    assert last_words(waiting, 1) == f"Applied in {tip}. It shouts now."
    assert [len(each["comments"]) for each in waiting.github.state.threads] == [2, 2, 1]
    assert waiting.github.mutations().count("resolveReviewThread") == 1


def make(world: World, made: Trouble, where: dict[str, Any]) -> None:
    fault = made.given()
    if where:
        world.github.fail(**where, **fault)
    else:
        fault["headers"] = tuple(fault.get("headers", {}).items())
        world.git_server.fail("/git-receive-pack$", fault.pop("status"), **fault)


def again(world: World, replies: list[Reply], **inputs: str) -> Invocation:
    """The same event once more, with GitHub well again."""
    world.github.state.faults.clear()
    world.git_server.faults.clear()
    done = follow_up(world, replies, **inputs)
    assert (done.outputs["outcome"], done.exit_code) == ("completed", 0), done.log
    return done


def left(world: World) -> Left:
    state = world.github.state
    log = git("log", "--format=%an %ce%n%B%n%T", f"main..{BRANCH}", cwd=world.served)
    threads = [
        {"resolved": each["resolved"], "said": [COMMITTED.sub("SHA", plain(one["body"])) for one in each["comments"]]}
        for each in state.threads
    ]
    return Left(
        threads=threads,
        comments=[plain(body) for body in world.comments()],
        pulls=[{key: plain(str(value)) for key, value in pull.items()} for pull in state.pulls],
        branches=set(world.branches()),
        work=[plain(line) for line in log.splitlines()],
    )


def test_a_token_that_may_not_push_ends_a_follow_up_before_the_model_is_asked(opened: World) -> None:
    opened.git_server.token, opened.git_server.read_token = "another", TOKEN
    opened.model.requests.clear()
    before = opened.branches()
    done = follow_up(opened, improve())
    assert (done.outputs["outcome"], opened.model.requests) == ("misconfigured", []), done.log
    assert "The token may not push: the job needs `contents: write`" in done.outputs["reason"]
    assert opened.branches() == before


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
    done = dispatched(world, limits={"usd-per-issue": 5, "usd": 2})
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
    done = dispatched(world, limits={"minutes": 5})
    assert (done.exit_code, done.outputs["outcome"]) == (1, "refused"), done.log
    assert world.clock.slept == []
    assert world.model.bodies == []
