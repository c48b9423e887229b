"""The supervisor's children: started with their limits, reaped, waited for, and ended together.

Takes: an argument list, or descriptors to read from. Gives: running processes, and what they write to sinks.
May touch: processes below this one; the request pipe, only to notice that the parent is gone.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import selectors
import signal
import subprocess
import time
from typing import TYPE_CHECKING, Protocol

from .enter_sandbox import Limits, OomScore, die_with_parent
from .processes import kill_descendants, tasks_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_PIECE = 65536
#: The answer to "how long at most until the conditions are looked at again" where no signal arrives.
_BEAT = 1.0
_REAPED_AT_ONCE = 1000
#: Seconds in which what was killed is usually gone.
_MOMENT = 0.05


class ParentGone(Exception):
    """The pipe to the parent is closed."""


class Sink(Protocol):
    """Takes what a process writes."""

    def feed(self, data: bytes) -> None:
        """Take the next piece."""
        ...


class Family:
    """Starts children and knows when they end. `scoped`: no signal of ours reaches anything that is not below us."""

    def __init__(
        self,
        *,
        request_fd: int,
        limits: Limits,
        oom_score: OomScore,
        without: frozenset[str] = frozenset(),
        scoped: bool = False,
    ) -> None:
        self._request_fd = request_fd
        self._limits = limits
        self._oom_score = oom_score
        self._without = without
        self._scoped = scoped
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._workers: set[int] = set()
        # A second user that only the supervisor has: what it starts drops to the tools' user and cannot signal it.
        self._user = os.geteuid() if os.getuid() != os.geteuid() else None
        self._wake, wake_end = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(wake_end, False)
        signal.set_wakeup_fd(wake_end, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _take_note)

    def start(
        self,
        argv: Sequence[str],
        *,
        stdin: int = subprocess.DEVNULL,
        stdout: int,
        stderr: int,
        pass_fds: tuple[int, ...] = (),
        extra_env: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start a process in a session of its own; raises OSError or ValueError when that cannot be done."""
        if not argv:
            raise ValueError("no program is named")
        allowed = self._allowed_processes()
        with self._oom_score.first_for_children():
            child = subprocess.Popen(  # noqa: S603 - running what it is told is the toolbox's purpose
                list(argv),
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                pass_fds=pass_fds,
                env={**os.environ, **(extra_env or {})},
                user=self._user,
                umask=0o022,
                start_new_session=True,
                preexec_fn=lambda: self.limit_child(allowed),  # noqa: PLW1509 - this program has one thread
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
            self.limit_child(resource.getrlimit(resource.RLIMIT_NPROC)[1])
            life()
        finally:
            os._exit(0)

    def has(self, worker: int) -> bool:
        """Whether the worker lives, as far as `reap` has seen."""
        return worker in self._workers

    def kill(self, worker: int) -> None:
        """End a worker, if it still lives; its id is nobody else's until it is reaped."""
        if worker in self._workers:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(worker, signal.SIGKILL)

    def limit_child(self, allowed_processes: int) -> None:
        """Put the limits on the calling process, which is a fresh child, and tie its life to the supervisor's."""
        if "life" not in self._without:
            die_with_parent(signal.SIGKILL)
        if "limits" not in self._without:
            _limit_self(self._limits, allowed_processes)

    def reap(self) -> bool:
        """Take note of everything that has ended, orphans too.

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
        for pid in self._children:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
        for pid in self._workers:
            self.kill(pid)
        if "life" in self._without:
            self._workers.clear()
            return ()
        if self._scoped:
            # All at once, so that none can have started another one meanwhile. Landlock bounds it to our descendants.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(-1, signal.SIGKILL)
            if self._all_gone():
                return ()
        return kill_descendants(os.getpid(), reap=self.reap)

    def _all_gone(self) -> bool:
        """Whether no child is left a moment after all were killed; it spares looking at the whole process table."""
        deadline = time.monotonic() + _MOMENT
        while not self.reap():
            if (left := deadline - time.monotonic()) <= 0:
                return False
            select.select([self._wake], [], [], left)
            _drain(self._wake)
        return True

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
        key.data.feed(data)
        return 0

    def _allowed_processes(self) -> int:
        return tasks_of(os.geteuid()) + self._limits.processes


def _limit_self(limits: Limits, allowed_processes: int) -> None:
    _lower(resource.RLIMIT_NPROC, allowed_processes)
    _lower(resource.RLIMIT_FSIZE, limits.file_bytes)
    _lower(resource.RLIMIT_NOFILE, limits.open_files)
    _lower(resource.RLIMIT_CORE, 0)


def _lower(which: int, value: int) -> None:
    """Lower a limit for good; one that is already lower stays."""
    hard = resource.getrlimit(which)[1]
    bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(which, (bound, bound))


def _drain(fd: int) -> None:
    with contextlib.suppress(BlockingIOError):
        while len(os.read(fd, _PIECE)) == _PIECE:
            pass


def _take_note(_number: int, _frame: object) -> None:
    """Having a handler makes the signal wake the selector."""
