"""Real time.

Takes: nothing. Gives: the clocks that implement the port (house.md "Facts").
May touch: the system clock.
"""

from __future__ import annotations

import time


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
