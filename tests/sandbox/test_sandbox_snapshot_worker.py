"""The worker that takes a step's snapshots: it may die or hang, and only a snapshot is lost by it."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from threading import Timer

import pytest
from snapshot_world import worked
from toolbox_world import Box, alive, gone_within, root_only, stays_root

from stepflow.domain.words import Isolation
from stepflow.run.snapshots import Snapshots

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what a process has started")


@pytest.fixture
def one(checkout, open_folder):
    with worked(checkout, open_folder / "run") as opened:
        yield opened


def children(supervisor: int) -> set[int]:
    return {int(pid) for pid in Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()}


def worker_of(one) -> int:
    """Takes a snapshot; gives the process that has taken it, which is the supervisor's only child beside the shell."""
    supervisor, shell = (int(word) for word in one.box.bash("echo $PPID $$").text.split())
    one.snapshots.take()
    (worker,) = children(supervisor) - {shell}
    return worker


def end(worker: int) -> None:
    os.kill(worker, signal.SIGKILL)
    assert gone_within(10, worker)


def test_one_worker_takes_all_snapshots_of_a_step_and_is_dead_after_it(one):
    worker = worker_of(one)
    one.box.bash("echo n > n")
    assert one.snapshots.take().files == 1
    assert worker_of(one) == worker
    one.box.toolbox.end_step()
    assert not alive(worker)
    one.snapshots.take()
    assert worker_of(one) != worker


def test_a_worker_that_was_killed_is_replaced_by_one_that_remembers(one):
    before = one.snapshots.take().name
    end(worker_of(one))
    assert one.snapshots.take().name == before
    end(worker_of(one))
    one.box.bash("echo n > n")
    info = one.snapshots.take()
    assert (info.problem, info.files) == ("", 1)


@pytest.mark.whole
def test_a_worker_that_is_killed_at_work_costs_one_snapshot(one):
    worker = worker_of(one)
    os.kill(worker, signal.SIGSTOP)
    one.box.bash("echo n > n")
    Timer(0.3, os.kill, (worker, signal.SIGKILL)).start()
    assert "ended without an answer" in one.snapshots.take().problem
    info = one.snapshots.take()
    assert (info.problem, info.files) == ("", 1)


@pytest.mark.whole
def test_a_worker_that_hangs_is_ended_and_the_next_one_works(one, monkeypatch):
    worker = worker_of(one)
    os.kill(worker, signal.SIGSTOP)
    one.box.bash("echo n > n")
    monkeypatch.setattr("stepflow.sandbox.snapshots._SECONDS", 0.3)
    begun = time.monotonic()
    assert one.snapshots.take().problem == "it took longer than 0.3 s"
    assert time.monotonic() - begun < 15
    assert gone_within(10, worker)
    monkeypatch.undo()
    info = one.snapshots.take()
    assert (info.problem, info.files) == ("", 1)


def test_a_tree_of_which_no_snapshot_can_be_taken_ends_the_worker_and_not_the_run(one):
    worker = worker_of(one)
    one.box.bash("echo .away > .git/info/exclude; mv .git .away; touch .git; echo n > n")
    assert "outside the checkout" in one.snapshots.take().problem
    assert gone_within(10, worker)
    one.box.bash("rm .git; mv .away .git")
    info = one.snapshots.take()
    assert (info.problem, info.files) == ("", 1)


@root_only
def test_the_worker_holds_nothing_but_its_own_two_pipes(one):
    """Else the parent would wait for the answers of a supervisor that is dead."""
    worker = worker_of(one)
    supervisor = one.box.supervisor
    ours, theirs = (
        {fd.name: str(fd.readlink()) for fd in Path(f"/proc/{pid}/fd").iterdir()} for pid in (worker, supervisor)
    )
    assert ours["0"] == ours["1"] == "/dev/null"
    assert len(ours) == 5
    pipes = {name for name in ours.values() if name.startswith("pipe:")}
    assert len(pipes) == 2
    assert not pipes & {theirs["0"], theirs["1"]}


@pytest.mark.whole
@root_only
def test_the_worker_dies_with_its_supervisor(one):
    worker, supervisor = worker_of(one), one.box.supervisor
    os.kill(worker, signal.SIGSTOP)
    os.kill(supervisor, signal.SIGKILL)
    assert gone_within(10, worker)


@root_only
def test_the_tools_cannot_end_stop_or_read_the_worker(one):
    worker = worker_of(one)
    attempts = [f"kill -{name} {worker}" for name in ("KILL", "STOP", "TERM", "CHLD")]
    attempts += [f"head -c 1 /proc/{worker}/{file}" for file in ("environ", "mem", "maps", "fd/3")]
    for attempt in [*attempts, f"ls /proc/{worker}/fd/", f"echo x > /proc/{worker}/fd/3"]:
        assert one.box.bash(attempt).exit_code != 0, attempt
    one.box.bash("kill -KILL -1; true")
    assert worker_of(one) == worker


@pytest.mark.whole
def test_tools_that_may_signal_everything_of_theirs_cost_a_snapshot_no_more_than_its_worker(
    start, checkout, open_folder
):
    box = start(**stays_root(checkout))
    one = _Session(box, open_folder)
    worker = worker_of(one)
    box.bash(f"kill -9 {worker}; sleep 0.1; echo n > n")
    info = one.snapshots.take()
    assert (info.problem, info.files) == ("", 1)


@pytest.mark.whole
def test_the_worker_ends_with_the_step_also_where_nothing_else_must(start, open_folder):
    one = _Session(start(isolation=Isolation.BEST_EFFORT, disabled_layers=frozenset({"life"})), open_folder)
    worker = worker_of(one)
    one.box.toolbox.end_step()
    assert gone_within(10, worker)
    assert one.snapshots.take().problem == ""


class _Session:
    def __init__(self, box: Box, folder: Path) -> None:
        self.box, self.snapshots = box, Snapshots(box.toolbox, folder / "run")
