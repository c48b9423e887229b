"""Real time: every wait of a run ends at its deadline, or at a termination signal."""

from __future__ import annotations

import math
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import FrameType
from typing import TYPE_CHECKING

from stepflow.domain.activity import activity
from stepflow.domain.checkout import CommandRequest, CommandResult
from stepflow.domain.conversation import ModelFault, ModelRequest, ModelTurn, ToolCall, ToolSpec, ToolUse
from stepflow.errors import RunCancelled
from stepflow.ports import Clock, Commands, Model, Tools
from stepflow.sandbox.egress.name_lookups import interruptible_lookups

if TYPE_CHECKING:
    from sys import UnraisableHookArgs


class SystemClock:
    """The machine's time when the clock was made, plus the seconds since. Setting the machine's clock therefore moves
    neither deadlines nor events, and no duration is negative."""

    def __init__(self) -> None:
        self._began = time.time() - time.monotonic()

    def now(self) -> float:
        """Return seconds since the epoch."""
        return self._began + time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


class RehearsalClock(SystemClock):
    """The machine's time for a scripted model, which never needs waiting."""

    def sleep(self, seconds: float) -> None:
        """Return at once."""


#: Seconds after the deadline in which a tool may still finish; `engine/conversation.py` limits the model's.
GRACE = 30.0
#: The same for validators, command steps and the setup: a limit does not interrupt a completion, but the job's timeout
#: would.
COMPLETION_GRACE = 300.0


@dataclass(frozen=True, kw_only=True)
class Deadline:
    """The end of a run's time: `at` is in seconds since the epoch, None without a limit."""

    clock: Clock
    at: float | None

    def seconds_left(self, grace: float) -> float:
        """Return the seconds until the deadline plus the grace."""
        return math.inf if self.at is None else max(0.0, self.at - self.clock.now()) + grace


@dataclass(frozen=True, kw_only=True)
class TimelyTools:
    """Tools whose `bash` calls end at the deadline."""

    tools: Tools
    deadline: Deadline
    #: Seconds for a call that names no timeout.
    default_timeout: float

    def begin_step(self, tools: tuple[ToolSpec, ...]) -> None:
        """Start what the step's tools need."""
        self.tools.begin_step(tools)

    def run_tool(self, use: ToolUse) -> ToolCall:
        """Run one call. The other tools have short timeouts of their own."""
        timeout = use.input.get("timeout_ms") or self.default_timeout * 1000
        most = self.deadline.seconds_left(GRACE) * 1000
        # The tool itself refuses an input that is not a number.
        if use.name != "bash" or not isinstance(timeout, int | float) or timeout <= most:
            return self.tools.run_tool(use)
        call = self.tools.run_tool(replace(use, input={**use.input, "timeout_ms": int(most)}))
        # The journal and a recording keep what the model asked for.
        return replace(call, input=use.input)

    def end_step(self) -> None:
        """Kill the remaining processes of the step."""
        self.tools.end_step()


@dataclass(frozen=True, kw_only=True)
class TimelyCommands:
    """Commands that end at the deadline. Their output is redacted at once, so that cutting it later cannot leave a part
    of a secret."""

    commands: Commands
    deadline: Deadline
    redact: Callable[[str], str]

    def run_command(self, request: CommandRequest) -> CommandResult:
        """Run one process."""
        timeout = min(request.timeout, self.deadline.seconds_left(COMPLETION_GRACE))
        result = self.commands.run_command(replace(request, timeout=timeout))
        stdout, stderr, combined = map(self.redact, (result.stdout, result.stderr, result.combined))
        return replace(result, stdout=stdout, stderr=stderr, combined=combined)


SIGNALS = (signal.SIGINT, signal.SIGTERM)
RETRY_SECONDS = 0.02
_IMPORT_SYSTEM = "<frozen importlib._bootstrap>"


def _is_importing(frame: FrameType | None) -> bool:
    """Return whether a module is being imported. An exception there could leave the import lock taken: another thread
    would then wait for it forever, and Python waits for that thread before it exits."""
    while frame:
        if frame.f_code.co_filename == _IMPORT_SYSTEM:
            return True
        frame = frame.f_back
    return False


class Cancellation:
    """Raises `RunCancelled` in the main thread when a signal comes, only once, so that the reports can be written.

    `early` are the numbers of signals that came before anything listened. With `for_good`, signals stay ignored after
    the context, so that none changes the exit code of the process, which ends soon after.
    """

    def __init__(self, early: Sequence[int] = (), *, for_good: bool = False) -> None:
        self._held = False
        self._signal: str | None = None
        self._early, self._for_good = early, for_good

    @contextmanager
    def listening(self) -> Iterator[Cancellation]:
        """Listen until the block ends, then restore the previous handlers. Yields this object."""
        before = {number: signal.signal(number, self._on_signal) for number in (*SIGNALS, signal.SIGALRM)}
        unraisable = sys.unraisablehook
        sys.unraisablehook = lambda lost: None if self._raise_again(lost) else unraisable(lost)
        try:
            for number in self._early:
                self._on_signal(number, None)
            with interruptible_lookups():
                yield self
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            sys.unraisablehook = unraisable
            for number, handler in before.items():
                # The interpreter drops Python handlers when it shuts down, but keeps SIG_IGN.
                signal.signal(number, signal.SIG_IGN if self._for_good else handler)

    def hold(self) -> None:
        """Defer signals until `check` is called or a block is `obeyed`, so that nothing stops halfway. Call it before
        the context is opened to defer them from the first moment on."""
        self._held = True

    @contextmanager
    def obeyed(self) -> Iterator[None]:
        """While signals are held: let them interrupt at once inside this block, also one that came before it. Blocks
        nest; each restores the previous state at its end, unless a signal came."""
        held, self._held = self._held, False
        try:
            self.check()
            yield
        finally:
            self._held = held or self._signal is not None

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Wait for something outside, until a signal comes. A library may wrap or swallow the exception of the signal;
        the run is canceled all the same."""
        try:
            with self.obeyed():
                yield
        except Exception:
            self.check()
            raise
        self.check()

    def check(self) -> None:
        """Raise `RunCancelled` if a signal came while signals were held."""
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

    def _raise_again(self, lost: UnraisableHookArgs) -> bool:
        """Raise the cancellation again soon if it came inside a finalizer, whose exceptions Python drops."""
        if not isinstance(lost.exc_value, RunCancelled):
            return False
        self._held = False
        signal.setitimer(signal.ITIMER_REAL, RETRY_SECONDS)
        return True


@dataclass(frozen=True)
class InterruptibleModel:
    """Implements the port `Model`. While it answers, what `meanwhile` begins goes on."""

    model: Model
    cancellation: Cancellation
    meanwhile: Callable[[], None]

    def ask(self, request: ModelRequest) -> ModelTurn | ModelFault:
        """Ask once; raises `RunCancelled` when a signal comes."""
        self.meanwhile()
        with activity("the model answers"), self.cancellation.waiting():
            return self.model.ask(request)


@dataclass(frozen=True)
class InterruptibleClock:
    """Implements the port `Clock`."""

    clock: Clock
    cancellation: Cancellation

    def now(self) -> float:
        """Return seconds since the epoch."""
        return self.clock.now()

    def sleep(self, seconds: float) -> None:
        """Wait; raises `RunCancelled` when a signal comes."""
        with self.cancellation.waiting():
            self.clock.sleep(seconds)


def clock_of_services(clock: Clock, cancellation: Cancellation) -> InterruptibleClock:
    """Return the clock for GitHub and other services: they need real waiting even if the model is scripted."""
    return InterruptibleClock(SystemClock() if isinstance(clock, RehearsalClock) else clock, cancellation)
