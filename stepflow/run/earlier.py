"""The run that a run folder holds from an earlier process.

Takes: a run folder. Gives: `Earlier`: its events, or why nothing can go on from them.
May touch: reads the folder; moves it aside.
"""

from __future__ import annotations

import os
import secrets
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from stepflow.domain.event import RunFinished, RunResumed, RunStarted
from stepflow.domain.words import Outcome
from stepflow.errors import InputError
from stepflow.journal.file import hold_alone
from stepflow.journal.reader import read_journal
from stepflow.run.checks import OWN_FILES
from stepflow.run.recorded import implausible

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from stepflow.domain.event import Event

JOURNAL = "journal.jsonl"
#: A run writes some hundred bytes to some kilobytes per event; 10,000 iterations stay far below.
LARGEST_JOURNAL = 1024 * 1024 * 1024
LONGEST_LINE = 64 * 1024 * 1024
#: After these nothing is left to do; whoever wants the same again starts a new run.
OVER = frozenset(
    {
        *(Outcome.COMPLETED, Outcome.SKIPPED, Outcome.ABORTED, Outcome.ROUTING_FAILED, Outcome.SCHEMA_FAILED),
        *(Outcome.VALIDATION_FAILED, Outcome.REFUSED, Outcome.INVALID_DEFINITION),
    }
)


@dataclass(frozen=True, kw_only=True)
class Earlier:
    """What stands in a run folder. `problem` says why it cannot go on, and is empty where it can; `run_id` is empty
    where that cannot be read."""

    run_id: str = ""
    events: tuple[Event, ...] = ()
    problem: str = ""

    @property
    def started(self) -> RunStarted:
        """The run's beginning."""
        return next(event for event in self.events if isinstance(event, RunStarted))

    @property
    def ended(self) -> RunFinished | None:
        """How it ended; None when it was stopped, or resumed since."""
        last = next((e for e in reversed(self.events) if isinstance(e, RunFinished | RunResumed)), None)
        return last if isinstance(last, RunFinished) else None


def look_into(folder: Path) -> Earlier | None:
    """The run in the folder; None when there is none."""
    path = folder / JOURNAL
    try:
        if not os.path.lexists(path):
            problem = _strange_files(folder, only=OWN_FILES) if folder.is_dir() else ""
            return Earlier(problem=problem) if problem else None
        if problem := _strange_files(folder) or _too_large(path):
            return Earlier(problem=problem)
        events = tuple(entry.event for entry in read_journal(path))
    except InputError as exc:
        return Earlier(problem=exc.message.rstrip("."))
    except OSError as exc:
        return Earlier(problem=f"it cannot be read: {exc.strerror}")
    return _judged(events)


def _judged(events: tuple[Event, ...]) -> Earlier:
    if problem := implausible(events):
        return Earlier(problem=f"its journal tells of no run that can go on: {problem}")
    earlier = Earlier(events=events)
    ended = earlier.ended
    over = f"it is over: {ended.outcome}" if ended and ended.outcome in OVER else ""
    return replace(earlier, run_id=earlier.started.run_id, problem=over)


def move_aside(folder: Path, run_id: str) -> Path:
    """Give the folder's place free; what it holds stays beside it, under the run's id."""
    target = folder.with_name(f"{folder.name}-{run_id or 'unreadable'}")
    while os.path.lexists(target):
        target = folder.with_name(f"{folder.name}-{run_id or 'unreadable'}-{secrets.token_hex(2)}")
    try:
        with _held(folder / JOURNAL):
            folder.rename(target)
    except OSError as exc:
        raise InputError(
            f"The run folder {folder} holds an earlier run and cannot be moved aside: {exc.strerror}.",
            hint="Name another folder in run-folder, or move that one yourself.",
        ) from exc
    return target


def _strange_files(folder: Path, *, only: frozenset[str] | None = None) -> str:
    """What in the folder is no file or folder of its own, at any depth: whoever follows it ends up somewhere else, and
    whoever opens a pipe waits. With `only`, what lies elsewhere in it is nobody's business."""
    for entry in sorted(os.scandir(folder), key=lambda one: one.name):
        if only is not None and entry.name not in only:
            continue
        if entry.is_dir(follow_symlinks=False):
            if inner := _strange_files(folder / entry.name):
                return inner
        elif not entry.is_file(follow_symlinks=False):
            return f"its `{entry.name[:100]}` is a link or no file"
    return ""


def _too_large(path: Path) -> str:
    """A journal larger than a run writes, measured before it is in memory."""
    if path.stat().st_size > LARGEST_JOURNAL:
        return f"its {JOURNAL} is larger than any run writes"
    longest = current = 0
    with path.open("rb") as file:
        while piece := file.read(1024 * 1024):
            first, *more = piece.split(b"\n")
            longest = max(longest, current + len(first))
            current = len(more[-1]) if more else current + len(first)
    return f"its {JOURNAL} has a line longer than any run writes" if max(longest, current) > LONGEST_LINE else ""


@contextmanager
def _held(journal: Path) -> Iterator[None]:
    """Hold the folder's journal, if it is a file, so that no run that is at work in it loses its place."""
    try:
        fd = os.open(journal, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        yield
        return
    try:
        hold_alone(fd, journal)
        yield
    finally:
        os.close(fd)
