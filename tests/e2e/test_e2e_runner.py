"""The container under the mounts, owners and credentials of a hosted runner, which act does not have.

Takes: the image, the loopback servers. Gives: nothing. May touch: the Docker engine, temporary folders.
"""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.e2e.hosted_runner import RUNNER_UID
from tests.e2e.repository import BRANCH, git, labeled
from tests.e2e.script import EVENT_CANARY, SECRETS, fix_with_one_forgotten_commit
from tests.servers.messages_api import Drop, calls

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

    from tests.e2e.hosted_runner import Ended, HostedRunner
    from tests.e2e.world import World

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]
EVENT = labeled("agent:fixer", secret=EVENT_CANARY)


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


def test_the_run_folder_is_named_as_the_host_knows_it(fixed: tuple[World, HostedRunner, Ended]) -> None:
    _, runner, ended = fixed
    folder = Path(ended.outputs["run-folder"])
    assert folder.is_relative_to(runner.root / "temp")
    assert {"journal.jsonl", "report.json", "report.html", "effects.json"} <= {path.name for path in folder.iterdir()}
    assert json.loads((folder / "report.json").read_text())["outcome"] == "completed"


def test_no_secret_and_no_credential_of_the_checkout_comes_into_the_reach_of_the_model(
    fixed: tuple[World, HostedRunner, Ended],
) -> None:
    world, _, ended = fixed
    transcript = json.dumps(world.model_bodies())
    assert f"hunted as uid {RUNNER_UID}" in transcript
    assert "the engine's socket refused: PermissionError" in transcript
    assert [secret for secret in SECRETS if secret in transcript] == []
    seen = "\n".join(line for line in ended.log.splitlines() if not line.startswith("::add-mask::"))
    assert [secret for secret in SECRETS if secret in seen + ended.summary + json.dumps(ended.outputs)] == []


def test_the_tools_wrote_into_none_of_the_runners_files(fixed: tuple[World, HostedRunner, Ended]) -> None:
    _, runner, ended = fixed
    files = runner.root / "temp/_runner_file_commands"
    assert {name: (files / name).read_text() for name in ("env", "path", "state")} == {
        "env": "",
        "path": "",
        "state": "",
    }
    assert "hijacked" not in json.dumps(ended.outputs)


def test_the_credential_comes_back_byte_for_byte_and_the_files_belong_to_the_runner_again(
    fixed: tuple[World, HostedRunner, Ended],
) -> None:
    _, runner, _ = fixed
    assert runner.configuration() == runner.configuration_at_start
    assert {path.lstat().st_uid for path in (runner.root / "workspace").rglob("*")} == {RUNNER_UID}


def test_a_cancelled_job_ends_within_five_seconds_and_says_so(new_world: Callable[[], World]) -> None:
    world = new_world()
    runner = world.hosted_runner([Drop(silent=60)], EVENT)
    with runner.started(world.inputs(), event_name="issues") as process:
        _wait_for(lambda: bool(world.model_bodies()), process)
        begun = time.monotonic()
        runner.signal(signal.SIGTERM.name)
        ended = runner.finish(process, timeout=30)
    assert time.monotonic() - begun < 5
    assert (ended.exit_code, ended.outputs["outcome"]) == (130, "cancelled"), ended.log
    assert ended.summary
    assert world.requests_made() == 0


def test_a_cancelled_job_does_not_wait_for_a_tool(new_world: Callable[[], World]) -> None:
    world = new_world()
    runner = world.hosted_runner([calls(("bash", {"command": "touch begun; sleep 300"}))], EVENT)
    with runner.started(world.inputs(), event_name="issues") as process:
        _wait_for((runner.root / "workspace/begun").exists, process)
        begun = time.monotonic()
        runner.signal(signal.SIGINT.name)
        ended = runner.finish(process, timeout=30)
    assert time.monotonic() - begun < 5
    assert (ended.exit_code, ended.outputs["outcome"]) == (130, "cancelled"), ended.log
    assert runner.configuration() == runner.configuration_at_start


def _wait_for(happened: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    until = time.monotonic() + 60
    while not happened():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < until, "it did not begin within a minute"
        time.sleep(0.05)
