"""Tools that use up what there is: processes, disk, output, time. The run goes on and ends with an outcome."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.e2e.repository import labeled
from tests.e2e.script import EVENT_CANARY, answer_the_question
from tests.servers.messages_api import calls

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.e2e.hosted_runner import Ended
    from tests.e2e.world import World

pytestmark = [pytest.mark.e2e_security, pytest.mark.timeout(300)]
EXPLOITS = Path(__file__).parent / "exploits"
#: A small disk for everybody's temporary files, so that filling it takes no time.
SMALL_DISK = ("--tmpfs=/tmp:size=64m,mode=1777",)
#: Every process starts two more, and none waits.
FORK_BOMB = {"command": "bomb() { bomb | bomb & }; bomb", "timeout_ms": 3000}
FULL_DISK = {"command": "bash /opt/exploits/full_disk.sh"}
GREEDY = (
    {"command": "python3 /opt/exploits/fork_bomb.py 5000"},
    {"command": "bash /opt/exploits/endless_output.sh", "timeout_ms": 3000},
    {"command": "bash /opt/exploits/endless.sh", "timeout_ms": 1000},
    FULL_DISK,
    {"command": 'rm "$TMPDIR/everything" && echo still here'},
    FORK_BOMB,
)


#: The kernel counts a user's processes on the whole machine, so that a user's bomb is felt by runs beside this one.
OWN_USER = (1002, 118)


def run(world: World, *commands: dict[str, object], options: tuple[str, ...] = SMALL_DISK) -> Ended:
    """The closer, which begins with these calls of bash, on a small machine."""
    greedy = [calls(("bash", command)) for command in commands]
    event = labeled("agent:closer", secret=EVENT_CANARY)
    runner = world.hosted_runner([*greedy, *answer_the_question()], event, owner=OWN_USER)
    volumes = {EXPLOITS: "/opt/exploits:ro"}
    with runner.started(world.inputs(), event_name="issues", volumes=volumes, options=options) as process:
        return runner.finish(process, timeout=200)


def test_greedy_tools_are_bounded_and_the_run_completes(
    new_world: Callable[[], World],
) -> None:
    world = new_world()
    ended = run(world, *GREEDY)
    assert (ended.exit_code, ended.outputs["outcome"]) == (0, "completed"), ended.log
    processes, output, endless, disk, last, _ = world.tool_results()[: len(GREEDY)]
    assert "refused: [Errno 11]" in processes
    assert int(re.findall(r"(\d+) processes were alive", processes)[0]) < 2100
    assert "bytes left out here" in output
    assert len(output) < 200_000
    assert "timed out after 1 s" in endless
    assert "No space left on device" in disk
    assert last == "still here\n"
    assert "1024" in world.comments()[-1]["body"]


def test_a_disk_that_stays_full_is_a_named_outcome_with_every_output_and_nothing_pushed(
    new_world: Callable[[], World],
) -> None:
    world = new_world()
    ended = run(world, FULL_DISK)
    assert (ended.exit_code, ended.outputs["outcome"]) == (1, "refused"), ended.log
    assert "space" in ended.outputs["reason"]
    assert set(ended.outputs) == world.declared_outputs()
    assert ended.summary
    assert world.pulls() == []


def test_where_the_engine_lets_nobody_start_more_processes_the_run_ends_with_an_outcome_and_a_comment(
    new_world: Callable[[], World],
) -> None:
    world = new_world()
    ended = run(world, FORK_BOMB, options=("--pids-limit=200",))
    assert set(ended.outputs) == world.declared_outputs(), ended.log
    assert world.comments()
