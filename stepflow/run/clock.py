"""Real time: every wait of a run ends at its deadline, or at a termination signal."""

from __future__ import annotations

import math
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import FrameType
from typing import TYPE_CHECKING

from stepflow.domain.checkout import CommandRequest, CommandResult
from stepflow.domain.conversation import ModelFault, ModelRequest, ModelTurn, ToolResult, ToolSpec, ToolUse
from stepflow.errors import RunCancelled
from stepflow.ports import Clock, Commands, Model, Tools

if TYPE_CHECKING:
    from sys import UnraisableHookArgs


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


#: Seconds beyond the deadline in which a tool may still come to an end; `engine/conversation.py` bounds the model's.
GRACE = 30.0
#: The same for validators, command steps and the set-up: a limit does not interrupt a completion, but the
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

    def begin_step(self, tools: tuple[ToolSpec, ...]) -> None:
        """Start what the step's tools need."""
        self.tools.begin_step(tools)

    def run_tool(self, use: ToolUse) -> ToolResult:
        """Run one call. The other tools have short timeouts of their own."""
        given = use.input.get("timeout_ms") or self.usual * 1000
        left = self.deadline.left(GRACE) * 1000
        # An input that is no number is for the tool itself to refuse.
        if use.name == "bash" and isinstance(given, int | float) and given > left:
            use = replace(use, input={**use.input, "timeout_ms": int(left)})
        return self.tools.run_tool(use)

    def end_step(self) -> None:
        """Kill what is left of the step."""
        self.tools.end_step()


@dataclass(frozen=True, kw_only=True)
class TimelyCommands:
    """Commands that have the time that is left."""

    commands: Commands
    deadline: Deadline

    def run_command(self, request: CommandRequest) -> CommandResult:
        """Run one process."""
        timeout = min(request.timeout, self.deadline.left(COMPLETION_GRACE))
        return self.commands.run_command(replace(request, timeout=timeout))


SIGNALS = (signal.SIGINT, signal.SIGTERM)
RETRY_SECONDS = 0.02
_IMPORT_SYSTEM = "<frozen importlib._bootstrap>"


def _is_importing(frame: FrameType | None) -> bool:
    """Whether a module is being loaded. An exception there could leave the lock of all imports taken, and a thread that
    imports would wait for it forever; Python waits for that thread before it ends."""
    while frame:
        if frame.f_code.co_filename == _IMPORT_SYSTEM:
            return True
        frame = frame.f_back
    return False


class Cancellation:
    """Turns a signal into `RunCancelled`, wherever the main thread is; only once, so that the end can be written.

    `early` are the numbers of signals that came while nobody listened yet. `for_good`: the process ends soon after the
    context, and no signal may change its exit code on the way there.
    """

    def __init__(self, early: Sequence[int] = (), *, for_good: bool = False) -> None:
        self._held = False
        self._signal: str | None = None
        self._early, self._for_good = early, for_good

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Listen until the block ends, then give the signals back to whoever had them."""
        before = {number: signal.signal(number, self._on_signal) for number in (*SIGNALS, signal.SIGALRM)}
        unraisable = sys.unraisablehook
        sys.unraisablehook = lambda lost: None if self._strikes_again(lost) else unraisable(lost)
        try:
            for number in self._early:
                self._on_signal(number, None)
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            sys.unraisablehook = unraisable
            for number, handler in before.items():
                # While the interpreter ends it gives handlers of Python up, but not this one.
                signal.signal(number, signal.SIG_IGN if self._for_good else handler)

    def hold(self) -> None:
        """From here on a signal only counts where `check` asks: what has begun is never left half done. Held before
        the context is opened, signals are so from its first moment on."""
        self._held = True

    @contextmanager
    def obeyed(self) -> Iterator[None]:
        """In a held section: inside the block a signal interrupts at once again, one that came before it too. Such
        blocks nest: the outer one goes on as it was, unless a signal came."""
        held, self._held = self._held, False
        try:
            self.check()
            yield
        finally:
            self._held = held or self._signal is not None

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """A wait for something outside, which a signal ends. A library may wrap what the signal raises or swallow it:
        whatever came of the wait, the run is cancelled."""
        try:
            with self.obeyed():
                yield
        except Exception:
            self.check()
            raise
        self.check()

    def check(self) -> None:
        """Raise what came while signals were held."""
        if self._signal is not None:
            raise RunCancelled(self._signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if number != signal.SIGALRM:
            self._signal = f"the run received {signal.Signals(number).name}"
        if self._signal is None or self._held:
            return
        if _is_importing(frame):
            signal.setitimer(signal.ITIMER_REAL, RETRY_SECONDS)
            return
        self._held = True
        raise RunCancelled(self._signal)

    def _strikes_again(self, lost: UnraisableHookArgs) -> bool:
        """Python drops what is raised inside a finalizer, where a signal may strike too: soon after, raise it again."""
        if not isinstance(lost.exc_value, RunCancelled):
            return False
        self._held = False
        signal.setitimer(signal.ITIMER_REAL, RETRY_SECONDS)
        return True


@dataclass(frozen=True)
class InterruptibleModel:
    """Implements the port `Model`."""

    model: Model
    cancellation: Cancellation

    def ask(self, request: ModelRequest) -> ModelTurn | ModelFault:
        """Ask once; raises `RunCancelled` when a signal comes."""
        with self.cancellation.waiting():
            return self.model.ask(request)


@dataclass(frozen=True)
class InterruptibleClock:
    """Implements the port `Clock`."""

    clock: Clock
    cancellation: Cancellation

    def now(self) -> float:
        """Seconds since the epoch."""
        return self.clock.now()

    def sleep(self, seconds: float) -> None:
        """Wait; raises `RunCancelled` when a signal comes."""
        with self.cancellation.waiting():
            self.clock.sleep(seconds)


def clock_of_services(clock: Clock, cancellation: Cancellation) -> InterruptibleClock:
    """For what is outside of a run: GitHub is waited for also where a scripted model is not."""
    return InterruptibleClock(SystemClock() if isinstance(clock, RehearsalClock) else clock, cancellation)
