"""A working directory below the repository's root: commands start there; the repository is judged and pushed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.action.follow_up_world import BRANCH, PULL, check_out, follow_up, reviewed
from tests.checkout import git
from tests.world import COMMIT, World, answer, bash, solve, understood

SERVICE = "services/api"


@pytest.fixture
def monorepo(world: World) -> World:
    """A repository with a folder that has files of its own."""
    folder = world.checkout / SERVICE
    folder.mkdir(parents=True)
    (folder / "greeting.txt").write_text("hello\n")
    push(world)
    return world


def push(world: World) -> None:
    git("add", "--all", cwd=world.checkout)
    git("commit", "--quiet", "--message", "Change", cwd=world.checkout)
    git("push", "--quiet", str(world.served), "main", cwd=world.checkout)


def changed(world: World) -> set[str]:
    return set(git("diff", "--name-only", f"main..{BRANCH}", cwd=world.served).split())


def events_of(world: World, done: Any, kind: str) -> list[dict[str, Any]]:
    return [each for each in world.events(done) if each["event"] == kind]


def solve_below() -> list[Any]:
    """Changes a file of the folder and one of the repository."""
    change = "pwd; echo 'hello, world' > greeting.txt; echo 'all of it' > ../../greeting.txt"
    _, _, summary, closing = solve()
    return [understood(), bash(f"{change} && git add -A :/ && {COMMIT}"), summary, closing]


@pytest.mark.whole
def test_commands_start_below_and_the_whole_repository_is_pushed(monorepo: World) -> None:
    done = monorepo.run(solve_below(), working_directory=SERVICE)
    assert (done.outputs["outcome"], done.outputs["validated"]) == ("completed", "true"), done.log
    assert len(monorepo.pulls()) == 1
    assert changed(monorepo) == {f"{SERVICE}/greeting.txt", "greeting.txt"}
    (call,) = events_of(monorepo, done, "tool_call")
    assert call["output"].splitlines()[0].endswith(f"/checkout/{SERVICE}")
    offered = json.dumps(monorepo.model.bodies[0]["tools"])
    assert f"starts in {SERVICE}/, below the repository root" in offered


@pytest.mark.whole
def test_agents_of_the_folder_come_before_those_of_the_root_also_in_a_repository_below_the_workspace(
    monorepo: World,
) -> None:
    own = monorepo.checkout / SERVICE / ".agent"
    git("mv", ".agent", str(own), cwd=monorepo.checkout)
    push(monorepo)
    monorepo.runner.environ = {"GITHUB_WORKSPACE": str(monorepo.checkout.parent)}
    folder = f"checkout/{SERVICE}"
    done = monorepo.run(solve_below(), working_directory=folder)
    assert done.outputs["outcome"] == "completed", done.log
    assert changed(monorepo) == {f"{SERVICE}/greeting.txt", "greeting.txt"}
    checked = monorepo.runner.run({}, name="push", mode="validate", working_directory=folder)
    assert checked.outputs["outcome"] == "completed", checked.log


@pytest.mark.whole
def test_uncommitted_changes_elsewhere_in_the_repository_count(monorepo: World) -> None:
    _, _, summary, closing = solve()
    replies = [
        understood(),
        bash(f"echo 'hello, world' > greeting.txt && {COMMIT}; echo left > ../../greeting.txt"),
        summary,
        closing,
    ]
    done = monorepo.run(replies, working_directory=SERVICE, on_failure="nothing")
    assert done.outputs["outcome"] != "completed", done.log
    assert "greeting.txt" in done.log
    assert monorepo.pulls() == []


@pytest.mark.whole
def test_a_run_that_was_stopped_goes_on_in_the_folder(monorepo: World) -> None:
    folder = monorepo.runner.folder / "temp/run"
    first = [understood(), bash("echo 'hello, world' > greeting.txt")]
    stopped = monorepo.run(first, working_directory=SERVICE, run_folder=str(folder), on_failure="nothing")
    assert stopped.outputs["outcome"] == "model_failed", stopped.log
    git("checkout", "--quiet", "--", ".", cwd=monorepo.checkout)
    rest = [bash(f"pwd; cat greeting.txt; {COMMIT}"), answer("continuation.issue", "handoff", summary="x"), solve()[-1]]
    done = monorepo.run(rest, working_directory=SERVICE, run_folder=str(folder), resume=str(folder))
    assert done.outputs["outcome"] == "completed", done.log
    assert changed(monorepo) == {f"{SERVICE}/greeting.txt"}


@pytest.mark.whole
def test_a_pull_request_that_changes_the_agents_of_a_folder_is_not_followed_up(opened: World) -> None:
    check_out(opened, opened.branches()[BRANCH])
    prompt = opened.checkout / SERVICE / ".agent/fixer/prompts/system.md"
    prompt.parent.mkdir(parents=True)
    prompt.write_text("Do as you like.")
    git("add", "--all", cwd=opened.checkout)
    git("commit", "--quiet", "--message", "Change the agent", cwd=opened.checkout)
    git("push", "--quiet", str(opened.served), f"HEAD:{BRANCH}", cwd=opened.checkout)
    check_out(opened)
    opened.model.requests.clear()
    done = follow_up(opened, [], reviewed())
    assert (done.outputs["outcome"], opened.model.requests) == ("skipped", []), done.log
    assert f"pull request #{PULL} changes {SERVICE}/.agent/fixer/prompts/system.md" in done.outputs["reason"]


@pytest.mark.whole
def test_the_self_test_and_preflight_work_below_the_root(monorepo: World) -> None:
    done = monorepo.runner.run({}, name="push", mode="preflight", agent="fixer", working_directory="services")
    assert done.outputs["outcome"] == "completed", done.log
