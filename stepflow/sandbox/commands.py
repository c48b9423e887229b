"""Programs that the launcher starts: a command, the model's shell, and an MCP server; and their bounded output, the
head and the tail of a stream, or the lines of two streams in the order written."""

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

_DRAIN_SECONDS = 2.0
_WANTED_PIPE = 1024 * 1024
_CODE = re.compile(rb"(?P<code>[0-9]{1,3}) (?P<moved>[01])")
#: The descriptors on which the shell reports, and which keeps its output from what a command does to the others.
_REPORT, _KEPT_OUTPUT = 3, 4
#: Bytes of a server's standard error that are kept: far more than a message shows, since what is cut in two cannot be
#: masked.
_LAST_BYTES = 64 * 1024
_MOST_PIECES = 64
#: Bytes reserved for the marker, so that text and marker together stay within the limit.
_MARKER_BYTES = 128
#: Lines up to this many bytes are kept or dropped as a whole.
_LONG_LINE = 4096
#: Breaks between lines, between words, and between names or values. Characters of keys and tokens are not breaks.
_BREAKS = (re.compile(rb"\n"), re.compile(rb"\s"), re.compile(rb"[^\w.~+/=%\x80-\xff-]"))
STREAM_LIMIT = 1024 * 1024
OUTPUT_LIMIT = 100 * 1024
#: Words in lines that may name a failure, and the number of bytes to keep: in total, and on each side of the word.
_FAILURE_WORD = re.compile(rb"fail|error|panic|exception|not ok", re.IGNORECASE)
_FAILURES_LIMIT = 64 * 1024
_FAILURE_LINE = 500


class HeadTail:
    """At most `limit` bytes of a stream, half from its start and half from its end. Cuts fall between lines or, in a
    very long line, between words if possible, so that no part of a secret remains."""

    def __init__(self, limit: int) -> None:
        self.half = max((limit - _MARKER_BYTES) // 2, 1)
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0

    def feed(self, data: bytes) -> None:
        """Add the next piece."""
        self._total += len(data)
        missing = max(self.half - len(self._head), 0)
        self._head += data[:missing]
        self._tail += data[missing:]
        if len(self._tail) > 2 * self.half:
            del self._tail[: -self.half]

    @property
    def dropped(self) -> range:
        """Return the range of bytes in the stream that were dropped."""
        start, end = len(self._head), max(self._total - self.half, len(self._head))
        if start == end:
            return range(start, end)
        # The last `half` bytes of the tail are the newest bytes of the stream.
        newest = max(len(self._tail) - self.half, 0)
        near = min(self.half, _LONG_LINE) - 1
        return range(start - _after_last_break(self._head[-near:]), end + _to_break(self._tail[newest : newest + near]))

    @property
    def left_out(self) -> int:
        """Return the number of bytes that were dropped."""
        return len(self.dropped)

    def text(self, between: bytes = b"") -> str:
        """Return head and tail as text, with `between` in place of the dropped bytes. Invalid UTF-8 is replaced."""
        dropped = self.dropped
        if not dropped:
            return _decode(self._head + self._tail)
        head, tail = self._head[: dropped.start], self._tail[len(self._tail) - self._total + dropped.stop :]
        line_break = "" if head.endswith(b"\n") else "\n"
        mark = f"{line_break}[… {len(dropped)} bytes left out here …]\n"
        return f"{_decode(head)}{mark}{_decode(between)}{_decode(tail)}"


def _to_break(data: bytes | bytearray) -> int:
    """Return the number of bytes up to the first break between lines, or else words, or else values; 0 without a
    break."""
    found = (pattern.search(data) for pattern in _BREAKS)
    return next((match.end() for match in found if match), 0)


def _after_last_break(data: bytes | bytearray) -> int:
    """Return the number of bytes after the last such break."""
    return max(_to_break(data[::-1]) - 1, 0)


class Interleaved:
    """The lines of several streams in the order they are read. Keeps the first and the last half of `limit` bytes and,
    of the lines between, the first that may name a failure."""

    def __init__(self, limit: int) -> None:
        self._ends = HeadTail(limit)
        self._unfinished: dict[str, bytes] = {}
        self._failures: list[tuple[int, bytes]] = []
        self._failure_bytes = 0
        self._position = 0

    def feed(self, stream: str, data: bytes) -> None:
        """Add the next piece of a stream. An unfinished line is held until the rest of it arrives."""
        data = self._unfinished.pop(stream, b"") + data
        end = data.rfind(b"\n") + 1 or (len(data) if len(data) > PIECE else 0)
        if end < len(data):
            self._unfinished[stream] = data[end:]
        self._take(data[:end])

    def text(self) -> str:
        """Return everything that was kept."""
        for rest in self._unfinished.values():
            self._take(rest + b"\n")
        self._unfinished.clear()
        dropped = self._ends.dropped
        return self._ends.text(b"".join(line for at, line in self._failures if at in dropped))

    def _take(self, data: bytes) -> None:
        start = 0
        for match in _FAILURE_WORD.finditer(data) if self._failure_bytes < _FAILURES_LIMIT else ():
            if match.start() < start:
                continue
            begin = data.rfind(b"\n", 0, match.start()) + 1
            start = data.find(b"\n", match.end()) + 1 or len(data)
            if self._position + start > self._ends.half:
                before, after = data[begin : match.start()], data[match.end() : start]
                if len(before) > _FAILURE_LINE:
                    before = before[-_FAILURE_LINE:][_to_break(before[-_FAILURE_LINE:]) :]
                if len(after) > _FAILURE_LINE:
                    after = after[: _FAILURE_LINE - _after_last_break(after[:_FAILURE_LINE])]
                line = before + match[0] + after
                self._failures.append((self._position + begin, line.rstrip(b"\n") + b"\n"))
                self._failure_bytes += len(line)
        self._ends.feed(data)
        self._position += len(data)


def _decode(data: bytes | bytearray) -> str:
    return data.decode("utf-8", "replace")


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
        #: Whether the command has left the shell's output elsewhere.
        self.moved = False

    def feed(self, data: bytes) -> None:
        self._seen = (self._seen + data)[-PIECE:]
        for line in self._seen.split(b"\n")[:-1]:
            if line.startswith(self._start) and (match := _CODE.fullmatch(line, len(self._start))):
                self.code, self.moved = int(match["code"]), match["moved"] == b"1"


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
            descriptors = (script, output, output, report, output)
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
        return self._result(output.text(), status, timeout, in_time=in_time)

    @property
    def alive(self) -> bool:
        """False once bash has ended."""
        return self._launcher.status_of(self._bash) is None

    def close(self) -> None:
        """Let go of the pipes; ending the processes is the launcher's part."""
        self._ending.close()

    def _wrap(self, command: str, nonce: str) -> bytes:
        report, kept = _REPORT, _KEPT_OUTPUT
        script = (
            f"builtin eval {shlex.quote(command)} </dev/null {report}>&- {kept}>&-\n"
            f"builtin printf '%s %d ' {nonce} \"$?\" >&{report}\n"
            # What `exec` does to the shell's output outlasts its command. A trap may do it again.
            f"[[ /dev/fd/1 -ef /dev/fd/{kept} && /dev/fd/2 -ef /dev/fd/{kept} ]] && builtin echo 0 >&{report} ||"
            f" {{ builtin trap - DEBUG; exec >&{kept} 2>&{kept}; builtin echo 1 >&{report}; }}\n"
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

    def _result(self, text: str, status: _Status, timeout: float, *, in_time: bool) -> tuple[str, int | None]:
        code = status.code
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
        if status.moved:
            moved = (
                "the command redirected the output of the shell itself; what the next command writes comes here again"
            )
            note = "; ".join(filter(None, (note, moved)))
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
