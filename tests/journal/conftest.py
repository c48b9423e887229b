"""A clock that ticks one second per look."""

from __future__ import annotations

import pytest

from tests.fakes import StillClock


@pytest.fixture
def clock() -> StillClock:
    return StillClock(time=1_700_000_000.0, tick=1.0)
