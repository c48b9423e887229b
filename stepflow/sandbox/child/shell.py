"""The bash tool: one shell per step, whose folder and variables stay from call to call.

Takes: a command and a timeout. Gives: its output, its exit code, and a word on how it ended.
May touch: processes; a timeout kills everything the step has started.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shlex
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .command import shell_exit_code
from .output import HeadTail

if TYPE_CHECKING:
    from .family import Family

OUTPUT_LIMIT = 100 * 1024
_PIECE = 65536
_WANTED_PIPE = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class Said:
    """What one call gave; `exit_code` is None when the command did not come to an end."""

    text: str
    exit_code: int | None

    @property
    def failed(self) -> bool:
        """True for anything but exit code 0."""
        return self.exit_code != 0


class ShellRefusal(Exception):
    """The command cannot be given to the shell; the message says why."""


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

    def __init__(self, family: Family) -> None:
        self._family = family
        script, self._script = os.pipe()
        self._output, output = os.pipe()
        self._report, report = os.pipe()
        self._report_end = report
        self._room = _widen(self._script)
        try:
            # bash reads its script from a pipe byte by byte, so a command can never swallow the next one.
            self._bash = family.start(
                ["bash", "--noprofile", "--norc"], stdin=script, stdout=output, stderr=output, pass_fds=(report,)
            )
        except OSError as exc:
            self._close(self._script, self._output, self._report)
            raise ShellRefusal(f"bash could not be started: {exc.strerror}") from exc
        finally:
            self._close(script, output, report)

    def run(self, command: str, timeout: float) -> Said:
        """Run one command; the shell is of no use any more when `alive` is false afterwards."""
        nonce = secrets.token_hex(16)
        self._write(self._wrap(command, nonce))
        status, output = _Status(nonce), HeadTail(OUTPUT_LIMIT)
        in_time = self._family.pump(
            {self._output: output, self._report: status},
            until=lambda: status.code is not None or not self.alive,
            deadline=time.monotonic() + timeout,
        )
        if not in_time:
            self._family.end()
        self._take_rest(output)
        return self._said(output.text(), status.code, timeout, in_time=in_time)

    @property
    def alive(self) -> bool:
        """False once bash has ended."""
        return self._bash.returncode is None

    def close(self) -> None:
        """Let go of the pipes; ending the processes is the family's part."""
        self._close(self._script, self._output, self._report)

    def _wrap(self, command: str, nonce: str) -> bytes:
        fd = self._report_end
        return (
            f"builtin eval {shlex.quote(command)} </dev/null {fd}>&-\nbuiltin printf '%s %d\\n' {nonce} \"$?\" >&{fd}\n"
        ).encode("utf-8", "surrogateescape")

    def _write(self, script: bytes) -> None:
        """The pipe is empty before each command, so what fits into it never blocks."""
        if b"\0" in script:
            raise ShellRefusal("the command holds a NUL character")
        if len(script) > self._room:
            raise ShellRefusal(
                f"the command has {len(script)} bytes, more than {self._room}; write long content with the write tool"
            )
        with contextlib.suppress(BrokenPipeError):
            os.write(self._script, script)

    def _take_rest(self, output: HeadTail) -> None:
        """What was written before the status line is in the pipe by now, and a pipe holds no more than one piece."""
        os.set_blocking(self._output, False)
        with contextlib.suppress(BlockingIOError):
            output.feed(os.read(self._output, _PIECE))
        os.set_blocking(self._output, True)

    def _said(self, text: str, code: int | None, timeout: float, *, in_time: bool) -> Said:
        if not in_time:
            note = (
                f"timed out after {timeout:g} s: the command and everything this step had started were killed; "
                "the next call gets a fresh shell in the repository root"
            )
            return Said(text=_with_note(text, note), exit_code=None)
        if code is not None:
            return Said(text=_with_note(text, f"exit code {code}") if code else text, exit_code=code)
        code = shell_exit_code(self._bash.returncode)
        note = f"the shell ended with exit code {code}; the next call gets a fresh shell in the repository root"
        return Said(text=_with_note(text, note), exit_code=code)

    @staticmethod
    def _close(*fds: int) -> None:
        for fd in fds:
            os.close(fd)


def _with_note(text: str, note: str) -> str:
    gap = "" if not text or text.endswith("\n") else "\n"
    return f"{text}{gap}[{note}]"


def _widen(fd: int) -> int:
    """Make room for long commands; gives how many bytes the pipe takes at once."""
    if not hasattr(fcntl, "F_SETPIPE_SZ"):
        return _PIECE
    with contextlib.suppress(OSError):
        fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, _WANTED_PIPE)
    return fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ)
