"""Which tree a run begins from, and which it goes on from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

import pytest

from stepflow.domain.conversation import ToolUse
from stepflow.domain.event import SnapshotFailed, SnapshotTaken
from stepflow.run.recorded import RunSnapshots
from stepflow.run.snapshots import Snapshots, Snapshotter
from tests.fakes import ListJournal


@dataclass
class CountedSnapshots:
    """Takes and puts back nothing, and remembers that it was asked."""

    done: list[str] = field(default_factory=list)
    problem: str = ""

    left_out: tuple[str, ...] = ()

    def take(self, **_: str) -> SnapshotTaken | SnapshotFailed:
        self.done.append("take")
        return SnapshotFailed(reason=self.problem) if self.problem else SnapshotTaken(name="new")

    def restore(self, name: str) -> None:
        self.done.append(f"restore {name}")


BEGUN = RunSnapshots(start="first", latest="third", is_set_up=True)


@pytest.mark.parametrize(
    ("run_snapshots", "is_start", "done"),
    [
        (RunSnapshots(), True, ["take", "set-up", "take"]),
        (BEGUN, False, ["restore first", "set-up", "restore third"]),
        (BEGUN, True, ["set-up", "restore third"]),
        (RunSnapshots(start="first", latest="first"), True, ["set-up", "take"]),
    ],
    ids=["a new run", "where the run has worked", "in a fresh checkout", "stopped in the set-up"],
)
def test_the_set_up_runs_in_the_tree_of_the_start(run_snapshots: RunSnapshots, is_start: bool, done: list[str]) -> None:
    snapshots = CountedSnapshots()
    snapshotter = Snapshotter(cast("Snapshots", snapshots), ListJournal())
    snapshotter.before_setup(run_snapshots, is_start=is_start)
    snapshots.done.append("set-up")
    snapshotter.after_setup(run_snapshots)
    assert snapshots.done == done


def test_a_tree_whose_newest_snapshot_failed_cannot_be_put_back() -> None:
    snapshots = CountedSnapshots()
    snapshotter = Snapshotter(cast("Snapshots", snapshots), ListJournal())
    snapshotter.before_setup(RunSnapshots(), is_start=True)
    assert snapshotter.holds
    snapshots.problem = "a file holds a secret"
    snapshotter.after_setup(RunSnapshots())
    assert not snapshotter.holds


@pytest.mark.parametrize(
    ("tools", "problem", "takes"),
    [
        (("read", "grep"), "", 0),
        (("read", "bash"), "", 1),
        ((), "the disk is full", 1),
    ],
    ids=["nothing that changes files", "a shell whose children ended with the step", "none was kept so far"],
)
def test_the_end_of_a_step_is_kept_where_the_tree_may_have_changed(
    tools: tuple[str, ...], problem: str, takes: int
) -> None:
    snapshots = CountedSnapshots(problem=problem)
    snapshotter = Snapshotter(cast("Snapshots", snapshots), ListJournal())
    snapshotter.before_setup(RunSnapshots(), is_start=True)
    snapshots.done.clear()
    for tool in tools:
        snapshotter.begin(ToolUse(tool_use_id="1", name=tool, input={}))
    snapshotter.end_step()
    assert snapshots.done == ["take"] * takes
    if not problem:
        snapshotter.end_step()
        assert snapshots.done == ["take"] * takes, "nothing of the step before is alive"
