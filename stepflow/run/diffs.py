"""What each iteration of a run changed in the working tree, from the snapshots in its run folder."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from stepflow.domain.checkout import FileChange
from stepflow.domain.event import IterationStarted, RunResumed, SnapshotFailed, SnapshotTaken
from stepflow.errors import StepflowError
from stepflow.journal.snapshot_history import SnapshotHistory
from stepflow.report.diff import TOO_MUCH, Budget, Diffs, StepDiff, step_diff
from stepflow.run.snapshots import FOLDER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from stepflow.domain.event import Entry
    from stepflow.journal.snapshot_file import EntryValue

FAILED = "a snapshot failed here: its changes are shown with the step after it"
UNKNOWN_START = "no snapshot is older than this step's: what it changed before that is not known"


@dataclass(kw_only=True)
class Stretch:
    """One iteration: the snapshots that the run had in it, in order, and whether one could not be taken."""

    iteration: int
    names: list[str] = field(default_factory=list)
    failed: bool = False


class Stretches:
    """Gathers which snapshots belong to which iteration. The first stretch, 0, is what came before all of them."""

    def __init__(self) -> None:
        self.all = [Stretch(iteration=0)]

    def watch(self, entries: Iterable[Entry]) -> Iterator[Entry]:
        """The same entries, looked at as they pass."""
        for entry in entries:
            match entry.event:
                case IterationStarted(iteration=iteration):
                    self.all.append(Stretch(iteration=iteration))
                case SnapshotTaken(name=name):
                    self.all[-1].names.append(name)
                case RunResumed(snapshot=name) if name:
                    self.all[-1].names.append(name)
                case SnapshotFailed():
                    self.all[-1].failed = True
                case _:
                    pass
            yield entry


def diffs_of(stretches: Stretches, folder: Path, redact: Callable[[str], str]) -> Diffs:
    """The diffs of a run folder's iterations, or why there are none. A folder that is damaged or was forged takes
    nothing but the diffs from the page."""
    if not any(stretch.names for stretch in stretches.all):
        return Diffs()
    try:
        history = SnapshotHistory(folder / FOLDER)
        steps = _changed_steps(stretches, history)
        return _shown(steps, history, redact)
    except StepflowError as error:
        return Diffs(note=f"The steps are shown without what they changed. {redact(str(error))}")


@dataclass(frozen=True, kw_only=True)
class _Step:
    """What each path was before and after one iteration."""

    iteration: int
    paths: dict[str, tuple[EntryValue | None, EntryValue | None]]
    notes: tuple[str, ...] = ()


def _changed_steps(stretches: Stretches, history: SnapshotHistory) -> list[_Step]:
    found: list[_Step] = []
    for stretch in stretches.all:
        notes = (FAILED,) if stretch.failed else ()
        if stretch.iteration and stretch.names and not history.name:
            notes = (*notes, UNKNOWN_START)
        before: dict[str, EntryValue | None] = {}
        for name in stretch.names:
            for path, was in history.move(name).items():
                before.setdefault(path, was)
        paths = {path: (was, history.entry(path)) for path, was in sorted(before.items())}
        paths = {path: both for path, both in paths.items() if both[0] != both[1]}
        if stretch.iteration and (paths or notes):
            found.append(_Step(iteration=stretch.iteration, paths=paths, notes=notes))
    return found


def _shown(steps: list[_Step], history: SnapshotHistory, redact: Callable[[str], str]) -> Diffs:
    """The last step and the first one have their diffs first, those in the middle when there is room for them."""
    budget, shown, left_out = Budget(), dict[int, StepDiff](), 0
    waiting = deque(steps)
    while waiting:
        step = waiting.popleft() if len(shown) % 2 else waiting.pop()
        if budget.is_left:
            diff = step_diff(step.paths, partial(_change, history, step), budget, redact)
        else:
            diff = StepDiff(notes=(TOO_MUCH,) if step.paths else ())
            left_out += bool(step.paths)
        notes = (*diff.notes, *step.notes)
        shown[step.iteration] = StepDiff(files=diff.files, notes=notes)
    note = f"What {left_out:,} of {len(steps):,} steps changed is {TOO_MUCH}." if left_out else ""
    return Diffs(steps={number: diff for number, diff in shown.items() if diff.files or diff.notes}, note=note)


def _change(history: SnapshotHistory, step: _Step, path: str) -> FileChange:
    before, after = step.paths[path]
    name = path.encode("latin-1", "replace").decode("utf-8", "backslashreplace")
    return FileChange(path=name, before=history.side(path, before), after=history.side(path, after))
