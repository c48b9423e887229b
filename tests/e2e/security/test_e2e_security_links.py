"""Links and pipes that tools put where the root parent reads: it follows none, and none holds it up."""

from __future__ import annotations

import time
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

pytestmark = [pytest.mark.e2e_security, pytest.mark.timeout(400)]
EVENT = labeled("agent:closer", secret=EVENT_CANARY)
#: It has the form of a commit's name, so that it would be believed.
CANARY = "c0ffee" * 6 + "c0ff"
CLOSED = "/github/runner_temp/canary"


def run(world: World, *commands: str) -> Ended:
    """The closer, which begins with these commands, beside a file that its tools may not read."""
    script = [calls(("bash", {"command": command})) for command in commands]
    runner = world.hosted_runner([*script, *answer_the_question()], EVENT, planted={"temp/canary": CANARY})
    with runner.started(world.inputs(), event_name="issues") as process:
        return runner.finish(process, timeout=350)


def everything(ended: Ended) -> str:
    """What the run has written: its log, its outputs, its folder."""
    files = [file for file in Path(ended.outputs["run-folder"]).rglob("*") if file.is_file()]
    contents = "\n".join(file.read_bytes().decode("latin-1") for file in files)
    return "\n".join((ended.log, ended.summary, *ended.outputs.values(), contents))


def test_a_branch_that_leads_to_a_closed_file_tells_nothing_of_it(new_world: Callable[[], World]) -> None:
    """So does a HEAD. To git, which cannot read it, that branch has no commit: the tree is kept, and so is HEAD."""
    world = new_world()
    begin = f"cat {CLOSED}; was=$(cat .git/HEAD); echo 'ref: refs/heads/led' > .git/HEAD"
    ended = run(
        world,
        f"{begin}; mkdir -p .git/refs/heads; ln -s {CLOSED} .git/refs/heads/led; touch tick; echo led",
        'rm tick .git/refs/heads/led; echo "$was" > .git/HEAD; echo back',
        f"cat {CLOSED}; mv .git/HEAD .git/kept && ln -s {CLOSED} .git/HEAD && echo swapped",
        "rm .git/HEAD && mv .git/kept .git/HEAD && echo back",
    )
    assert (ended.exit_code, ended.outputs["outcome"]) == (0, "completed"), ended.log
    led, first, swapped, second = world.tool_results()[:4]
    assert "Permission denied" in led
    assert led.endswith("led\n")
    assert "Permission denied" in swapped
    assert "swapped" in swapped
    assert (first, second) == ("back\n", "back\n")
    assert CANARY not in everything(ended)


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", ["HEAD", "config"])
def test_a_pipe_in_the_place_of_a_file_of_git_s_does_not_stall_the_run(
    new_world: Callable[[], World], name: str
) -> None:
    world = new_world()
    swap = f"mv .git/{name} .git/kept && mkfifo .git/{name} && echo swapped"
    begun = time.monotonic()
    ended = run(world, swap, f"rm .git/{name} && mv .git/kept .git/{name} && echo back")
    assert (ended.exit_code, ended.outputs["outcome"]) == (0, "completed"), ended.log
    assert world.tool_results()[:2] == ["swapped\n", "back\n"]
    assert time.monotonic() - begun < 60
