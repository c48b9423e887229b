"""A clock that ticks one second per look."""

from __future__ import annotations

import pytest


class TickingClock:
    """Time that moves one second each time somebody looks."""

    def __init__(self) -> None:
        self.time = 1_700_000_000.0

    def now(self) -> float:
        self.time += 1
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds


@pytest.fixture
def clock() -> TickingClock:
    return TickingClock()
