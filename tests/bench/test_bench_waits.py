"""A long wait is billed as if the service forgot nothing."""

from __future__ import annotations

import pytest

from stepflow.domain.event import CacheRenewed
from tests.bench.waits import billed, run


@pytest.mark.whole
@pytest.mark.parametrize("slow_tool", [True, False])
def test_a_wait_of_six_minutes_is_billed_as_if_nothing_expired(slow_tool: bool) -> None:
    ports = run(slow_tool=slow_tool, renews=True, expires=True)
    floor = billed(run(slow_tool=slow_tool, renews=False, expires=False))
    cold = billed(run(slow_tool=slow_tool, renews=False, expires=True))
    assert ports.journal.of(CacheRenewed)
    assert billed(ports) <= 1.1 * floor
    assert billed(ports) < cold
