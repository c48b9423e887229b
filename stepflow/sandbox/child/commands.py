"""Runs commands to their end, and keeps the model's shell: output is bounded, and what is left over is killed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import shlex
import signal
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .paths import Refusal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .child_processes import ChildProcesses, Sink

#: Reserved for the marker, so that text and marker together stay within the limit.
_MARKER_BYTES = 128
#: Bytes of a line that is kept whole or not at all.
_LONG_LINE = 4096
#: Between two lines, two words, and two names or values; the characters of keys and tokens are none of them.
_BREAKS = (re.compile(rb"\n"), re.compile(rb"\s"), re.compile(rb"[^\w.~+/=%\x80-\xff-]"))
STREAM_LIMIT = 1024 * 1024
_DRAIN_SECONDS = 2.0
OUTPUT_LIMIT = 100 * 1024
#: What lines that may name a failure have in them, and how much of them is kept: in all, and around the word.
_FAILURE_WORD = re.compile(rb"fail|error|panic|exception|not ok", re.IGNORECASE)
_FAILURES_LIMIT = 64 * 1024
_FAILURE_LINE = 500
_PIECE = 65536
_WANTED_PIPE = 1024 * 1024


class HeadTail:
    """At most `limit` bytes of a stream: the first half of the limit and the last. It is cut between lines, or where a
    line is too long for that, between words if it has any, so that no half of a secret stays."""

    def __init__(self, limit: int) -> None:
        self.half = max((limit - _MARKER_BYTES) // 2, 1)
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0

    def feed(self, data: bytes) -> None:
        """Take the next piece."""
        self._total += len(data)
        missing = max(self.half - len(self._head), 0)
        self._head += data[:missing]
        self._tail += data[missing:]
        if len(self._tail) > 2 * self.half:
            del self._tail[: -self.half]

    @property
    def dropped(self) -> range:
        """Where in the stream the bytes were that were dropped."""
        start, end = len(self._head), max(self._total - self.half, len(self._head))
        if start == end:
            return range(start, end)
        # Of the tail, `half` bytes are the newest that there are.
        newest = max(len(self._tail) - self.half, 0)
        near = min(self.half, _LONG_LINE) - 1
        return range(start - _after_last_break(self._head[-near:]), end + _to_break(self._tail[newest : newest + near]))

    @property
    def left_out(self) -> int:
        """How many bytes were dropped."""
        return len(self.dropped)

    def text(self, between: bytes = b"") -> str:
        """Head and tail as text, `between` where bytes were dropped; bytes that are no UTF-8 are replaced."""
        dropped = self.dropped
        if not dropped:
            return _decode(self._head + self._tail)
        head, tail = self._head[: dropped.start], self._tail[len(self._tail) - self._total + dropped.stop :]
        line_break = "" if head.endswith(b"\n") else "\n"
        mark = f"{line_break}[… {len(dropped)} bytes left out here …]\n"
        return f"{_decode(head)}{mark}{_decode(between)}{_decode(tail)}"


def _to_break(data: bytes | bytearray) -> int:
    """How many bytes stand before the first place between two lines, or else two words; 0 where there is none."""
    found = (pattern.search(data) for pattern in _BREAKS)
    return next((match.end() for match in found if match), 0)


def _after_last_break(data: bytes | bytearray) -> int:
    """How many stand behind the last such place."""
    return max(_to_break(data[::-1]) - 1, 0)


class Interleaved:
    """The lines of several streams in the order in which they are read: the first half of `limit` bytes, the last, and
    of the lines between them the first that may name a failure."""

    def __init__(self, limit: int) -> None:
        self._ends = HeadTail(limit)
        self._unfinished: dict[str, bytes] = {}
        self._failures: list[tuple[int, bytes]] = []
        self._failure_bytes = 0
        self._position = 0

    def feed(self, stream: str, data: bytes) -> None:
        """Take the next piece of a stream. What follows its last line break waits for the rest of the line."""
        data = self._unfinished.pop(stream, b"") + data
        end = data.rfind(b"\n") + 1 or (len(data) if len(data) > _PIECE else 0)
        if end < len(data):
            self._unfinished[stream] = data[end:]
        self._take(data[:end])

    def text(self) -> str:
        """All that is kept."""
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


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a process ended: `exit_code` as a shell would say it, −1 when it timed out or did not start."""

    exit_code: int = -1
    stdout: str = ""
    stderr: str = ""
    timed_out: bool = False
    started: bool = True
    error: str = ""
    seconds: float = 0.0
    combined: str = ""


def run_command(
    children: ChildProcesses,
    argv: Sequence[str],
    timeout: float,
    *,
    alone: bool = True,
    stdin: int = subprocess.DEVNULL,
    stdout: Sink | None = None,
    extra_env: Mapping[str, str] | None = None,
    cwd: str | None = None,
) -> Ended:
    """Run `argv`. With `alone`, whatever else the toolbox has running is killed first and whatever is left after it.

    A `stdout` sink takes the stream instead of the result.
    """
    if alone:
        children.end()
    out, out_end = os.pipe()
    err, err_end = os.pipe()
    try:
        child = children.start(argv, stdin=stdin, stdout=out_end, stderr=err_end, extra_env=extra_env, cwd=cwd)
    except (OSError, ValueError) as exc:
        _close(out, err)
        reason = getattr(exc, "strerror", None) or str(exc)
        return Ended(started=False, error=f"`{argv[0] if argv else ''}` could not be started: {reason}")
    finally:
        _close(out_end, err_end)
    output, errors, combined = HeadTail(STREAM_LIMIT), HeadTail(STREAM_LIMIT), Interleaved(2 * STREAM_LIMIT)

    def take_output(data: bytes) -> None:
        output.feed(data)
        combined.feed("stdout", data)

    def take_errors(data: bytes) -> None:
        errors.feed(data)
        combined.feed("stderr", data)

    sinks: dict[int, Sink] = {out: stdout or take_output, err: take_errors}
    left: tuple[int, ...] = ()
    try:
        begun = time.monotonic()
        in_time = children.pump(sinks, until=lambda: child.returncode is not None, deadline=begun + timeout)
        seconds = time.monotonic() - begun
        if alone:
            left = children.end()
        elif child.returncode is None:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        children.pump(sinks, deadline=time.monotonic() + _DRAIN_SECONDS)
    finally:
        _close(out, err)
    return Ended(
        exit_code=shell_exit_code(child.returncode) if in_time else -1,
        stdout=output.text(),
        stderr=errors.text(),
        timed_out=not in_time,
        error=_explain(child.returncode, timeout, in_time=in_time, left=left),
        seconds=seconds,
        combined=combined.text(),
    )


def shell_exit_code(returncode: int | None) -> int:
    """A process that a signal ended gets the code that shells give it: 128 and the signal's number."""
    if returncode is None:
        return -1
    return returncode if returncode >= 0 else 128 - returncode


def _explain(returncode: int | None, timeout: float, *, in_time: bool, left: tuple[int, ...]) -> str:
    parts = []
    if not in_time:
        parts.append(f"timed out after {timeout:g} s; it and everything it had started were killed")
    elif returncode is not None and returncode < 0:
        parts.append(f"ended by signal {-returncode}")
    if left:
        parts.append(f"still alive although killed: {', '.join(map(str, left))}")
    return "; ".join(parts)


def _close(*fds: int) -> None:
    for fd in fds:
        os.close(fd)


class _Status:
    """Waits for the line with which the shell reports the exit code of one command."""

    def __init__(self, nonce: str) -> None:
        self._start = nonce.encode() + b" "
        self._seen = b""
        self.code: int | None = None

    def feed(self, data: bytes) -> None:
        self._seen = (self._seen + data)[-_PIECE:]
        for line in self._seen.split(b"\n")[:-1]:
            if line.startswith(self._start) and line[len(self._start) :].isdigit():
                self.code = int(line[len(self._start) :])


class Shell:
    """A running bash and the three pipes to it."""

    def __init__(self, children: ChildProcesses, cwd: str) -> None:
        self._children = children
        script, self._script = os.pipe()
        self._output, output = os.pipe()
        self._report, report = os.pipe()
        self._report_end = report
        self._pipe_size = _widen(self._script)
        try:
            # bash reads its script from a pipe byte by byte, so a command can never swallow the next one.
            self._bash = children.start(
                ["bash", "--noprofile", "--norc"],
                stdin=script,
                stdout=output,
                stderr=output,
                pass_fds=(report,),
                cwd=cwd,
            )
        except OSError as exc:
            _close(self._script, self._output, self._report)
            raise Refusal(f"bash could not be started: {exc.strerror}") from exc
        finally:
            _close(script, output, report)

    def run(self, command: str, timeout: float) -> tuple[str, int | None]:
        """Run one command; gives its output and exit code, None when it did not come to an end. The shell is of no use
        any more when `alive` is false afterwards.
        """
        nonce = secrets.token_hex(16)
        self._write(self._wrap(command, nonce))
        status, output = _Status(nonce), HeadTail(OUTPUT_LIMIT)
        in_time = self._children.pump(
            {self._output: output.feed, self._report: status.feed},
            until=lambda: status.code is not None or not self.alive,
            deadline=time.monotonic() + timeout,
        )
        if not in_time:
            self._children.end()
        self._read_rest(output)
        return self._result(output.text(), status.code, timeout, in_time=in_time)

    @property
    def alive(self) -> bool:
        """False once bash has ended."""
        return self._bash.returncode is None

    def close(self) -> None:
        """Let go of the pipes; ending the processes is the supervisor's part."""
        _close(self._script, self._output, self._report)

    def _wrap(self, command: str, nonce: str) -> bytes:
        fd = self._report_end
        return (
            f"builtin eval {shlex.quote(command)} </dev/null {fd}>&-\nbuiltin printf '%s %d\\n' {nonce} \"$?\" >&{fd}\n"
        ).encode("utf-8", "surrogateescape")

    def _write(self, script: bytes) -> None:
        """The pipe is empty before each command, so what fits into it never blocks."""
        if b"\0" in script:
            raise Refusal("the command holds a NUL character")
        size, limit = len(script), self._pipe_size
        if size > limit:
            raise Refusal(f"the command has {size} bytes, more than {limit}; write long content with the write tool")
        with contextlib.suppress(BrokenPipeError):
            os.write(self._script, script)

    def _read_rest(self, output: HeadTail) -> None:
        """What was written before the status line is in the pipe by now, and a pipe holds no more than one piece."""
        os.set_blocking(self._output, False)
        with contextlib.suppress(BlockingIOError):
            output.feed(os.read(self._output, _PIECE))
        os.set_blocking(self._output, True)

    def _result(self, text: str, code: int | None, timeout: float, *, in_time: bool) -> tuple[str, int | None]:
        restart = "the next call gets a fresh shell where the first one started"
        note = ""
        if not in_time:
            code = None
            killed = "the command and everything this step had started were killed"
            note = f"timed out after {timeout:g} s: {killed}; {restart}"
        elif code is None:
            code = shell_exit_code(self._bash.returncode)
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
        return _PIECE
    with contextlib.suppress(OSError):
        fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, _WANTED_PIPE)
    return fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ)
