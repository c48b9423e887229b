"""The rows of a preflight, counted in words."""

from __future__ import annotations

import pytest

from stepflow.domain.reports.report import CheckState, Preflight, PreflightCheck
from stepflow.report.diagnostic import preflight_lines, preflight_summary


@pytest.mark.parametrize(
    ("states", "counted"),
    [
        ((CheckState.OK, CheckState.WARNING, CheckState.UNKNOWN), "1 ok, 1 warning, 1 unknown"),
        ((CheckState.WARNING, CheckState.OK, CheckState.WARNING, CheckState.OK), "2 ok, 2 warnings"),
    ],
    ids=["one each", "two each"],
)
def test_the_rows_are_counted_in_words(states: tuple[CheckState, ...], counted: str) -> None:
    preflight = Preflight(
        agent="fixer", checks=tuple(PreflightCheck(name="a row", state=state, detail="") for state in states)
    )
    assert preflight_lines(preflight)[-1] == f"fixer: {counted}"
    assert f"\n\n{counted}\n\n" in preflight_summary(preflight)
