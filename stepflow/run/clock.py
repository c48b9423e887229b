"""Real time.

Takes: nothing. Gives: the two clocks that implement the port (house.md "Facts").
May touch: the system clock.
"""

from __future__ import annotations

import time


class SystemClock:
    """The machine's time."""

    def now(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


class RehearsalClock(SystemClock):
    """The machine's time for a scripted model: there is no service to wait for, so it never waits."""

    def sleep(self, seconds: float) -> None:
        """Return at once."""
