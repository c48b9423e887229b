"""Tools that use up the machine's memory or take the launcher down: the parent lives and says so."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.e2e.repository import labeled
from tests.e2e.script import EVENT_CANARY, answer_the_question
from tests.servers.messages_api import calls

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.e2e.hosted_runner import HostedRunner
    from tests.e2e.world import World

pytestmark = [pytest.mark.e2e_security, pytest.mark.timeout(300)]
EXPLOITS = {Path(__file__).parent / "exploits": "/opt/exploits:ro"}
#: A small machine, so that using it up takes no time.
SMALL_MEMORY = ("--memory=256m", "--memory-swap=256m")
EVENT = labeled("agent:closer", secret=EVENT_CANARY)
#: What the closer does when nothing goes wrong ends in a comment and in this outcome.
COMPLETED = (0, "completed")


BOMBS = (
    # Many processes, each of them smaller than the parent.
    "python3 /opt/exploits/memory_bomb.py 40",
    # Pages of files that stay in memory as long as somebody holds them.
    "python3 /opt/exploits/memory_file.py 512",
    # What System V keeps when nobody is left.
    "python3 /opt/exploits/lasting_memory.py fill 512",
)


def test_when_tools_use_up_the_memory_the_run_goes_on(new_world: Callable[[], World]) -> None:
    world = new_world()
    bombs = [calls(("bash", {"command": command, "timeout_ms": 60_000})) for command in BOMBS]
    runner = world.hosted_runner([*bombs, *answer_the_question()], EVENT)
    with _started(world, runner) as process:
        ended = runner.finish(process, timeout=250)
    assert (ended.exit_code, ended.outputs.get("outcome")) == COMPLETED, ended.log
    assert len(world.tool_results()) >= len(BOMBS)
    assert "1024" in world.comments()[-1]["body"]
    assert runner.changes() == []


def test_when_the_launcher_is_ended_the_run_says_so_and_the_checkout_is_as_it_was(
    new_world: Callable[[], World],
) -> None:
    world = new_world()
    wait = calls(("bash", {"command": "git config core.fsmonitor true; touch begun; sleep 300"}))
    runner = world.hosted_runner([wait], EVENT)
    with _started(world, runner) as process:
        runner.wait_in_workspace("begun", process)
        _end_launcher(runner)
        ended = runner.finish(process, timeout=90)
    assert ended.exit_code == 1, ended.log
    assert "toolbox ended" in ended.outputs["reason"]
    assert set(ended.outputs) == world.declared_outputs()
    assert ended.outputs["outcome"] in world.comments()[-1]["body"]
    assert runner.changes() == []


def _started(world: World, runner: HostedRunner):
    return runner.started(world.inputs(), event_name="issues", volumes=EXPLOITS, options=SMALL_MEMORY)


def _end_launcher(runner: HostedRunner) -> None:
    """As the kernel does when no memory is left: by a signal that nothing can be done about."""
    command = "kill -9 $(grep -laz 'from child[.]launcher' /proc/[0-9]*/cmdline | cut -d/ -f3)"
    subprocess.run(["docker", "exec", "--user=0", runner.name, "sh", "-c", command], check=True, capture_output=True)
