"""The container under the mounts and owners of a hosted runner, which act does not have."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.e2e.hosted_runner import RUNNER, RUNNER_UID
from tests.e2e.repository import BRANCH, git, labeled
from tests.e2e.script import (
    ALL_SECRETS,
    EVENT_CANARY,
    LEFT_RUNNING,
    fix_with_one_forgotten_commit,
    look_around_and_answer,
    use_what_was_set_up,
)
from tests.servers.messages_api import Drop, calls
from tests.world import crowd

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

    from tests.e2e.hosted_runner import Ended, HostedRunner
    from tests.e2e.world import World

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]
EVENT = labeled("agent:fixer", secret=EVENT_CANARY)
ROOT = (0, 0)


@pytest.fixture(scope="module")
def fixed(new_world: Callable[[], World]) -> tuple[World, HostedRunner, Ended]:
    """One run of the fixer."""
    world = new_world()
    runner = world.hosted_runner(fix_with_one_forgotten_commit(), EVENT)
    with runner.started(world.inputs(), event_name="issues") as process:
        ended = runner.finish(process, timeout=200)
    # What did not run leaves nothing behind either: without this, some of the tests below would be green for nothing.
    assert ended.exit_code == 0, ended.log
    return world, runner, ended


def test_the_run_completes_and_its_branch_arrives(fixed: tuple[World, HostedRunner, Ended]) -> None:
    world, _, ended = fixed
    assert (ended.exit_code, ended.outputs["outcome"]) == (0, "completed"), ended.log
    assert git(world.server, "rev-parse", BRANCH) == ended.outputs["commit"]
    assert world.github.violations == []


def test_the_run_folder_is_named_as_the_host_knows_it(fixed: tuple[World, HostedRunner, Ended]) -> None:
    _, runner, ended = fixed
    folder = Path(ended.outputs["run-folder"])
    assert folder.is_relative_to(runner.root / "temp")
    assert {"journal.jsonl", "report.json", "report.html", "effects.json"} <= {path.name for path in folder.iterdir()}
    assert json.loads((folder / "report.json").read_text())["outcome"] == "completed"


def test_the_token_writes_only_after_the_last_validator_was_green(fixed: tuple[World, HostedRunner, Ended]) -> None:
    world, _, ended = fixed
    lines = (Path(ended.outputs["run-folder"]) / "journal.jsonl").read_text().splitlines()
    accepted = max(entry["t"] for entry in map(json.loads, lines) if entry["event"] == "validator_ran")
    asked = world.github.requests[: world.requests_before_each_turn[0]]
    sent = world.github.requests[len(asked) :]
    assert asked[0].path == "/repos/acme/widgets/collaborators/bob/permission"
    assert {request.method for request in asked} == {"GET"}
    pushed = [request for request in world.git_server.requests if request.path.endswith("/git-receive-pack")]
    assert pushed
    assert all(request.time > accepted for request in (*sent, *pushed))
    assert {request.token for request in world.github.requests} == {True}


def test_no_secret_of_the_action_comes_into_the_reach_of_the_model(fixed: tuple[World, HostedRunner, Ended]) -> None:
    world, _, ended = fixed
    transcript = json.dumps(world.model_bodies())
    assert "hunted as uid" in transcript
    assert f"hunted as uid {RUNNER_UID}" not in transcript
    assert "the engine's socket refused: PermissionError" in transcript
    # Among these is what Landlock alone can keep from it: files of the runner, and the credential of the checkout.
    assert [secret for secret in ALL_SECRETS if secret in transcript] == []
    seen = "\n".join(line for line in ended.log.splitlines() if not line.startswith("::add-mask::"))
    assert [secret for secret in ALL_SECRETS if secret in seen + ended.summary + json.dumps(ended.outputs)] == []


def test_the_tools_wrote_into_none_of_the_runners_files(fixed: tuple[World, HostedRunner, Ended]) -> None:
    _, runner, ended = fixed
    files = runner.root / "temp/_runner_file_commands"
    untouched = {"env": "", "path": "", "state": ""}
    assert {name: (files / name).read_text() for name in untouched} == untouched
    assert "hijacked" not in (files / "output").read_text() + ended.summary


def test_the_checkout_is_as_it_was(fixed: tuple[World, HostedRunner, Ended]) -> None:
    _, runner, _ = fixed
    assert runner.changes() == []


@pytest.mark.sample(1)
@pytest.mark.parametrize("owner", [RUNNER, ROOT], ids=["a user's checkout", "root's checkout"])
def test_tools_run_as_a_user_that_nobody_else_has_and_can_work(
    new_world: Callable[[], World], owner: tuple[int, int]
) -> None:
    world = new_world()
    runner = world.hosted_runner(look_around_and_answer(), labeled("agent:closer", secret=EVENT_CANARY), owner=owner)
    with runner.started(world.inputs(), event_name="issues") as process:
        ended = runner.finish(process, timeout=200)
    assert (ended.exit_code, ended.outputs["outcome"]) == (0, "completed"), ended.log
    seen, later = world.tool_results()
    facts = dict(line.split("=", 1) for line in seen.splitlines())
    wanted = {"no-new-privileges": "1", "capabilities": "0000000000000000", "commits": "1", "dirty": "", "types": "0"}
    assert {name: facts[name] for name in wanted} == wanted, seen
    assert int(facts["uid"]) > RUNNER_UID, seen
    # No group of the runner's, one of its own.
    assert facts["groups"] == facts["gid"], seen
    assert int(facts["gid"]) not in {0, *RUNNER}, seen
    assert (facts["home"], facts["tmp"], facts["ours"]) == ("written", "written", "kept"), seen
    assert (facts["signal"], facts["processes"].isdigit()) == ("refused", True), seen
    assert later == f"{LEFT_RUNNING}: 0\n"
    assert runner.changes() == []


def test_debian_packages_and_setup_commands_are_there_for_the_tools(new_world: Callable[[], World]) -> None:
    world = new_world()
    inputs = {**world.inputs(), "apt-packages": "tree", "setup": "tree --version\necho ready > ~/state"}
    runner = world.hosted_runner(use_what_was_set_up(), labeled("agent:closer", secret=EVENT_CANARY))
    with runner.started(inputs, event_name="issues") as process:
        ended = runner.finish(process, timeout=200)
    assert (ended.exit_code, ended.outputs["outcome"]) == (0, "completed"), ended.log
    assert world.tool_results()[0] == "sizes.py ready\n", ended.log


def test_validation_puts_every_problem_on_its_line_and_asks_nothing_of_anybody(new_world: Callable[[], World]) -> None:
    world = new_world()
    registry = world.checkout / ".agent/fixer/steps_registry.json"
    text = registry.read_text().replace(
        '"handoff": { "target": "closure.issue" }', '"handoff": { "target": "nowhere" }'
    )
    registry.write_text(text.replace('"validator": "type-check"', '"validator": "types"'))
    git(world.checkout, "commit", "--quiet", "--all", "--message", "Break the registry")
    runner = world.hosted_runner([], EVENT)
    with runner.started({**world.inputs(), "mode": "validate"}, event_name="pull_request") as process:
        ended = runner.finish(process, timeout=60)
    assert (ended.exit_code, ended.outputs["outcome"]) == (2, "invalid_definition"), ended.log
    lines = registry.read_text().splitlines()
    for wrong in ('"nowhere"', '"types"'):
        at = next(number for number, line in enumerate(lines, start=1) if wrong in line)
        assert f"::error file=.agent/fixer/steps_registry.json,line={at}," in ended.log, ended.log
    assert (world.model_bodies(), world.requests_made()) == ([], 0)


@pytest.mark.weekly  # the next one waits for more
def test_a_cancelled_job_ends_within_five_seconds_and_says_so(new_world: Callable[[], World]) -> None:
    world = new_world()
    runner = world.hosted_runner([Drop(silent=60)], EVENT)
    with runner.started(world.inputs(), event_name="issues") as process:
        _wait_for(lambda: bool(world.model_bodies()), process)
        begun = time.monotonic()
        runner.signal(signal.SIGTERM.name)
        ended = runner.finish(process, timeout=30)
    assert time.monotonic() - begun < 5 * crowd()
    assert (ended.exit_code, ended.outputs["outcome"]) == (130, "cancelled"), ended.log
    assert ended.summary
    assert runner.changes() == []
    assert {each.method for each in world.github.requests} == {"GET"}


def test_a_cancelled_job_does_not_wait_for_a_tool(new_world: Callable[[], World]) -> None:
    world = new_world()
    runner = world.hosted_runner([calls(("bash", {"command": "touch begun; sleep 300"}))], EVENT, owner=ROOT)
    with runner.started(world.inputs(), event_name="issues") as process:
        runner.wait_in_workspace("begun", process, seconds=60)
        begun = time.monotonic()
        runner.signal(signal.SIGINT.name)
        ended = runner.finish(process, timeout=30)
    assert time.monotonic() - begun < 5 * crowd()
    assert (ended.exit_code, ended.outputs["outcome"]) == (130, "cancelled"), ended.log
    assert ended.summary
    assert runner.changes() == []
    assert {each.method for each in world.github.requests} == {"GET"}


def _wait_for(happened: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    until = time.monotonic() + 60
    while not happened():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < until, "it did not begin within a minute"
        time.sleep(0.05)
