"""Runs one process to its end or its timeout, and nothing of it stays (flow.md §8.3, security.md case 26).

Takes: an argument list and a timeout in seconds. Gives: exit code, both streams, how it ended.
May touch: processes; every other descendant of the supervisor is killed before and after.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .output import HeadTail

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Mapping, Sequence

    from .family import Family, Sink

STREAM_LIMIT = 1024 * 1024
_DRAIN_SECONDS = 2.0


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a process ended: `exit_code` as a shell would say it, −1 when it timed out or did not start."""

    exit_code: int
    stdout: str
    stderr: str
    timed_out: bool
    started: bool
    error: str
    seconds: float


def run_command(
    family: Family,
    argv: Sequence[str],
    timeout: float,
    *,
    alone: bool = True,
    stdout: Sink | None = None,
    extra_env: Mapping[str, str] | None = None,
) -> Ended:
    """Run `argv`. With `alone`, whatever else the toolbox has running is killed first and whatever is left after it.

    A `stdout` sink takes the stream instead of the result.
    """
    if alone:
        family.end()
    out, out_end = os.pipe()
    err, err_end = os.pipe()
    try:
        child = family.start(argv, stdout=out_end, stderr=err_end, extra_env=extra_env)
    except (OSError, ValueError) as exc:
        return _not_started(argv, exc, out, err)
    finally:
        _close(out_end, err_end)
    kept = HeadTail(STREAM_LIMIT), HeadTail(STREAM_LIMIT)
    try:
        in_time, left, seconds = _see_through(
            family, child, {out: stdout or kept[0], err: kept[1]}, timeout, alone=alone
        )
    finally:
        _close(out, err)
    return Ended(
        exit_code=shell_exit_code(child.returncode) if in_time else -1,
        stdout=kept[0].text(),
        stderr=kept[1].text(),
        timed_out=not in_time,
        started=True,
        error=_explain(child.returncode, timeout, in_time=in_time, left=left),
        seconds=seconds,
    )


def _see_through(
    family: Family, child: subprocess.Popen[bytes], sinks: Mapping[int, Sink], timeout: float, *, alone: bool
) -> tuple[bool, tuple[int, ...], float]:
    """Whether the child ended in time, what could not be killed, and the seconds it took."""
    begun = time.monotonic()
    in_time = family.pump(sinks, until=lambda: child.returncode is not None, deadline=begun + timeout)
    seconds = time.monotonic() - begun
    left = _end(family, child, alone=alone)
    family.pump(sinks, deadline=time.monotonic() + _DRAIN_SECONDS)
    return in_time, left, seconds


def _end(family: Family, child: subprocess.Popen[bytes], *, alone: bool) -> tuple[int, ...]:
    if alone:
        return family.end()
    if child.returncode is None:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    return ()


def _not_started(argv: Sequence[str], exc: Exception, *pipes: int) -> Ended:
    _close(*pipes)
    reason = exc.strerror or str(exc) if isinstance(exc, OSError) else str(exc)
    name = argv[0] if argv else ""
    return Ended(
        exit_code=-1,
        stdout="",
        stderr="",
        timed_out=False,
        started=False,
        error=f"`{name}` could not be started: {reason}",
        seconds=0.0,
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
