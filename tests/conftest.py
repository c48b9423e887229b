"""What a test has to show to people is printed at the end of the run, also by workers.

Properties are tried on examples that are the same everywhere; with STEPFLOW_EXPLORE on new ones, as CI does weekly.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from hypothesis import settings

# The same examples on every machine, however busy it is. `print_blob` says how to try a failing new one again.
settings.register_profile(
    "stepflow", derandomize=not os.environ.get("STEPFLOW_EXPLORE"), database=None, deadline=None, print_blob=True
)
settings.load_profile("stepflow")

SHOWN = "shown"


@pytest.fixture
def show(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """Print one line of a table when all tests have run; the lines are sorted."""
    return lambda line: record_property(SHOWN, line)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [report for word in ("passed", "failed") for report in terminalreporter.getreports(word)]
    lines = {value for report in reports for name, value in report.user_properties if name == SHOWN}
    for line in sorted(map(str, lines)):
        terminalreporter.write_line(line)
