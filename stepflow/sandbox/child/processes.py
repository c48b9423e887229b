"""The tree of processes below one process: who is in it, and how to end it all (security.md "life", case 26).

Takes: a process id. Gives: its descendants, or their end. Both sides use this module.
May touch: /proc, and by signal only descendants of the given process.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_PROC = "/proc"
_PAUSE = 0.005
_CATCHES = 500
#: Fifty numbers and a name of at most 64 bytes.
_LINE = 4096


@dataclass(frozen=True, kw_only=True)
class Process:
    """One line of the process table."""

    pid: int
    parent: int
    state: str
    threads: int
    uid: int

    @property
    def dead(self) -> bool:
        """True for what only waits to be reaped. One whose first thread has ended and whose others run looks alike."""
        return self.state in "ZX" and self.threads <= 1


def kill_descendants(root: int, *, reap: Callable[[], bool], patience: float = 5.0) -> tuple[int, ...]:
    """Kill everything below `root` and wait until nothing is left; gives what is still alive after `patience` seconds.

    All are stopped first: a stopped process cannot fork, so a fork bomb runs out of processes that could go on.
    `reap` takes note of what has ended and tells whether `root` has no child any more, as far as it can know.
    """
    deadline = time.monotonic() + patience
    stopped: set[int] = set()
    while True:
        living = {process.pid for process in descendants(root) if not process.dead}
        if not living and (reap() or _catch_children(root, reap)):
            return ()
        if time.monotonic() > deadline:
            return tuple(sorted(living or {root}))
        if fresh := living - stopped:
            _signal(fresh, signal.SIGSTOP)
            stopped |= fresh
            continue
        _signal(living, signal.SIGKILL)
        reap()
        time.sleep(_PAUSE)


def kill_group(gid: int, *, patience: float = 2.0) -> bool:
    """Kill every process of a group that only they have, wherever it hangs in the tree; tells whether none is left.

    For tools whose supervisor is gone: a process may hide its user from /proc, but not its group from its status.
    """
    deadline = time.monotonic() + patience
    stopped: set[int] = set()
    while time.monotonic() < deadline:
        living, sure = _members(gid)
        if not living and sure:
            return True
        fresh = living - stopped
        _signal(fresh or living, signal.SIGSTOP if fresh else signal.SIGKILL)
        stopped |= fresh
        time.sleep(_PAUSE)
    return False


def descendants(root: int) -> tuple[Process, ...]:
    """Every process below `root`, which must be a subreaper for daemons to be among them."""
    children: dict[int, list[Process]] = {}
    for process in process_table():
        children.setdefault(process.parent, []).append(process)
    found: list[Process] = []
    waiting = [root]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += [process.pid for process in below]
    return tuple(found)


def process_table(uid: int | None = None) -> Iterator[Process]:
    """All processes that can be seen, or those of one user; none where there is no /proc."""
    try:
        names = os.listdir(_PROC)
    except OSError:
        return
    for name in names:
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                owner = os.stat(f"{_PROC}/{name}").st_uid
                if uid is None or owner == uid:
                    yield _read(name, owner)


def tasks_of(uid: int) -> int:
    """How many threads the user runs: what RLIMIT_NPROC counts, as far as it can be seen from here."""
    return sum(process.threads for process in process_table(uid))


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


def _members(gid: int) -> tuple[set[int], bool]:
    """The living processes of a group, and whether no other may have been missed: one that ended while we looked may
    have started the next.
    """
    found: set[int] = set()
    sure = True
    for name in filter(str.isdigit, os.listdir(_PROC)):
        try:
            with open(f"{_PROC}/{name}/status", encoding="utf-8", errors="replace") as file:
                status = dict(line.partition(":")[::2] for line in file)
        except OSError:
            sure = False
            continue
        dead = status["State"].split()[0] in "ZX" and int(status["Threads"]) <= 1
        if int(status["Gid"].split()[0]) == gid and not dead:
            found.add(int(name))
    return found, sure


def _read(name: str, uid: int) -> Process:
    # By descriptor: there may be hundreds, and a file object asks the kernel nine times for each.
    fd = os.open(f"{_PROC}/{name}/stat", os.O_RDONLY | os.O_CLOEXEC)
    try:
        # The command's name stands in parentheses and may itself hold some, so the fields begin after the last one.
        fields = os.read(fd, _LINE).rpartition(b")")[2].split()
    finally:
        os.close(fd)
    return Process(
        pid=int(name),
        parent=int(fields[1]),
        state=fields[0].decode(),
        threads=int(fields[17]),
        uid=uid,
    )


def _signal(pids: set[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
