"""What a later step of the job meets after a run whose tools planted all they could, where they worked and in the
checkout: git runs nothing of theirs."""

from __future__ import annotations

import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.covering import covering
from tests.e2e.hosted_runner import RUNNER
from tests.e2e.repository import git, labeled
from tests.e2e.script import EVENT_CANARY, answer_the_question
from tests.e2e.security.snapshot import differences, look_at
from tests.servers.messages_api import calls

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.e2e.hosted_runner import HostedRunner
    from tests.e2e.security.snapshot import State
    from tests.e2e.world import World
    from tests.servers.messages_api import Reply

pytestmark = [pytest.mark.e2e_security, pytest.mark.timeout(300)]
EXPLOITS = Path(__file__).parent / "exploits"
PLANT = {"command": "bash /opt/exploits/later_steps.sh 2>&1"}
WAIT = {"command": "touch waiting; sleep 300"}
#: What the action says to the runner.
RUN = ("temp/stepflow*", "temp/_runner_file_commands/output!", "temp/_runner_file_commands/summary!")
#: As GitHub's runner does it: a signal, and the seconds until the next.
CANCEL = (("SIGINT", 7.5), ("SIGTERM", 2.5), ("SIGKILL", 0))
#: What somebody set before the run, as husky does: both lead into the tree, where nothing is yet.
SET_BEFORE = (("core.hooksPath", ".githooks"), ("include.path", "../.gitconfig"))
#: Every command that a later step or the checkout action's own end could give, with a marker as what may not run.
LATER = """
export HOME=/nowhere GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'
cd /github/workspace
for turn in with-the-settings-of-before without; do
  git status; git diff; git submodule status; git submodule foreach --recursive 'git status'; git log -1
  for folder in sub behind-a-file behind-a-link one/more/sub docs docs/bare; do
    [ -d $folder ] && (cd $folder; git status; git diff)
  done
  git config --local --unset-all core.hooksPath; git config --local --unset-all include.path
  git checkout -- . ; git fsck --no-dangling
done
git -c user.name=l -c user.email=l@example.invalid commit --quiet --allow-empty -m later
git fetch --quiet . main; git checkout --quiet --detach; git rebase --continue
ls /marks
"""


@dataclass(frozen=True, kw_only=True)
class Left:
    """What a run left, before any later step has touched it, and its log."""

    runner: HostedRunner
    before: State
    after: State
    log: str
    owner: tuple[int, int]


def completed() -> list[Reply]:
    """Plants and closes."""
    return [calls(("bash", PLANT)), *answer_the_question()]


def failed() -> list[Reply]:
    """Plants, and has no token left then."""
    return [calls(("bash", PLANT))]


def waiting() -> list[Reply]:
    """Plants and stays at work."""
    return [calls(("bash", PLANT), ("bash", WAIT))]


def end(runner: HostedRunner, name: str, process: subprocess.Popen[str]) -> None:
    """End it from outside, as its name says."""
    if name not in ENDED:
        return
    runner.wait_in_workspace("waiting", process)
    for number, seconds in CANCEL if name == "cancelled" else (("SIGKILL", 0),):
        if process.poll() is None:
            runner.signal(signal.Signals[number].name)
        until = time.monotonic() + seconds
        while process.poll() is None and time.monotonic() < until:
            time.sleep(0.1)


SCRIPTS = {
    "completed": completed,
    "failed": failed,
    "cancelled": waiting,
    "killed": waiting,
}
OWNERS = {"a user": RUNNER, "root": (0, 0)}
#: From outside.
ENDED = ("cancelled", "killed")


@pytest.fixture(
    scope="module",
    # With each change, test_e2e_security_killed.py has runs that are killed or canceled after other damage.
    params=[
        pytest.param(given, id=f"{given[0]}, {given[1]}'s checkout", marks=[pytest.mark.weekly] * (given[0] in ENDED))
        for given in covering(tuple(SCRIPTS), tuple(OWNERS))
    ],
)
def left(request: pytest.FixtureRequest, new_world: Callable[[], World]) -> Left:
    name, owner = request.param[0], OWNERS[request.param[1]]
    world = new_world()
    for key, value in SET_BEFORE:
        git(world.checkout, "config", key, value)
    event = labeled("agent:closer", secret=EVENT_CANARY)
    runner = world.hosted_runner(SCRIPTS[name](), event, owner=owner)
    (runner.root / "marks").mkdir()
    (runner.root / "marks").chmod(0o777)
    before = look_at(runner.root, image=runner.image)
    volumes = {EXPLOITS: "/opt/exploits:ro"}
    inputs = {**world.inputs(), **({"limits": "tokens: 1"} if name == "failed" else {})}
    with runner.started(inputs, event_name="issues", volumes=volumes) as process:
        end(runner, name, process)
        log = process.communicate(timeout=100)[0]
    after = look_at(runner.root, image=runner.image)
    return Left(runner=runner, before=before, after=after, log=log, owner=owner)


@pytest.mark.parametrize("user", [RUNNER, (0, 0)], ids=["as the runner's user", "as root"])
def test_git_runs_nothing_that_tools_planted(left: Left, user: tuple[int, int]) -> None:
    runner = left.runner
    mounts = [f"--volume={runner.root}/workspace:/github/workspace", f"--volume={runner.root}/marks:/marks"]
    mounts += [f"--volume={runner.root}/temp:/github/runner_temp"]
    command = ["docker", "run", "--rm", "--network=none", "--user={}:{}".format(*user), *mounts, "--entrypoint=bash"]
    done = subprocess.run([*command, runner.image, "-c", LATER], capture_output=True, text=True, check=False)
    marks = [path.name for path in (runner.root / "marks").iterdir()]
    for path in (runner.root / "marks").iterdir():
        path.unlink()
    assert marks == [], f"{done.stdout}\n{done.stderr}\n{left.log}"
    if user in (left.owner, (0, 0)):
        assert done.returncode == 0, done.stderr
        assert "error" not in done.stderr, done.stderr


def test_every_folder_is_byte_for_byte_as_before_but_for_what_the_action_says(left: Left) -> None:
    assert differences(left.before, left.after, expected=RUN) == {}, left.log
