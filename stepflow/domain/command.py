"""A process that runs in the toolbox on the engine's behalf.

Takes: nothing. Gives: the request and the result of a validator or a command step (flow.md §4.5, §8.3).
May touch: nothing.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class CommandRequest:
    """Run `argv` in the repository root, without a shell of its own. `timeout` in seconds. One that `checks` meets HOME
    and TMPDIR as `setup` left them."""

    argv: tuple[str, ...]
    timeout: float
    checks: bool = False


@dataclass(frozen=True, kw_only=True)
class CommandResult:
    """How a process ended. `exit_code` is −1 when it timed out or could not be started (`error` says which).

    The streams hold at most 1 MiB each, head and tail kept. `seconds` is its duration. `restored` names what was not as
    `setup` left it before a command that checks.
    """

    exit_code: int
    stdout: str = ""
    stderr: str = ""
    timed_out: bool = False
    started: bool = True
    error: str = ""
    seconds: float = 0.0
    restored: tuple[str, ...] = ()
