"""Real time.

Takes: nothing. Gives: the clocks that implement the port (house.md "Facts").
May touch: the system clock.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepflow.ports import Clock
    from stepflow.run.cancel import Cancellation


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


class InterruptibleClock:
    """A run's clock for what is outside of it: a signal ends its waits even where signals are held, and GitHub is
    waited for also where a scripted model is not."""

    def __init__(self, clock: Clock, cancellation: Cancellation) -> None:
        self._clock = SystemClock() if isinstance(clock, RehearsalClock) else clock
        self._cancellation = cancellation

    def now(self) -> float:
        """Seconds since the epoch."""
        return self._clock.now()

    def sleep(self, seconds: float) -> None:
        """Wait; raises `RunCancelled` when a signal came."""
        with self._cancellation.obeyed():
            self._clock.sleep(seconds)
