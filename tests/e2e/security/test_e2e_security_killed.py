"""Runs that are killed or cancelled at any moment while tools do damage: nothing of it is left, and the next run works.

How often comes from `STEPFLOW_KILLS` and `STEPFLOW_CANCELS`, the seed from `STEPFLOW_SEED`.
"""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.covering import FULL
from tests.e2e.hosted_runner import RUNNER
from tests.e2e.repository import labeled
from tests.e2e.script import EVENT_CANARY, answer_the_question, refuse
from tests.e2e.security.snapshot import State, differences, look_at
from tests.servers.messages_api import Reply, calls

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.e2e.hosted_runner import Ended, HostedRunner
    from tests.e2e.world import World

KILLS = int(os.environ.get("STEPFLOW_KILLS", "3" if FULL else "2"))
CANCELS = int(os.environ.get("STEPFLOW_CANCELS", "2" if FULL else "1"))
SEED = int(os.environ.get("STEPFLOW_SEED", random.SystemRandom().randrange(10**6)))
pytestmark = [pytest.mark.e2e_security, pytest.mark.timeout(300 + 60 * (KILLS + CANCELS))]

EXPLOITS = Path(__file__).parent / "exploits"
DAMAGE = ("bash", {"command": "bash /opt/exploits/lasting_damage.sh 2>&1"})
#: What the runner does when a job is cancelled: the signal, and for how long it waits after it.
CANCEL = (("SIGINT", 7.5), ("SIGTERM", 2.5), ("SIGKILL", 30.0))
KILL = (("SIGKILL", 30.0),)
#: What the action says to the runner.
RUN = ("temp/stepflow*", "temp/_runner_file_commands/output!", "temp/_runner_file_commands/summary!")
#: A later step of the job, as the runner's user and as root.
GIT = """
git status; git diff; git diff --cached --stat; git submodule foreach --recursive 'git status'; git stash list
git log --oneline -1; git ls-files > /dev/null
"""
LATER_STEP = f"""
export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*' GIT_PAGER=cat
cd /github/workspace
setpriv --reuid={RUNNER[0]} --regid={RUNNER[1]} --clear-groups sh -c "$GIT" 2>&1
sh -c "$GIT" 2>&1
git fsck --no-dangling --no-progress 2>&1 || echo 'fsck: failed'
"""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One run and how it is ended: when, by which signals, and whose the checkout is."""

    number: int
    after: float
    signals: tuple[tuple[str, float], ...]
    owner: tuple[int, int]

    def __str__(self) -> str:
        """For the report of a failure."""
        how = " ".join(name for name, _ in self.signals)
        return f"trial {self.number}: {how} after {self.after:.2f} s, checkout of {self.owner[0]}"


class Stage:
    """A world, and runs in it that are played one after the other."""

    def __init__(self, world: World, folder: Path) -> None:
        self._world = world
        self._marker = folder / "marker"
        self._marker.mkdir()
        self._marker.chmod(0o777)
        self._replies: Iterator[Reply] = iter(())
        self._numbers = count(1)

    def runner(self, owner: tuple[int, int]) -> HostedRunner:
        """A fresh checkout."""
        return self._world.hosted_runner(self._say(), labeled("agent:closer", secret=EVENT_CANARY), owner=owner)

    def run(self, runner: HostedRunner, *, damage: bool, trial: Trial | None = None) -> tuple[Ended, float]:
        """One run to its end, which the trial brings about if it has not come by then; with the seconds it took."""
        self._replies = iter([*([calls(DAMAGE)] if damage else []), *answer_the_question()])
        volumes = {EXPLOITS: "/opt/exploits:ro", self._marker: "/marker"}
        environment = {"GITHUB_RUN_ID": str(next(self._numbers))}
        begun = time.monotonic()
        given = self._world.inputs()
        with runner.started(given, event_name="issues", volumes=volumes, environment=environment) as process:
            if trial and not _ends_within(trial.after, process):
                for name, seconds in trial.signals:
                    _send(runner, name, process)
                    if _ends_within(seconds, process):
                        break
            ended = runner.finish(process, timeout=120)
        return ended, time.monotonic() - begun

    def later_step(self, runner: HostedRunner) -> str:
        """What git says to a later step of the job; nothing of the tools may have been executed, ever."""
        mounts = {**runner.mounts(), self._marker: "/marker"}
        command = ["docker", "run", "--rm", "--network=none", "--entrypoint=sh", f"--env=GIT={GIT}"]
        command += [f"--volume={source}:{target}" for source, target in mounts.items()]
        done = subprocess.run([*command, runner.image, "-c", LATER_STEP], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def executed(self) -> str:
        """What programs of the tools have said outside of the sandbox."""
        said = self._marker / "executed"
        return said.read_text() if said.exists() else ""

    def _say(self) -> Iterator[Reply]:
        while True:
            yield next(self._replies, refuse("the script has no more turns"))


@pytest.fixture(scope="module")
def stage(new_world: Callable[[], World], tmp_path_factory: pytest.TempPathFactory) -> Stage:
    """Where all trials take place."""
    return Stage(new_world(), tmp_path_factory.mktemp("killed"))


@pytest.fixture(scope="module")
def whole(stage: Stage) -> float:
    """How many seconds a run takes that nobody ends. It is refused for the damage, and leaves nothing either."""
    runner = stage.runner(RUNNER)
    before = look_at(runner.root, image=runner.image)
    ended, seconds = stage.run(runner, damage=True)
    assert ended.outputs["outcome"] == "refused", ended.log
    assert wrong(stage, runner, before) == []
    return seconds


def test_nothing_is_left_of_a_run_that_was_killed_or_cancelled_at_any_moment(stage: Stage, whole: float) -> None:
    chance = random.Random(SEED)
    waiting = deque([*[KILL] * KILLS, *[CANCEL] * CANCELS])
    owners = (RUNNER, (0, 0))
    number = cancelled_in_time = 0
    failures: list[str] = []
    begun = time.monotonic()
    while waiting:
        number, signals = number + 1, waiting.popleft()
        trial = Trial(number=number, after=chance.uniform(0.2, whole), signals=signals, owner=owners[number % 2])
        runner = stage.runner(trial.owner)
        before = look_at(runner.root, image=runner.image)
        ended, _ = stage.run(runner, damage=True, trial=trial)
        if ended.exit_code != 137:
            # A kill that came too late is tried again.
            cancelled_in_time += signals is CANCEL
            waiting.extend([KILL] if signals is KILL else [])
        failures += [f"{trial}: {what}" for what in wrong(stage, runner, before)]
        following, _ = stage.run(runner, damage=False)
        if following.outputs.get("outcome") != "completed":
            failures.append(f"{trial}: the next run: {following.log[-2000:]}")
    print(f"\nseed {SEED}: {KILLS} kills and {CANCELS} cancels in {time.monotonic() - begun:.0f} s;", end=" ")
    print(f"{cancelled_in_time} cancels ended before SIGKILL; {len(failures)} failures")
    assert failures == [], "\n".join([f"seed {SEED}", *failures])


def wrong(stage: Stage, runner: HostedRunner, before: State) -> list[str]:
    """What a later step of the job would find."""
    changed = differences(before, look_at(runner.root, image=runner.image), expected=RUN)
    said = stage.later_step(runner)
    changes = [f"{path} was {was}, is {now}" for path, (was, now) in changed.items()]
    changes += [f"executed as {stage.executed()}"] if stage.executed() else []
    changes += [line for line in said.splitlines() if line.startswith(("error", "fatal", "fsck", "missing", "broken"))]
    return changes


def _ends_within(seconds: float, process: subprocess.Popen[str]) -> bool:
    with suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
    return process.poll() is not None


def _send(runner: HostedRunner, name: str, process: subprocess.Popen[str]) -> None:
    """As soon as there is a container."""
    command = ["docker", "kill", f"--signal={name}", runner.name]
    while process.poll() is None and subprocess.run(command, check=False, capture_output=True).returncode:
        time.sleep(0.05)
