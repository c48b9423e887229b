"""Runs the engine's own programs, mostly git, in the sandbox beside whatever runs there."""

from __future__ import annotations

import io
import time
from typing import IO, TYPE_CHECKING

from stepflow.errors import StepflowError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from stepflow.domain.checkout import CommandResult
    from stepflow.sandbox.box import Toolbox

#: Bytes of a program's output that are read by default.
OUTPUT_LIMIT = 64 * 1024 * 1024


class GitFailed(StepflowError):
    """git did not do what it was asked for."""


class Programs:
    """Runs programs in the sandbox with these variables, all of them together within so many seconds from `begin`."""

    def __init__(self, toolbox: Toolbox, environment: Mapping[str, str]) -> None:
        self._toolbox, self._environment = toolbox, environment
        self._seconds = self._deadline = 0.0

    def begin(self, seconds: float) -> None:
        """Count from now."""
        self._seconds, self._deadline = seconds, time.monotonic() + seconds

    def run(
        self,
        argv: tuple[str, ...],
        environment: Mapping[str, str],
        stdin: bytes | IO[bytes],
        *,
        feed: Callable[[bytes], object],
        limit: int = OUTPUT_LIMIT,
    ) -> CommandResult:
        """How it ended. Raises `StepflowError` when there is no time left."""
        result = self._toolbox.run_program(
            argv,
            environment={**self._environment, **environment},
            timeout=max(self._deadline - time.monotonic(), 0.0),
            stdin=io.BytesIO(stdin) if isinstance(stdin, bytes) else stdin,
            sink=feed,
            limit=limit,
        )
        if result.timed_out:
            raise StepflowError(f"It took longer than {self._seconds:g} s.")
        return result


class Git:
    """git in one repository."""

    def __init__(self, programs: Programs, environment: Mapping[str, str]) -> None:
        self._programs, self._environment = programs, environment

    def __call__(
        self,
        *words: str,
        stdin: bytes | IO[bytes] = b"",
        env: Mapping[str, str] | None = None,
        fine: tuple[int, ...] = (0,),
        feed: Callable[[bytes], object] | None = None,
        limit: int = OUTPUT_LIMIT,
        complaints: list[str] | None = None,
    ) -> bytes:
        """What git prints, unless `feed` takes it; `complaints` gets what it says beside that. Raises `GitFailed` for
        an exit code that is not `fine`."""
        output = bytearray()
        environment = {**self._environment, **(env or {})}
        result = self._programs.run(("git", *words), environment, stdin, feed=feed or output.extend, limit=limit)
        if result.exit_code not in fine:
            why = (result.stderr or result.error).strip()[-500:] or f"exit code {result.exit_code}"
            raise GitFailed(f"git {words[0]} failed: {why}")
        if complaints is not None:
            complaints.append(result.stderr)
        return bytes(output)
