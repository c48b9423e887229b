"""How many examples a property is tried on: few in the fast tests, many in `make whole`.

The examples are the same ones every time, but for STEPFLOW_EXPLORE (`conftest.py`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

MANY = os.environ.get("STEPFLOW_PROPERTIES", "")
#: For a test that holds a property inside itself.
MARKS = [pytest.mark.properties, pytest.mark.timeout(1800 if MANY else 120)]


def tried(few: int) -> Callable[[Any], Any]:
    """Try the property on `few` examples, or on STEPFLOW_PROPERTIES of them; marks the test for `make whole`."""
    chosen = settings(
        max_examples=int(MANY) if MANY else few,
        suppress_health_check=[HealthCheck.too_slow],
    )
    named, patient = MARKS
    return lambda test: named(patient(chosen(test)))
