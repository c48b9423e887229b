"""Programs that the launcher starts: a command with its output, the model's shell, and an MCP server."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import shlex
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

from stepflow.domain.checkout import CommandResult
from stepflow.sandbox.child.paths import OperationRefused
from stepflow.sandbox.launcher import PIECE, CannotStart, Launcher, Sink, read_now
from stepflow.sandbox.output import OUTPUT_LIMIT, STREAM_LIMIT, HeadTail, Interleaved

_DRAIN_SECONDS = 2.0
_WANTED_PIPE = 1024 * 1024
_CODE = re.compile(rb"[0-9]{1,3}")
#: The descriptor on which the shell reports.
_REPORT = 3
#: Bytes of a server's standard error that are kept: far more than a message shows, since what is cut in two cannot be
#: masked.
_LAST_BYTES = 64 * 1024
_MOST_PIECES = 64


def run_command(
    launcher: Launcher,
    argv: Sequence[str],
    timeout: float,
    *,
    environment: Mapping[str, str] | None = None,
    folder: str | None = None,
) -> CommandResult:
    """Run `argv`. Whatever else runs in the sandbox is killed first, and whatever is left after it."""
    launcher.end()
    output, errors, combined = HeadTail(STREAM_LIMIT), HeadTail(STREAM_LIMIT), Interleaved(2 * STREAM_LIMIT)

    def take_output(data: bytes) -> None:
        output.feed(data)
        combined.feed("stdout", data)

    def take_errors(data: bytes) -> None:
        errors.feed(data)
        combined.feed("stderr", data)

    with contextlib.ExitStack() as opened, contextlib.ExitStack() as theirs:
        null = theirs.enter_context(Path(os.devnull).open("rb")).fileno()
        out, out_end = launcher.open_pipe(opened, theirs)
        err, err_end = launcher.open_pipe(opened, theirs)
        try:
            pid = launcher.start(argv, (null, out_end, err_end), environment=environment, folder=folder)
        except CannotStart as exc:
            return CommandResult(exit_code=-1, started=False, error=str(exc))
        theirs.close()
        sinks: dict[int, Sink] = {out: take_output, err: take_errors}
        with launcher.killed_on_error(pid):
            begun = time.monotonic()
            in_time = launcher.pump(sinks, until=lambda: launcher.status_of(pid) is not None, deadline=begun + timeout)
            seconds = time.monotonic() - begun
            status = launcher.status_of(pid)
            left = launcher.end()
            launcher.pump(sinks, deadline=time.monotonic() + _DRAIN_SECONDS)
    return CommandResult(
        exit_code=_shell_exit_code(status) if in_time else -1,
        stdout=output.text(),
        stderr=errors.text(),
        timed_out=not in_time,
        error=_explain(status, timeout, in_time=in_time, left=left),
        seconds=seconds,
        combined=combined.text(),
    )


def _shell_exit_code(status: int | None) -> int:
    """A process that a signal ended gets the code that shells give it: 128 and the signal's number."""
    if status is None:
        return -1
    return status if status >= 0 else 128 - status


def _explain(status: int | None, timeout: float, *, in_time: bool, left: tuple[int, ...]) -> str:
    parts = []
    if not in_time:
        parts.append(f"timed out after {timeout:g} s; it and everything it had started were killed")
    elif status is not None and status < 0:
        parts.append(f"ended by signal {-status}")
    if left:
        parts.append(f"still alive although killed: {', '.join(map(str, left))}")
    return "; ".join(parts)


class _Status:
    """Waits for the line with which the shell reports the exit code of one command."""

    def __init__(self, nonce: str) -> None:
        self._start = nonce.encode() + b" "
        self._seen = b""
        self.code: int | None = None

    def feed(self, data: bytes) -> None:
        self._seen = (self._seen + data)[-PIECE:]
        for line in self._seen.split(b"\n")[:-1]:
            if line.startswith(self._start) and _CODE.fullmatch(line, len(self._start)):
                self.code = int(line[len(self._start) :])


class Shell:
    """A running bash and the three pipes to it. Raises `CannotStart`."""

    def __init__(self, launcher: Launcher, folder: str) -> None:
        self._launcher = launcher
        with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
            script, self._script = os.pipe()
            theirs.callback(os.close, script)
            ours.callback(os.close, self._script)
            os.set_blocking(self._script, False)
            self._output, output = launcher.open_pipe(ours, theirs)
            self._report, report = launcher.open_pipe(ours, theirs)
            self._pipe_size = _widen(self._script)
            # bash reads its script from a pipe byte by byte, so a command can never swallow the next one.
            descriptors = (script, output, output, report)
            self._bash = launcher.start(("bash", "--noprofile", "--norc"), descriptors, folder=folder)
            self._ending = ours.pop_all()

    def run(self, command: str, timeout: float) -> tuple[str, int | None]:
        """Run one command; gives its output and exit code, None when it did not come to an end. The shell is of no use
        any more when `alive` is false afterwards.
        """
        nonce = secrets.token_hex(16)
        self._write(self._wrap(command, nonce))
        status, output = _Status(nonce), HeadTail(OUTPUT_LIMIT)
        in_time = self._launcher.pump(
            {self._output: output.feed, self._report: status.feed},
            until=lambda: status.code is not None or not self.alive,
            deadline=time.monotonic() + timeout,
        )
        if not in_time:
            self._launcher.end()
        self._read_rest(output)
        return self._result(output.text(), status.code, timeout, in_time=in_time)

    @property
    def alive(self) -> bool:
        """False once bash has ended."""
        return self._launcher.status_of(self._bash) is None

    def close(self) -> None:
        """Let go of the pipes; ending the processes is the launcher's part."""
        self._ending.close()

    def _wrap(self, command: str, nonce: str) -> bytes:
        fd = _REPORT
        script = (
            f"builtin eval {shlex.quote(command)} </dev/null {fd}>&-\nbuiltin printf '%s %d\\n' {nonce} \"$?\" >&{fd}\n"
        )
        try:
            return script.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            raise OperationRefused("the command contains an unpaired surrogate") from None

    def _write(self, script: bytes) -> None:
        """The pipe is empty before each command, so all fits into it, unless tools have filled it."""
        if b"\0" in script:
            raise OperationRefused("the command contains a NUL character")
        size, limit = len(script), self._pipe_size
        if size > limit:
            raise OperationRefused(
                f"the command has {size} bytes, more than {limit}; write long content with the write tool"
            )
        try:
            is_whole = os.write(self._script, script) == size
        except BlockingIOError:
            is_whole = False
        except BrokenPipeError:
            return
        if not is_whole:
            self._launcher.end()
            raise OperationRefused("the shell no longer reads commands; the next call starts a new one")

    def _read_rest(self, output: HeadTail) -> None:
        """What was written before the status line is in the pipe by now, and a pipe holds no more than one piece."""
        output.feed(read_now(self._output) or b"")

    def _result(self, text: str, code: int | None, timeout: float, *, in_time: bool) -> tuple[str, int | None]:
        restart = "the next call gets a fresh shell where the first one started"
        note = ""
        if not in_time:
            code = None
            killed = "the command and everything this step had started were killed"
            note = f"timed out after {timeout:g} s: {killed}; {restart}"
        elif code is None:
            code = _shell_exit_code(self._launcher.status_of(self._bash))
            note = f"the shell ended with exit code {code}; {restart}"
        elif code != 0:
            note = f"exit code {code}"
        if not note:
            return text, code
        gap = "" if not text or text.endswith("\n") else "\n"
        return f"{text}{gap}[{note}]", code


def _widen(fd: int) -> int:
    """Widen the pipe for long commands; gives how many bytes the pipe takes at once."""
    if not hasattr(fcntl, "F_SETPIPE_SZ"):
        return PIECE
    with contextlib.suppress(OSError):
        fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, _WANTED_PIPE)
    return fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ)


class ServerProcess:
    """A program that serves until its step ends. It reads what is sent to `stdin`, and what it writes comes from
    `stdout`. Whoever serves it calls `keep_words` whenever `stderr` is readable; else the program waits at its end."""

    def __init__(self, start: Callable[[tuple[int, int, int]], object]) -> None:
        """`start` is given the program's own ends. Raises what it raises."""
        self._words, self._keeping = b"", threading.Lock()
        with contextlib.ExitStack() as opened:
            self.stdin, stdin = map(opened.enter_context, socket.socketpair())
            self.stdout, stdout = map(opened.enter_context, socket.socketpair())
            self.stderr, stderr = os.pipe()
            opened.callback(os.close, self.stderr)
            os.set_blocking(self.stderr, False)
            with stdin, stdout, os.fdopen(stderr, "wb"):
                start((stdin.fileno(), stdout.fileno(), stderr))
            self._ending = opened.pop_all()

    def keep_words(self) -> bool:
        """Read what has come on its standard error and keep the end of it; false when no more can come."""
        with self._keeping:
            for _ in range(_MOST_PIECES):
                try:
                    piece = os.read(self.stderr, PIECE)
                except BlockingIOError:
                    return True
                if not piece:
                    return False
                self._words = (self._words + piece)[-_LAST_BYTES:]
        return True

    def last_words(self) -> str:
        """The end of its standard error."""
        self.keep_words()
        return self._words.decode("utf-8", "replace").strip()

    def close(self) -> None:
        """Let go of it; ending its processes is the sandbox's part."""
        self._ending.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
