"""The container under the mounts and owners of a hosted runner, which act does not have.

security/test_e2e_security_exfiltration.py has a whole run of the fixer there.
"""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import pytest

from tests.e2e.hosted_runner import RUNNER, RUNNER_UID
from tests.e2e.repository import git, labeled
from tests.e2e.script import (
    EVENT_CANARY,
    LEFT_RUNNING,
    look_around_and_answer,
    use_what_was_set_up,
)
from tests.servers.messages_api import calls
from tests.world import crowd

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.e2e.world import World

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]
EVENT = labeled("agent:fixer", secret=EVENT_CANARY)
ROOT = (0, 0)


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
