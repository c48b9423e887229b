"""The launcher: enters the sandbox, then starts programs there and ends them as the parent asks, until their channel
closes."""

from __future__ import annotations

import fcntl
import json
import os
import resource
import selectors
import signal
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from typing import Any, NoReturn

from .enter_sandbox import CannotEnterSandbox, OomScore, SandboxConfig, die_with_parent, enter_sandbox
from .operations import answer_request, lower_limit
from .processes import kill_descendants, process_table

_CHANNEL = 0
#: A request is a word, with no more descriptors than this: the file that says the rest, and the program's own.
_WORD_BYTES, _MOST_DESCRIPTORS = 64, 16
#: Where descriptors wait until their places are free.
_OUT_OF_THE_WAY = _MOST_DESCRIPTORS
_PIECE = 65536
_REAPED_AT_ONCE = 1000
_SHORT_WAITS, _SHORT_WAIT = 20, 0.001


def main() -> int:
    """Run until the parent closes the channel: 0, when nothing is left alive then. A sandbox that cannot be entered: 1,
    after an answer that says why."""
    parent = os.getppid()
    channel = socket.socket(fileno=_CHANNEL)
    _, descriptors, _, _ = socket.recv_fds(channel, _WORD_BYTES, _MOST_DESCRIPTORS)
    if not descriptors:
        return 0
    config = SandboxConfig(**_read(descriptors[0]))
    oom_score = OomScore(wanted="limits" not in config.disabled_layers)
    try:
        facts = enter_sandbox(config, oom_score)
    except CannotEnterSandbox as exc:
        _send(channel, {"problem": str(exc)})
        return 1
    if os.getppid() != parent:
        return 0
    launcher = _Launcher(config, channel, oom_score, ends_at_once=facts.scopes_signals or config.uid is not None)
    signal.signal(signal.SIGTERM, partial(launcher.on_termination, parent))
    _send(channel, asdict(facts))
    return launcher.serve()


class _Launcher:
    """`ends_at_once`: no signal from here reaches anything that was not started here."""

    def __init__(
        self, config: SandboxConfig, channel: socket.socket, oom_score: OomScore, *, ends_at_once: bool
    ) -> None:
        self._config, self._channel, self._oom_score = config, channel, oom_score
        self._ends_at_once = ends_at_once
        self._started: set[int] = set()
        # RLIMIT_NPROC counts the threads that the user runs already, as far as they can be seen from here.
        running = sum(process.threads for process in process_table()[0] if process.uids[0] == os.geteuid())
        self._allowed_processes = running + config.processes
        self._wake, self._wake_end = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(self._wake_end, False)
        signal.set_wakeup_fd(self._wake_end, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _wake_selector)

    def serve(self) -> int:
        """Answer until the channel closes; 0 says that nothing is left alive then."""
        with selectors.PollSelector() as selector, suppress(BrokenPipeError, ConnectionResetError):
            selector.register(self._channel, selectors.EVENT_READ)
            selector.register(self._wake, selectors.EVENT_READ)
            answers = True
            while answers:
                for key, _ in selector.select():
                    if key.fd == self._wake:
                        _drain(self._wake)
                    else:
                        answers = self._answer()
                self._reap()
        return 2 if self._end() else 0

    def on_termination(self, parent: int, _number: int, _frame: object) -> None:
        """The kernel says that the parent is dead, or only that the thread of it that started us has ended."""
        if os.getppid() == parent:
            return
        self._kill_all()
        os._exit(0)

    def _answer(self) -> bool:
        """Do what one request says; false at the channel's end."""
        word, descriptors, _, _ = socket.recv_fds(self._channel, _WORD_BYTES, _MOST_DESCRIPTORS)
        if not word:
            return False
        try:
            match word.decode().split():
                case ["start"]:
                    _send(self._channel, self._start(_read(descriptors.pop(0)), descriptors))
                case ["kill", pid]:
                    # Its id is nobody else's until it is reaped.
                    if int(pid) in self._started:
                        _kill(-int(pid))
                    _send(self._channel, {})
                case _:
                    _send(self._channel, {"alive": self._end()})
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        return True

    def _start(self, request: dict[str, Any], descriptors: Sequence[int]) -> dict[str, object]:
        """Start what the request says with these descriptors, from its standard input on, in a session of its own."""
        report, report_end = os.pipe()
        with os.fdopen(report, "rb") as problems:
            try:
                with self._oom_score.first_for_children():
                    pid = os.fork()
                if pid == 0:
                    self._live(request, descriptors, report_end)
            except OSError as exc:
                return {"problem": exc.strerror}
            finally:
                os.close(report_end)
            if problem := problems.read():
                os.waitpid(pid, 0)
                return {"problem": problem.decode(errors="replace")}
        self._started.add(pid)
        return {"pid": pid}

    def _live(self, request: dict[str, Any], descriptors: Sequence[int], report: int) -> NoReturn:
        """The whole life of a new process. It never returns, so that no error of ours makes a second launcher of it."""
        status = 1
        try:
            self._become_child(request, descriptors, report)
            answer_request(self._config, request)
            status = 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
            raise
        finally:
            os._exit(status)

    def _become_child(self, request: dict[str, Any], descriptors: Sequence[int], report: int) -> None:
        """Become the program, if the request names one; why that cannot be is reported."""
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        self._oom_score.let_go()
        report = fcntl.fcntl(report, fcntl.F_DUPFD_CLOEXEC, _OUT_OF_THE_WAY)
        # What an operation has beyond the standard three is not for the programs that it starts.
        _put_in_place(descriptors, inherited=len(descriptors) if "argv" in request else 3, keep=report)
        self._limit()
        with os.fdopen(report, "wb") as problems:
            if "argv" in request:
                self._limit_files()
                for number in (signal.SIGPIPE, signal.SIGXFSZ):
                    signal.signal(number, signal.SIG_DFL)
                try:
                    os.chdir(request["folder"])
                    environment = {**os.environ, **request["environment"]}
                    os.execvpe(request["argv"][0], request["argv"], environment)  # noqa: S606 - what the launcher is for
                except (OSError, ValueError) as exc:
                    problems.write((getattr(exc, "strerror", None) or str(exc)).encode())
                    problems.flush()
                    os._exit(1)

    def _limit(self) -> None:
        """Put the limits on the calling process, and tie its life to the launcher's."""
        if "life" not in self._config.disabled_layers:
            die_with_parent(signal.SIGKILL)
        if "limits" not in self._config.disabled_layers:
            lower_limit(resource.RLIMIT_NPROC, self._allowed_processes)
            lower_limit(resource.RLIMIT_NOFILE, self._config.open_files)
            lower_limit(resource.RLIMIT_CORE, 0)

    def _limit_files(self) -> None:
        if "limits" not in self._config.disabled_layers:
            lower_limit(resource.RLIMIT_FSIZE, self._config.file_bytes)

    def _reap(self) -> bool:
        """Reap what has ended, orphans too, and tell the parent of what it had started. True when no child is left:
        below a subreaper there is no descendant then either, whatever /proc shows."""
        try:
            # Bounded, for processes may end as fast as they are reaped, and whoever waits has a deadline.
            for _ in range(_REAPED_AT_ONCE):
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    return False
                if pid in self._started:
                    self._started.remove(pid)
                    # Without a parent it goes on: what is left has to be ended.
                    with suppress(BrokenPipeError, ConnectionResetError):
                        _send(self._channel, {"ended": pid, "status": os.waitstatus_to_exitcode(status)})
            # There may be more, of which no signal tells any more.
            _wake_up(self._wake_end)
        except ChildProcessError:
            return True
        return False

    def _end(self) -> list[int]:
        """Kill every descendant (without the layer `life` only process groups); gives the ids of what would not die."""
        left = self._kill_all()
        self._reap()
        return sorted(left)

    def _kill_all(self) -> Sequence[int]:
        # Each child leads the process group of its own number.
        for pid in self._started:
            _kill(-pid)
        if "life" in self._config.disabled_layers:
            return ()
        if self._ends_at_once:
            _kill(-1)
        # What was killed is usually gone at once, and then the process table need not be read.
        for _ in range(_SHORT_WAITS):
            if self._reap():
                return ()
            time.sleep(_SHORT_WAIT)
        return kill_descendants(os.getpid(), reap=self._reap)


def _read(descriptor: int) -> dict[str, Any]:
    with os.fdopen(descriptor, "rb") as file:
        file.seek(0)
        request = json.load(file)
    assert isinstance(request, dict)  # noqa: S101 - the parent writes nothing else
    return request


def _send(channel: socket.socket, answer: dict[str, object]) -> None:
    """One line."""
    channel.sendall(json.dumps(answer).encode() + b"\n")


def _put_in_place(descriptors: Sequence[int], *, inherited: int, keep: int) -> None:
    """Let these be the descriptors from 0 on, so many of them for other programs too, and close all others but the one
    to keep."""
    waiting = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, _OUT_OF_THE_WAY) for descriptor in descriptors]
    for number, descriptor in enumerate(waiting):
        os.dup2(descriptor, number, inheritable=number < inherited)
    os.closerange(len(descriptors), keep)
    os.closerange(keep + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def _kill(target: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(target, signal.SIGKILL)


def _drain(fd: int) -> None:
    with suppress(BlockingIOError):
        while len(os.read(fd, _PIECE)) == _PIECE:
            pass


def _wake_up(fd: int) -> None:
    with suppress(BlockingIOError):
        os.write(fd, b"\0")


def _wake_selector(_number: int, _frame: object) -> None:
    """Having a handler makes the signal wake the selector."""
