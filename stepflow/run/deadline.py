"""The deadline of a run, kept by what is in flight when it passes.

Takes: the parts that take time, a clock, the deadline. Gives: the same ports.
May touch: this process's timer, during a call of the model.

The flow asks for its limits before each turn, so a call that has begun would carry the run on for as long as it takes,
and past the job's own timeout nothing is reported any more.
"""

from __future__ import annotations

import math
import signal
import threading
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Never

from stepflow.domain.conversation import ModelFault

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from stepflow.domain.command import CommandRequest, CommandResult
    from stepflow.domain.conversation import ModelRequest, ModelTurn, ToolResult, ToolUse
    from stepflow.ports import Clock, Commands, Model, Tools

#: Seconds beyond the deadline in which a tool or the model may still come to an end.
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


class _Overdue(BaseException):
    """The timer rang. Nobody between it and `TimelyModel` may take it for an error of theirs."""


@dataclass(frozen=True, kw_only=True)
class TimelyModel:
    """A model that is not waited for beyond the deadline. The flow sees a fault that passes, and asks its limits."""

    model: Model
    deadline: Deadline

    def ask(self, request: ModelRequest) -> ModelTurn | ModelFault:
        """One call."""
        left = self.deadline.left(GRACE)
        # Only a main thread has a timer; the command line and the action have nothing but that one.
        if math.isinf(left) or threading.current_thread() is not threading.main_thread():
            return self.model.ask(request)
        before = signal.getsignal(signal.SIGALRM)
        try:
            with _rings_after(left):
                return self.model.ask(request)
        except _Overdue:
            reason = "the deadline passed while the model was answering (input timeout-minutes)"
            return ModelFault(reason=reason, transient=True, retry_after=0.0)
        finally:
            signal.signal(signal.SIGALRM, before)


@contextmanager
def _rings_after(seconds: float) -> Iterator[None]:
    signal.signal(signal.SIGALRM, _ring)
    others = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *others)


def _ring(_number: int, _frame: FrameType | None) -> Never:
    raise _Overdue
