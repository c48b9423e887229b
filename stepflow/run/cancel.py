"""Termination signals, as one exception where the run waits for something (flow.md §10)."""

from __future__ import annotations

import signal
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepflow.errors import RunCancelled
from stepflow.run.clock import RehearsalClock, SystemClock

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from sys import UnraisableHookArgs
    from types import FrameType

    from stepflow.domain.conversation import ModelFault, ModelRequest, ModelTurn
    from stepflow.ports import Clock, Model

SIGNALS = (signal.SIGINT, signal.SIGTERM)
RETRY_SECONDS = 0.02


class Cancellation:
    """Turns a signal into `RunCancelled`, wherever the main thread is; only once, so that the end can be written.

    `early` are the numbers of signals that came while nobody listened yet. `for_good`: the process ends soon after the
    context, and no signal may change its exit code on the way there.
    """

    def __init__(self, early: Sequence[int] = (), *, for_good: bool = False) -> None:
        self._held = False
        self._asked: str | None = None
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
        """In a held section: inside the block a signal interrupts at once again, one that came before it too."""
        self._held = False
        try:
            self.check()
            yield
        finally:
            self._held = True

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
        if self._asked is not None:
            raise RunCancelled(self._asked)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if number != signal.SIGALRM:
            self._asked = f"the run received {signal.Signals(number).name}"
        if self._asked is not None and not self._held:
            self._held = True
            raise RunCancelled(self._asked)

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
