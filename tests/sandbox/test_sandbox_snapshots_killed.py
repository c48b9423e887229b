"""The programs that take snapshots: one may die or hang, and only a snapshot is lost by it."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from pathlib import Path
from threading import Thread

import pytest
from snapshot_world import worked
from toolbox_world import gone_within, stays_root

from stepflow.domain.event import SnapshotTaken
from stepflow.domain.words import Isolation
from stepflow.errors import IsolationError
from stepflow.run.snapshots import Snapshots

pytestmark = [
    pytest.mark.whole,
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what a process has started"),
]


@pytest.fixture
def one(checkout, open_folder):
    with worked(checkout, open_folder / "run") as opened:
        yield opened


def children(pid: int) -> set[int]:
    return {int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}


class Hung:
    """A snapshot that waits for a rule file that is a pipe."""

    def __init__(self, one) -> None:
        one.sh("mkfifo .gitignore; echo n > n")
        self._one, self.info = one, None
        self.launcher, shell = (int(word) for word in one.box.bash("echo $PPID $$").output.split())
        self._thread = Thread(target=self._take)
        self._thread.start()
        deadline, seen = time.monotonic() + 20, 0
        # Those before the one that hangs end at once.
        while not seen or children(self.launcher) - {shell} != {seen}:
            assert time.monotonic() < deadline
            time.sleep(0.5)
            seen = min(children(self.launcher) - {shell}, default=0)
            time.sleep(0.5)
        self.git = seen

    def _take(self) -> None:
        with contextlib.suppress(IsolationError):
            self.info = self._one.snapshots.take()

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def join(self) -> None:
        self._thread.join(30)
        assert not self._thread.is_alive()

    def problem(self) -> str:
        self.join()
        assert self.info
        return self.info.reason

    def mend(self) -> None:
        """What is left of it is gone, and the next one works."""
        assert gone_within(10, self.git)
        self._one.box.bash("rm .gitignore")
        info = self._one.snapshots.take()
        assert (type(info), info.files) == (SnapshotTaken, 1)


def test_a_git_that_is_killed_at_work_costs_one_snapshot(one):
    hung = Hung(one)
    os.kill(hung.git, signal.SIGKILL)
    assert hung.problem() == "ended without an answer: it hit one of its limits or was killed"
    hung.mend()


def test_a_git_that_hangs_is_ended_and_the_next_one_works(one, monkeypatch):
    monkeypatch.setattr("stepflow.run.snapshots._TAKE_SECONDS", 2.0)
    hung = Hung(one)
    assert hung.problem() == "It took longer than 2 s."
    monkeypatch.undo()
    hung.mend()


@pytest.mark.parametrize("keeps_user", [False, True], ids=["no life", "as ourselves"])
def test_snapshots_are_taken_where_a_layer_does_not_hold(start, checkout, open_folder, keeps_user):
    without_life = {"isolation": Isolation.BEST_EFFORT, "disabled_layers": frozenset({"life"})}
    box = start(**(stays_root(checkout) if keeps_user else without_life))
    snapshots = Snapshots(box.toolbox, open_folder / "run")
    snapshots.take()
    box.bash("echo n > n")
    info = snapshots.take()
    assert (type(info), info.files) == (SnapshotTaken, 1)
