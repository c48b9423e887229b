"""What a test has to show to people is printed at the end of the run, also by workers.

Properties are tried on examples that are the same everywhere; with STEPFLOW_EXPLORE on new ones, as CI does weekly.
"""

from __future__ import annotations

import math
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# The same examples on every machine, however busy it is. `print_blob` says how to try a failing new one again.
settings.register_profile(
    "stepflow", derandomize=not os.environ.get("STEPFLOW_EXPLORE"), database=None, deadline=None, print_blob=True
)
settings.load_profile("stepflow")

SHOWN = "shown"


@pytest.fixture(autouse=True, scope="session")
def nothing_takes_long() -> Iterator[None]:
    """A busy machine adds no line to a log: a test that wants one says after how long."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("stepflow.run.long_activity.FIRST_LINE_AFTER", math.inf)
        yield


#: All tests of such a file are left to another target of the Makefile.
_ALL_SLOW = re.compile(
    r"^pytestmark = .*pytest\.mark\.(whole|e2e|e2e_security|browser|image_twice|local_model)\b", re.M
)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """The fast tests need not import what they then deselect: a third of the files."""
    if config.option.markexpr not in config.getini("addopts") or collection_path.suffix != ".py":
        return None
    text = collection_path.read_text(encoding="utf-8")
    return True if _ALL_SLOW.search(text) and "mark.fast" not in text else None


#: So many slow tests of a file are run for each change, beside its tables that are marked `sample`.
SLOW_OF_A_FILE = 2


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of a table marked `sample(n)`, n cases that lie far apart stay what they are; those marked `sample()` all do. The
    other cases of a fast table are `whole`, those of a slow one `weekly`, as are most slow tests of a file."""
    groups = defaultdict(list)
    for item in items:
        marks = {mark.name for mark in item.iter_markers()}
        rest = "weekly" if marks & {"whole", "e2e", "e2e_security"} else "whole"
        sample = item.get_closest_marker("sample")
        if sample and sample.args:
            groups[item.nodeid.partition("[")[0], rest, sample.args[0]].append(item)
        elif "whole" in marks and not marks & {"sample", "fast", "alone"}:
            groups[item.nodeid.partition("::")[0], rest, SLOW_OF_A_FILE].append(item)
    for (_, rest, number), cases in groups.items():
        for at, item in enumerate(cases):
            if at * number // len(cases) == (at - 1) * number // len(cases):
                item.add_marker(rest)
    # With `--dist loadgroup`, those that share a fixture of their file are run by one worker, the others by any.
    for item in items if getattr(config.option, "loadgroup", False) else ():
        if any(fixtures[-1].scope == "module" for fixtures in item._fixtureinfo.name2fixturedefs.values()):
            item.add_marker(pytest.mark.xdist_group(item.module.__name__))


@pytest.fixture
def show(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """Print one line of a table when all tests have run; the lines are sorted."""
    return lambda line: record_property(SHOWN, line)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [report for word in ("passed", "failed") for report in terminalreporter.getreports(word)]
    lines = {value for report in reports for name, value in report.user_properties if name == SHOWN}
    for line in sorted(map(str, lines)):
        terminalreporter.write_line(line)
