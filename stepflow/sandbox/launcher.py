"""The parent's side of the launcher: starts programs in the sandbox, passes on what they print, and ends them."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import selectors
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from stepflow.domain.json import JsonObject
from stepflow.errors import IsolationError
from stepflow.sandbox.child.enter_sandbox import SandboxConfig, SandboxFacts
from stepflow.sandbox.child.processes import kill_descendants, kill_user

#: Takes the next piece of what a program writes.
Sink = Callable[[bytes], object]

#: Finds the launcher by its place, so that nothing else of the installation is imported.
_PROGRAM = (
    f"import sys; sys.path.append({str(Path(__file__).parent)!r}); from child.launcher import main; sys.exit(main())"
)
PIECE = 65536
_START_TIMEOUT = 30.0
#: Nothing that the launcher or an operation answers comes near.
_MOST_BYTES = 64 * 1024 * 1024
#: Seconds that the launcher may take to end by itself after its channel is closed: on a busy machine it may wait that
#: long for a processor. One that owes an answer has had its time.
_FAREWELL = 20.0
_OVERDUE_FAREWELL = 1.0
_LAST_WORDS = 2000
_LOOK_EVERY = 5.0
_REACH_HINT = "Set TMPDIR to a folder that the tools' user may enter."


class CannotStart(Exception):
    """A program cannot be started; the message says why."""


@dataclass
class Waits:
    """What happens while a program is waited for: a signal may interrupt `waiting`, and `look` is called every few
    seconds; the time that it takes is no waiting."""

    waiting: Callable[[], AbstractContextManager[object]] = contextlib.nullcontext
    look: Callable[[], None] | None = None


class Launcher:
    """A running launcher in the sandbox. Everything but `close` is done `during` something."""

    def __init__(
        self, config: SandboxConfig, environment: Mapping[str, str], *, grace: float, program: str = _PROGRAM
    ) -> None:
        """Raises `IsolationError`, and leaves nothing running then."""
        self._config, self._grace = config, grace
        self._killed_all = self._overdue = False
        self._statuses: dict[int, int] = {}
        self._replies: list[dict[str, Any]] = []
        self._received = bytearray()
        self._broken = self._doing = ""
        self.waits = Waits()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        # A socket, since it also carries descriptors.
        self._channel, theirs = socket.socketpair()
        try:
            with theirs:
                self._process = subprocess.Popen(  # noqa: S603 - our own program, by its absolute path
                    [sys.executable, "-I", "-S", "-c", program],
                    cwd=config.checkout,
                    env=dict(environment),
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=self._errors,
                    start_new_session=True,
                    pass_fds=() if config.broker is None else (config.broker,),
                )
        except OSError as exc:
            self._errors.close()
            self._channel.close()
            raise IsolationError(
                f"The toolbox could not be started in {config.checkout}: {exc.strerror}.",
                hint="Check the folder and its rights.",
            ) from exc
        try:
            with self.during("start"):
                answer = self._request("enter", body=asdict(config), timeout=_START_TIMEOUT)
            if "problem" in answer:
                raise IsolationError(f"The toolbox cannot start: {answer['problem']}.", hint=_REACH_HINT)
            self.facts = SandboxFacts(**answer)
        except BaseException:
            self.close()
            raise

    @property
    def ended_all(self) -> bool:
        """Whether nothing of what was started is alive: the launcher said so at its end, or we looked after it."""
        return self._process.returncode == 0 or self._killed_all

    @contextlib.contextmanager
    def during(self, what: str) -> Iterator[None]:
        """One thing that is done here, for messages. A cancellation that interrupts it leaves a launcher that can only
        be closed, as what fails in the launcher itself does."""
        if self._broken:
            raise IsolationError(self._broken, hint="Start the run again.")
        self._doing = what
        try:
            with self.waits.waiting():
                yield
        except BaseException as exc:
            if not isinstance(exc, Exception):
                self._broken = f"The toolbox was interrupted during `{what}` and cannot be used any more."
            raise

    def open_pipe(self, ours: contextlib.ExitStack, theirs: contextlib.ExitStack) -> tuple[int, int]:
        """Return a pipe that a program writes to: our end and the program's, each to be closed with a stack. Like a
        pipe of its own the program may open it by a name, such as `/dev/stdout`."""
        pipe = _open_pipe(ours, theirs)
        if self._config.uid is not None:
            os.fchown(pipe[0], self._config.uid, -1)
        return pipe

    def start(
        self,
        argv: Sequence[str],
        descriptors: Sequence[int],
        *,
        environment: Mapping[str, str] | None = None,
        folder: str | None = None,
    ) -> int:
        """Start a program with these descriptors, from its standard input on, in the workspace or the folder. The
        variables join those of every program. Gives its process id. Raises `CannotStart`."""
        if not argv:
            raise CannotStart("`` could not be started: no program is named")
        request: JsonObject = {
            "argv": list(argv),
            "folder": folder or self._config.checkout,
            "environment": dict(environment or {}),
        }
        try:
            return self._start(request, descriptors)
        except CannotStart as exc:
            raise CannotStart(f"`{argv[0]}` could not be started: {exc}") from exc

    def status_of(self, pid: int) -> int | None:
        """Return how a program ended: its exit code, or less than 0 by a signal; None while it runs."""
        return self._statuses.get(pid)

    def ask(
        self,
        what: str,
        request: JsonObject,
        *,
        timeout: float,
        files: Sequence[IO[bytes]] = (),
        sink: Sink | None = None,
    ) -> dict[str, Any]:
        """Let an operation of `child/operations.py` answer, in a process of its own. It may use the files, and what it
        streams goes to the sink. The answer's `problem` says why there is none."""
        came = bytearray()

        def take(data: bytes) -> None:
            came.extend(data)
            if len(came) > _MOST_BYTES:
                raise self._failure(f"The answer to `{what}` has more than {_MOST_BYTES} bytes.")

        with contextlib.ExitStack() as opened, contextlib.ExitStack() as theirs:
            null = theirs.enter_context(Path(os.devnull).open("r+b", buffering=0)).fileno()
            answer, answer_end = _open_pipe(opened, theirs)
            output, output_end = _open_pipe(opened, theirs) if sink else (-1, null)
            descriptors = (null, output_end, self._errors.fileno(), answer_end, *(file.fileno() for file in files))
            try:
                pid = self._start({"ask": what, **request}, descriptors)
            except CannotStart as exc:
                return {"problem": str(exc)}
            theirs.close()
            sinks: dict[int, Sink] = {answer: take, output: sink} if sink else {answer: take}
            with self.killed_on_error(pid):
                if not self.pump(sinks, deadline=time.monotonic() + timeout):
                    self.kill(pid)
                    return {"problem": f"took longer than {timeout:g} s and was stopped"}
        try:
            return dict(json.loads(came))
        except (ValueError, TypeError, RecursionError):
            return {"problem": "ended without an answer: it hit one of its limits or was killed"}

    @contextlib.contextmanager
    def killed_on_error(self, pid: int) -> Iterator[None]:
        """Let the program not outlive what goes wrong in the block."""
        try:
            yield
        except Exception:
            self.kill(pid)
            raise

    def kill(self, pid: int) -> None:
        """End a program with its process group, if it still runs."""
        self._request(f"kill {pid}", timeout=self._grace)

    def end(self) -> tuple[int, ...]:
        """Kill everything that was started; gives the ids of processes that would not die."""
        return tuple(self._request("end", timeout=self._grace)["alive"])

    def pump(self, sinks: Mapping[int, Sink], *, until: Callable[[], bool] | None = None, deadline: float) -> bool:
        """Read the descriptors into their sinks until `until()` holds, or without one until all are at their end; false
        when the deadline comes first."""
        with selectors.PollSelector() as selector:
            selector.register(self._channel, selectors.EVENT_READ)
            for fd, sink in sinks.items():
                selector.register(fd, selectors.EVENT_READ, sink)
            open_sinks = len(sinks)
            look, looked, look_at = self.waits.look, 0.0, time.monotonic() + _LOOK_EVERY
            while not (until() if until else not open_sinks):
                # The time left is looked at first: one that sends without end is always ready.
                now = time.monotonic()
                if (left := deadline + looked - now) <= 0:
                    return False
                if look is not None and now >= look_at:
                    look()
                    look_at = time.monotonic() + _LOOK_EVERY
                    looked += time.monotonic() - now
                ready = selector.select(left if look is None else max(min(left, look_at - time.monotonic()), 0))
                for key, _ in ready:
                    if key.fileobj is self._channel:
                        self._receive()
                    elif (data := read_now(key.fd)) == b"":
                        selector.unregister(key.fd)
                        open_sinks -= 1
                    elif data:
                        key.data(data)
        return True

    def interrupt(self) -> None:
        """Let the launcher end everything that it has started, and itself. May be called from any thread: the one that
        waits for the launcher gets an `IsolationError`."""
        with contextlib.suppress(OSError):
            self._channel.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End the launcher and everything that it has started. May be called again."""
        self._broken = "The toolbox is closed."
        self._channel.close()
        try:
            self._wait_or_kill()
            if self._process.returncode != 0 and self._config.uid is not None:
                self._killed_all = kill_user(self._config.uid)
        finally:
            self._errors.close()

    def _start(self, request: JsonObject, descriptors: Sequence[int]) -> int:
        answer = self._request("start", descriptors, body=request, timeout=self._grace)
        if "problem" in answer:
            raise CannotStart(answer["problem"])
        return int(answer["pid"])

    def _request(
        self, words: str, descriptors: Sequence[int] = (), *, body: Mapping[str, object] | None = None, timeout: float
    ) -> dict[str, Any]:
        """Ask the launcher itself, and wait for its answer. One that owes an answer is not asked again."""
        if self._overdue:
            raise IsolationError(self._broken)
        with contextlib.ExitStack() as opened:
            try:
                file = opened.enter_context(sealed_memory(json.dumps(body).encode()))
                given = () if body is None else (file.fileno(), *descriptors)
                socket.send_fds(self._channel, [words.encode()], given)
            except (BrokenPipeError, ConnectionResetError):
                raise self._ended_error() from None
            except OSError as exc:
                raise self._failure(f"The toolbox cannot run `{self._doing}`: {exc.strerror}.") from exc
            if not self.pump({}, until=lambda: bool(self._replies), deadline=time.monotonic() + timeout):
                self._overdue = True
                raise self._failure(f"The toolbox gave no complete answer to `{self._doing}` in time.")
        return self._replies.pop()

    def _receive(self) -> None:
        """Take what the launcher tells: how a program ended, or an answer."""
        try:
            data = self._channel.recv(PIECE)
        except ConnectionResetError:
            data = b""
        if not data:
            raise self._ended_error()
        *lines, rest = (self._received + data).split(b"\n")
        self._received = bytearray(rest)
        for message in map(json.loads, lines):
            if "pid" in message:
                # Of the one before with the same id.
                self._statuses.pop(message["pid"], None)
            if "ended" in message:
                self._statuses[message["ended"]] = message["status"]
            else:
                self._replies.append(message)

    def _ended_error(self) -> IsolationError:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_FAREWELL)
        status = f"exit status {self._process.returncode}" if self._process.returncode is not None else "no status"
        self._errors.seek(max(self._errors.seek(0, os.SEEK_END) - _LAST_WORDS, 0))
        words = self._errors.read().decode("utf-8", "replace").strip()
        last_words = f" Its last words: {words}" if words else ""
        return self._failure(f"The toolbox ended during `{self._doing}` ({status}).{last_words}")

    def _failure(self, message: str) -> IsolationError:
        self._broken = message
        return IsolationError(message, hint="Nothing more is run. Look at what the tools did last, then run it again.")

    def _wait_or_kill(self) -> None:
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_OVERDUE_FAREWELL if self._overdue else _FAREWELL)
        finally:
            if self._process.poll() is None:
                # It is its descendants' subreaper for as long as it lives, so they go first.
                kill_descendants(self._process.pid, reap=lambda: True, timeout=0.5)
                self._process.kill()
                self._process.wait()


def open_memory() -> IO[bytes]:
    """Return a file without a name that needs no room on a disk, where the system has such files: tools may fill its
    disks."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("stepflow", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING), "w+b")
    return tempfile.TemporaryFile()


def sealed_memory(data: bytes) -> IO[bytes]:
    """Such a file with these bytes, to be read from its beginning; who is given it cannot write to it."""
    file = open_memory()
    file.write(data)
    file.seek(0)
    if hasattr(fcntl, "F_ADD_SEALS") and hasattr(os, "memfd_create"):
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK)
    return file


def read_now(descriptor: int) -> bytes | None:
    """Return what is there to read, empty at its end; None for nothing, such as where a program was quicker that has
    opened the pipe as well."""
    try:
        return os.read(descriptor, PIECE)
    except BlockingIOError:
        return None


def _open_pipe(ours: contextlib.ExitStack, theirs: contextlib.ExitStack) -> tuple[int, int]:
    end, other_end = os.pipe()
    ours.callback(os.close, end)
    theirs.callback(os.close, other_end)
    os.set_blocking(end, False)
    return end, other_end
