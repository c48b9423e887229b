"""Real time, and the deadline that every wait of a run ends at."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepflow.domain.checkout import CommandRequest, CommandResult
    from stepflow.domain.conversation import ToolResult, ToolUse
    from stepflow.ports import Clock, Commands, Tools


class SystemClock:
    """The machine's time when the clock was made, and the seconds since: somebody who sets the machine's clock moves
    neither a deadline nor an event, and no duration is negative."""

    def __init__(self) -> None:
        self._began = time.time() - time.monotonic()

    def now(self) -> float:
        """Seconds since the epoch."""
        return self._began + time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


class RehearsalClock(SystemClock):
    """The machine's time for a scripted model: there is no service to wait for, so it never waits."""

    def sleep(self, seconds: float) -> None:
        """Return at once."""


#: Seconds beyond the deadline in which a tool may still come to an end. (`flow/asking.py` bounds calls of the model.)
GRACE = 30.0
#: The same for validators, command steps and the set-up: a limit does not interrupt a completion (flow.md §10), but the
#: job's timeout would.
COMPLETION_GRACE = 300.0


@dataclass(frozen=True, kw_only=True)
class Deadline:
    """`at` is in seconds since the epoch, None when the caller has set none."""

    clock: Clock
    at: float | None

    def left(self, grace: float) -> float:
        """Seconds until the deadline, and then the grace."""
        return math.inf if self.at is None else max(0.0, self.at - self.clock.now()) + grace


@dataclass(frozen=True, kw_only=True)
class TimelyTools:
    """Tools whose `bash` has the time that is left. `usual` is the timeout, in seconds, of a call that names none."""

    tools: Tools
    deadline: Deadline
    usual: float

    def run_tool(self, use: ToolUse) -> ToolResult:
        """Run one call. The other tools have short timeouts of their own."""
        return self.tools.run_tool(self._in_time(use) if use.name == "bash" else use)

    def end_step(self) -> None:
        """Kill what is left of the step."""
        self.tools.end_step()

    def _in_time(self, use: ToolUse) -> ToolUse:
        given = use.input.get("timeout_ms") or self.usual * 1000
        left = self.deadline.left(GRACE) * 1000
        # An input that is no number is for the tool itself to refuse.
        if not isinstance(given, int | float) or given <= left:
            return use
        return replace(use, input={**use.input, "timeout_ms": int(left)})


@dataclass(frozen=True, kw_only=True)
class TimelyCommands:
    """Commands that have the time that is left."""

    commands: Commands
    deadline: Deadline

    def run_command(self, request: CommandRequest) -> CommandResult:
        """Run one process."""
        timeout = min(request.timeout, self.deadline.left(COMPLETION_GRACE))
        return self.commands.run_command(replace(request, timeout=timeout))
