"""What a run leaves of the runner's folders: they are as before, but for the run's own work."""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

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

#: The run's own work: what the model did to the tree and to the history, and what the action says to the runner.
TREE = ("workspace/sizes.py!", "workspace/build", "workspace/build/*")
HISTORY = (
    *("workspace/.git/objects/*", "workspace/.git/index*", "workspace/.git/COMMIT_EDITMSG"),
    *("workspace/.git/logs*", "workspace/.git/refs/heads/main*", "workspace/.git/information*"),
)
RUN = ("temp/stepflow*", "temp/_runner_file_commands/output!", "temp/_runner_file_commands/summary!")


@dataclass(frozen=True, kw_only=True)
class Left:
    """A finished run on folders that were looked at before and after it."""

    before: State
    after: State
    ended: Ended
    owner: tuple[int, int]


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


@pytest.fixture(
    scope="module",
    params=[(script, owner) for script in SCRIPTS for owner in (RUNNER, ROOT)],
    ids=lambda given: f"{given[0]}, {'a user' if given[1] == RUNNER else 'root'}'s checkout",
)
def left(request: pytest.FixtureRequest, new_world: Callable[[], World]) -> Iterator[tuple[str, Left]]:
    """A run that ends one way or the other."""
    name, owner = request.param
    world = new_world()
    event = labeled("agent:fixer", secret=EVENT_CANARY)
    runner = world.hosted_runner(SCRIPTS[name](), event, owner=owner, planted=PLANTED)
    before = look_at(runner.root, image=runner.image)
    with runner.started(world.inputs(), event_name="issues", volumes={EXPLOITS: "/opt/exploits:ro"}) as process:
        if name == "SIGTERM":
            _wait_for(runner.root / "workspace/build/begun", seconds=60)
            runner.signal(signal.SIGTERM.name)
        ended = runner.finish(process, timeout=200)
    after = look_at(runner.root, image=runner.image)
    return name, Left(before=before, after=after, ended=ended, owner=owner)


def test_the_run_ended_as_it_should(left: tuple[str, Left]) -> None:
    name, run = left
    outcomes = {"success": "completed", "refusal": "validation_failed", "SIGTERM": "cancelled"}
    assert run.ended.outputs["outcome"] == outcomes[name], run.ended.log


def test_owners_modes_and_contents_are_as_before_but_for_the_runs_own_work(left: tuple[str, Left]) -> None:
    _, run = left
    assert differences(run.before, run.after, expected=(*TREE, *HISTORY, *RUN)) == {}


def test_gits_configuration_hooks_and_information_are_those_of_the_start(left: tuple[str, Left]) -> None:
    _, run = left
    unchanged = [
        path
        for path in run.before.keys() | run.after.keys()
        if path.startswith(("workspace/.git/config", "workspace/.git/hooks", "workspace/.git/info/"))
        or path.endswith("/alternates")
    ]
    assert {path: run.after.get(path) for path in unchanged} == {path: run.before.get(path) for path in unchanged}
    assert "workspace/.git/config" in unchanged


def test_everything_that_is_new_belongs_to_the_owner_and_gives_nobody_rights(left: tuple[str, Left]) -> None:
    _, run = left
    new = {path: state for path, state in run.after.items() if path not in run.before and path.startswith("workspace")}
    assert [path for path in new if not path.startswith("workspace/build/")] or "workspace/build/deep/er/file" in new
    assert {tuple(state[:2]) for state in new.values()} == {run.owner}
    assert {path: state[2] for path, state in new.items() if int(str(state[2]), 8) & 0o6002} == {}


def test_the_mounted_folders_hold_nothing_new_but_what_the_action_says(left: tuple[str, Left]) -> None:
    _, run = left
    new = {path for path in run.after.keys() - run.before.keys() if path.startswith("temp/")}
    assert {path for path in new if not path.startswith("temp/stepflow")} == set()


def _wait_for(path: Path, *, seconds: float) -> None:
    until = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < until, f"{path} did not come into being"
        time.sleep(0.05)
