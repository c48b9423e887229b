"""What a run leaves of the runner's folders: they are as before, but for what the action says to the runner."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.covering import covering
from tests.e2e.hosted_runner import RUNNER
from tests.e2e.repository import labeled
from tests.e2e.script import CLOSING, COMMIT, EVENT_CANARY, REPAIR, answer
from tests.e2e.security.snapshot import State, differences, look_at
from tests.servers.messages_api import Answer, calls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.e2e.hosted_runner import Ended
    from tests.e2e.world import World

pytestmark = [pytest.mark.e2e_security, pytest.mark.timeout(300)]
EXPLOITS = Path(__file__).parent / "exploits"
ROOT = (0, 0)
QUIET_DAMAGE = ("bash", {"command": "bash /opt/exploits/damage.sh 2>&1"})
DAMAGE = ("bash", {"command": "bash /opt/exploits/damage.sh all 2>&1"})
PLANTED = {"temp/_github_home/.netrc": "machine example.com"}

#: What the action says to the runner.
RUN = ("temp/stepflow*", "temp/_runner_file_commands/output!", "temp/_runner_file_commands/summary!")


@dataclass(frozen=True, kw_only=True)
class Left:
    """A finished run on folders that were looked at before and after it."""

    before: State
    after: State
    ended: Ended


def success() -> list[Answer]:
    """Repairs, commits, does what damage no validator sees, closes."""
    return [
        answer("initial.issue", "next", understanding="the number is repeated"),
        calls(("edit", REPAIR), ("bash", {"command": COMMIT}), QUIET_DAMAGE),
        answer("continuation.issue", "handoff", summary="repaired"),
        answer("closure.issue", "closing", **CLOSING),
    ]


def refusal() -> list[Answer]:
    """Does damage and claims success until nobody believes it any more."""
    claim = [
        answer("continuation.issue", "handoff", summary="done"),
        answer("closure.issue", "closing", **CLOSING),
    ]
    return [
        answer("initial.issue", "next", understanding="something"),
        calls(("bash", {"command": "date >> sizes.py"}), DAMAGE),
        *claim * 3,
    ]


def cancelled() -> list[Answer]:
    """Does damage, then waits for the end."""
    return [calls(DAMAGE, ("bash", {"command": "date >> sizes.py; touch build/begun; sleep 300"}))]


SCRIPTS = {"success": success, "refusal": refusal, "SIGTERM": cancelled}
OWNERS = {"a user": RUNNER, "root": ROOT}


@pytest.fixture(
    scope="module",
    # With each change, test_e2e_security_killed.py has runs that are refused or canceled after such damage.
    params=[
        pytest.param(
            given, id=f"{given[0]}, {given[1]}'s checkout", marks=[pytest.mark.weekly] * (given[0] != "success")
        )
        for given in covering(tuple(SCRIPTS), tuple(OWNERS))
    ],
)
def left(request: pytest.FixtureRequest, new_world: Callable[[], World]) -> Iterator[tuple[str, Left]]:
    """A run that ends one way or the other."""
    name, owner = request.param[0], OWNERS[request.param[1]]
    world = new_world()
    event = labeled("agent:fixer", secret=EVENT_CANARY)
    runner = world.hosted_runner(SCRIPTS[name](), event, owner=owner, planted=PLANTED)
    before = look_at(runner.root, image=runner.image)
    with runner.started(world.inputs(), event_name="issues", volumes={EXPLOITS: "/opt/exploits:ro"}) as process:
        if name == "SIGTERM":
            runner.wait_in_workspace("build/begun", process)
            runner.signal(signal.SIGTERM.name)
        ended = runner.finish(process, timeout=200)
    after = look_at(runner.root, image=runner.image)
    return name, Left(before=before, after=after, ended=ended)


def test_the_run_ended_as_it_should(left: tuple[str, Left]) -> None:
    name, run = left
    outcomes = {"success": "completed", "refusal": "validation_failed", "SIGTERM": "cancelled"}
    assert run.ended.outputs["outcome"] == outcomes[name], run.ended.log


def test_every_folder_is_byte_for_byte_as_before_but_for_what_the_action_says(left: tuple[str, Left]) -> None:
    _, run = left
    assert differences(run.before, run.after, expected=RUN) == {}
