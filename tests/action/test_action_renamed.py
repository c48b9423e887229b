"""A repository that is renamed or transferred while a run works: its work goes there, under whatever name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.action.follow_up_world import before_last
from tests.action.review_world import labeled, let_review, propose, review
from tests.checkout import Invocation
from tests.world import BRANCH, World, solve

pytestmark = pytest.mark.whole

ID = {"GITHUB_REPOSITORY_ID": "1"}


def run(world: World, name: str, *, taken: bool = False, **inputs: Any) -> Invocation:
    """A run during which the repository is renamed."""
    replies: Iterator[Any] = before_last(world, solve(), lambda world: world.rename(name, taken=taken))
    return world.run(replies, base_checks="skip", **inputs)


def assert_whole(world: World, done: Invocation, name: str) -> None:
    assert (done.outputs["outcome"], done.exit_code) == ("completed", 0), done.log
    assert BRANCH in world.branches()
    (opened,) = world.github.state.pulls
    assert opened["head"] == BRANCH
    assert done.outputs["pull-request-url"].startswith(f"{world.github.web_url}/{name}/pull/")
    (pushed,) = [each for each in done.report["effects"] if each["kind"] == "push_branch"]
    assert pushed["url"] == f"{world.git_server.url}/{name}/tree/{BRANCH}"
    assert f"o/r is called {name} now" in done.log
    assert len(world.comments()) == 1


@pytest.mark.parametrize("environ", [{}, ID], ids=["by name", "by id"])
@pytest.mark.parametrize("commits", ["git", "verified"])
@pytest.mark.parametrize("name", ["o/new", "p/r"], ids=["renamed", "transferred"])
def test_a_repository_that_moves_while_a_run_works_gets_its_work(
    world: World, name: str, commits: str, environ: dict[str, str]
) -> None:
    world.runner.environ |= environ
    done = run(world, name, commits=commits)
    assert_whole(world, done, name)
    # Of the two addresses only the new one gets what is pushed.
    pushes = [each.path for each in world.git_server.requests if each.path.endswith("/git-receive-pack")]
    assert pushes == [f"/{name}.git/git-receive-pack"] * (commits == "git")


@pytest.mark.fast
def test_a_name_that_somebody_else_has_taken_gets_nothing(world: World) -> None:
    world.runner.environ |= ID
    before: list[int] = []

    def move(world: World) -> None:
        world.rename(taken=True)
        before.extend((len(world.git_server.requests), len(world.github.requests)))

    done = world.run(before_last(world, solve(), move), base_checks="skip")
    assert_whole(world, done, "o/new")
    assert [each.path for each in world.git_server.requests[before[0] :] if each.path.startswith("/o/r.git")] == []
    assert [each.path for each in world.github.requests[before[1] :] if "/repos/o/r" in each.path] == []


def test_a_repository_that_cannot_be_found_any_more_gets_nothing_and_the_work_is_kept(world: World) -> None:
    world.runner.environ |= ID
    before: list[int] = []

    def delete(world: World) -> None:
        world.rename(taken=True)
        world.github.fail("GET", "^/repositories/1$", 404, times=99)
        before.append(len(world.git_server.requests))

    done = world.run(before_last(world, solve(), delete), base_checks="skip")
    assert (done.outputs["outcome"], done.exit_code) == ("boundary_failed", 1), done.log
    assert "The commits are kept in work.bundle" in done.outputs["reason"]
    assert (done.folder / "work.bundle").exists()
    assert world.git_server.requests[before[0] :] == []
    assert world.github.writes() == []


@pytest.mark.parametrize("environ", [{}, ID], ids=["by name", "by id"])
def test_a_repository_that_was_renamed_before_its_job_gets_the_work(world: World, environ: dict[str, str]) -> None:
    world.runner.environ |= environ
    world.rename()
    done = world.run(solve())
    assert done.outputs["outcome"] == "completed", done.log
    assert BRANCH in world.branches()
    assert done.outputs["pull-request-url"].startswith(f"{world.github.web_url}/o/new/pull/")
    assert [each.path for each in world.git_server.requests if each.path.startswith("/o/r.git")] == []


@pytest.mark.parametrize("taken", [False, True], ids=["free", "taken"])
def test_a_review_of_a_repository_that_was_renamed_before_its_job(world: World, taken: bool) -> None:
    """Nothing is read of another repository that has the old name."""
    world.runner.environ |= ID if taken else {}
    let_review(world)
    number = propose(world, {"greeting.txt": "Hello there\n"})
    event = labeled(world, number)
    world.rename(taken=taken)
    done = review(world, event)
    assert done.outputs["outcome"] == "completed", done.log
    assert len(world.github.state.reviews) == 1


@pytest.mark.parametrize("taken", [False, True], ids=["free", "taken"])
def test_caps_count_in_a_repository_that_was_renamed_before_its_job(world: World, taken: bool) -> None:
    world.runner.environ |= ID if taken else {}
    world.rename(taken=taken)
    done = world.run(solve(), base_checks="skip", limits={"usd-per-day": 20})
    assert done.outputs["outcome"] == "completed", done.log
