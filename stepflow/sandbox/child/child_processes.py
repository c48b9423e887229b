"""Starts the supervisor's child processes with their limits, waits for them, and ends all that they started."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import selectors
import signal
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .enter_sandbox import OomScore, die_with_parent

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .enter_sandbox import SandboxConfig

    #: Takes the next piece of what a process writes.
    Sink = Callable[[bytes], object]

_PROC = "/proc"
_PAUSE = 0.005
_SHORT_WAITS, _SHORT_WAIT = 20, 0.001
_CATCHES = 500
#: Names of processes hold no line breaks here, so only the kernel begins a line.
_STATUS = re.compile(
    rb"^State:\t(\w).*?^PPid:\t(\d+)\n.*?^Uid:\t([\d\t]+)\nGid:\t(\d+).*?^Threads:\t(\d+)\n", re.DOTALL | re.MULTILINE
)
_PIECE = 65536
#: Seconds after which the conditions are looked at again where no signal arrives.
_BEAT = 1.0
_REAPED_AT_ONCE = 1000


@dataclass(frozen=True, kw_only=True)
class Process:
    """One process of the process table, by its status; `uids` are its real, effective, saved and file system user."""

    pid: int
    parent: int
    state: str
    threads: int
    uids: tuple[int, ...]
    gid: int

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


def kill_group(gid: int, *, timeout: float = 20.0) -> bool:
    """Kill every process of a group that only they have, wherever it hangs in the tree; says whether none is left.

    For tools whose supervisor is gone: a process may hide its user from /proc, but not its group from its status.
    """

    def look() -> tuple[set[int], bool]:
        # One that ended while we looked may have started the next.
        processes, complete = process_table()
        return {process.pid for process in processes if process.gid == gid and not process.dead}, complete

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
                state, parent, uids, gid, threads = status.groups()
                processes.append(
                    Process(
                        pid=int(name),
                        parent=int(parent),
                        state=state.decode(),
                        threads=int(threads),
                        uids=tuple(map(int, uids.split())),
                        gid=int(gid),
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


class ParentGone(Exception):
    """The pipe to the parent is closed."""


class ChildProcesses:
    """Starts children and knows when they end. `scoped`: no signal of ours reaches anything that is not below us."""

    def __init__(self, config: SandboxConfig, *, request_fd: int, oom_score: OomScore, scoped: bool) -> None:
        self._request_fd = request_fd
        self._config = config
        self._oom_score = oom_score
        self._scoped = scoped
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._workers: set[int] = set()
        # A second user that only the supervisor has: what it starts drops to the tools' user and cannot signal it.
        self._user = os.geteuid() if os.getuid() != os.geteuid() else None
        # RLIMIT_NPROC counts the threads that the user runs already, as far as they can be seen from here.
        running = sum(process.threads for process in process_table()[0] if process.uids[0] == os.geteuid())
        self._allowed_processes = running + config.processes
        self._wake, wake_end = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(wake_end, False)
        signal.set_wakeup_fd(wake_end, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _wake_selector)

    def start(
        self,
        argv: Sequence[str],
        *,
        stdin: int = subprocess.DEVNULL,
        stdout: int,
        stderr: int,
        pass_fds: tuple[int, ...] = (),
        extra_env: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start a process in a session of its own, by default in the repository root; raises OSError or ValueError when
        that cannot be done."""
        if not argv:
            raise ValueError("no program is named")
        with self._oom_score.first_for_children():
            child = subprocess.Popen(  # noqa: S603 - running what it is given is the sandbox's purpose
                list(argv),
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                cwd=cwd,
                pass_fds=pass_fds,
                env={**os.environ, **(extra_env or {})},
                user=self._user,
                umask=0o022,
                start_new_session=True,
                preexec_fn=lambda: self._limit(self._allowed_processes),  # noqa: PLW1509 - this program has one thread
            )
        self._children[child.pid] = child
        return child

    def fork(self, life: Callable[[], None]) -> int:
        """Fork a worker that does `life` under our limits; gives its id. It never returns, so that no error of ours
        makes a second supervisor of it.
        """
        with self._oom_score.first_for_children():
            pid = os.fork()
        if pid:
            self._workers.add(pid)
            return pid
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            self._oom_score.let_go()
            self._limit(resource.getrlimit(resource.RLIMIT_NPROC)[1])
            life()
        finally:
            os._exit(0)

    def kill(self, worker: int) -> None:
        """End a worker, if it still lives; its id is nobody else's until it is reaped."""
        _signal({worker} & self._workers, signal.SIGKILL)

    def _limit(self, allowed_processes: int) -> None:
        """Put the limits on the calling process, which is a new child, and tie its life to the supervisor's."""
        if "life" not in self._config.disabled_layers:
            die_with_parent(signal.SIGKILL)
        if "limits" not in self._config.disabled_layers:
            _lower(resource.RLIMIT_NPROC, allowed_processes)
            _lower(resource.RLIMIT_FSIZE, self._config.file_bytes)
            _lower(resource.RLIMIT_NOFILE, self._config.open_files)
            _lower(resource.RLIMIT_CORE, 0)

    def reap(self) -> bool:
        """Reap everything that has ended, orphans too.

        True when no child is left: below a subreaper there is no descendant then either, whatever /proc shows.
        """
        for child in list(self._children.values()):
            if child.poll() is not None:
                del self._children[child.pid]
        if not hasattr(os, "waitid"):
            return True
        try:
            # Bounded, for processes may end as fast as they are reaped, and whoever waits has a deadline.
            for _ in range(_REAPED_AT_ONCE):
                if not (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)):
                    break
                if ended.si_pid in self._children:
                    self._children.pop(ended.si_pid).poll()
                else:
                    self._workers.discard(ended.si_pid)
                    os.waitpid(ended.si_pid, 0)
        except ChildProcessError:
            return True
        return False

    def end(self) -> tuple[int, ...]:
        """Kill every descendant (without the layer `life` only process groups); gives the ids of what would not die."""
        # Each child leads the process group of its own number.
        _signal({*(-pid for pid in self._children), *self._workers}, signal.SIGKILL)
        if "life" in self._config.disabled_layers:
            self._workers.clear()
            return ()
        if self._scoped:
            # All at once, so that none can have started another one meanwhile. Landlock bounds it to our descendants.
            _signal({-1}, signal.SIGKILL)
        # What was killed is usually gone at once, and then the process table need not be read.
        for _ in range(_SHORT_WAITS):
            if self.reap():
                return ()
            time.sleep(_SHORT_WAIT)
        return kill_descendants(os.getpid(), reap=self.reap)

    def pump(self, sinks: Mapping[int, Sink], *, until: Callable[[], bool] | None = None, deadline: float) -> bool:
        """Read the descriptors into their sinks until `until()` holds, or without one until all are at their end.

        False when the deadline comes first. Raises `ParentGone` when the request pipe is closed meanwhile.
        """
        with selectors.PollSelector() as selector:
            selector.register(self._wake, selectors.EVENT_READ)
            selector.register(self._request_fd, selectors.EVENT_READ)
            for fd, sink in sinks.items():
                selector.register(fd, selectors.EVENT_READ, sink)
            open_sinks = len(sinks)
            while True:
                self.reap()
                if until() if until else not open_sinks:
                    return True
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                for key, _ in selector.select(min(left, _BEAT)):
                    open_sinks -= self._take(selector, key)

    def _take(self, selector: selectors.BaseSelector, key: selectors.SelectorKey) -> int:
        """Read once; 1 when a sink's descriptor has come to its end."""
        if key.fd == self._request_fd:
            # The parent sends one request at a time, so during one there is nothing to read but its end.
            raise ParentGone
        if key.fd == self._wake:
            _drain(self._wake)
            return 0
        data = os.read(key.fd, _PIECE)
        if not data:
            selector.unregister(key.fd)
            return 1
        key.data(data)
        return 0


def _lower(which: int, value: int) -> None:
    """Lower a limit for good; one that is already lower stays."""
    hard = resource.getrlimit(which)[1]
    bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(which, (bound, bound))


def _drain(fd: int) -> None:
    with contextlib.suppress(BlockingIOError):
        while len(os.read(fd, _PIECE)) == _PIECE:
            pass


def _wake_selector(_number: int, _frame: object) -> None:
    """Having a handler makes the signal wake the selector."""
