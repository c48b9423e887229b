"""Looks through the process table, and ends what hangs below a process or is a user's."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

_PROC = "/proc"
_PAUSE = 0.005
_CATCHES = 500
#: Names of processes hold no line breaks here, so only the kernel begins a line.
_STATUS = re.compile(
    rb"^State:\t(\w).*?^PPid:\t(\d+)\n.*?^Uid:\t([\d\t]+)\n.*?^Threads:\t(\d+)\n", re.DOTALL | re.MULTILINE
)


@dataclass(frozen=True, kw_only=True)
class Process:
    """One process of the process table, by its status; `uids` are its real, effective, saved and file system user."""

    pid: int
    parent: int
    state: str
    threads: int
    uids: tuple[int, ...]

    @property
    def dead(self) -> bool:
        """True for what only waits to be reaped. One whose first thread has ended and whose others run looks alike."""
        return self.state in "ZX" and self.threads <= 1


def kill_descendants(root: int, *, reap: Callable[[], bool], timeout: float = 20.0) -> tuple[int, ...]:
    """Kill everything below `root` and wait until nothing is left; gives what is still alive after `timeout` seconds.

    `root` must be a subreaper for daemons to be among them. `reap` reaps what has ended and says whether `root` has no
    child any more, as far as it can know.
    """

    def look() -> tuple[set[int], bool]:
        living = _living_below(root)
        return living, not living and (reap() or _catch_children(root, reap))

    living, gone = _kill_all(look, timeout)
    return () if gone else tuple(sorted(living or {root}))


def kill_user(uid: int, *, timeout: float = 20.0) -> bool:
    """Kill every process of a user that only tools have, wherever it hangs in the tree; says whether none is left. For
    tools whose launcher is gone, by a root process, which they cannot signal."""

    def look() -> tuple[set[int], bool]:
        # One that ended while we looked may have started the next.
        processes, complete = process_table()
        return {process.pid for process in processes if uid in process.uids and not process.dead}, complete

    return _kill_all(look, timeout)[1]


def _kill_all(look: Callable[[], tuple[set[int], bool]], timeout: float) -> tuple[set[int], bool]:
    """Kill what `look` finds until it finds nothing and is sure of it; gives what it found last, and whether it is so.

    All are stopped first: a stopped process cannot fork, so a fork bomb runs out of processes that could go on.
    """
    deadline = time.monotonic() + timeout
    stopped: set[int] = set()
    while True:
        living, sure = look()
        gone = not living and sure
        if gone or time.monotonic() > deadline:
            return living, gone
        new = living - stopped
        _signal(new or living, signal.SIGSTOP if new else signal.SIGKILL)
        stopped |= new
        if not new:
            time.sleep(_PAUSE)


def _living_below(root: int) -> set[int]:
    children: dict[int, list[Process]] = {}
    for process in process_table()[0]:
        children.setdefault(process.parent, []).append(process)
    living: set[int] = set()
    waiting = [root]
    while waiting:
        below = children.get(waiting.pop(), [])
        living |= {process.pid for process in below if not process.dead}
        waiting += [process.pid for process in below]
    return living


def process_table() -> tuple[list[Process], bool]:
    """All processes that can be seen, and whether none ended meanwhile; none where there is no /proc."""
    processes: list[Process] = []
    try:
        names = [name for name in os.listdir(_PROC) if name.isdigit()]
    except OSError:
        return processes, False
    for name in names:
        with contextlib.suppress(OSError), open(f"{_PROC}/{name}/status", "rb", buffering=0) as file:
            if status := _STATUS.search(file.read()):
                state, parent, uids, threads = status.groups()
                processes.append(
                    Process(
                        pid=int(name),
                        parent=int(parent),
                        state=state.decode(),
                        threads=int(threads),
                        uids=tuple(map(int, uids.split())),
                    )
                )
    return processes, len(processes) == len(names)


def _catch_children(root: int, reap: Callable[[], bool]) -> bool:
    """Kill what the process table does not show because each starts the next and ends before it can be looked at.

    Such a process is a child of its subreaper for a moment; only who lists nothing else is quick enough to catch it.
    """
    for _ in range(_CATCHES):
        with contextlib.suppress(OSError), open(f"{_PROC}/{root}/task/{root}/children", "rb") as file:
            _signal({int(pid) for pid in file.read().split()}, signal.SIGKILL)
        if reap():
            return True
    return False


def _signal(pids: set[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
