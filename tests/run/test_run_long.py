"""A long run through the real drive: nothing grows but the files.

It has 2,000 iterations, and 10,000 with `STEPFLOW_FULL=1`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median, quantiles

import pytest

from stepflow.journal import iter_journal
from tests.covering import FULL
from tests.run.long_run import THOUSAND, run_alone

pytestmark = [pytest.mark.whole, pytest.mark.alone, pytest.mark.timeout(900)]

ITERATIONS = 10_000 if FULL else 2_000
#: What the machine's own pace may do to the quickest tenth of a thousand iterations.
PACE = 1.3


@pytest.fixture(scope="module")
def long_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict]:
    """The run folder, and what the run measured of itself."""
    folder = tmp_path_factory.mktemp("long")
    return folder / "run", run_alone(folder, ITERATIONS)


def test_the_last_thousand_iterations_need_the_memory_of_the_first(long_run: tuple[Path, dict]) -> None:
    _, measured = long_run
    assert (measured["outcome"], measured["iterations"]) == ("completed", ITERATIONS), measured["reason"]
    first, last = (median(measured["kib"][at:][:THOUSAND]) for at in (0, -THOUSAND))
    assert last <= 1.05 * first


def test_the_last_thousand_iterations_take_what_the_first_take(long_run: tuple[Path, dict]) -> None:
    _, measured = long_run
    first, last = (quantiles(measured["seconds"][at:][:THOUSAND], n=10)[0] for at in (0, -THOUSAND))
    assert last <= PACE * first


def test_its_files_are_read_and_shown_within_what_they_may_take(long_run: tuple[Path, dict]) -> None:
    folder, measured = long_run
    begun = sum(entry.event.event == "iteration_started" for entry in iter_journal(folder / "journal.jsonl"))
    assert begun == ITERATIONS
    assert len(json.loads((folder / "report.json").read_text())["history"]) == ITERATIONS
    assert measured["summary_bytes"] < 1024 * 1024
    show = [str(Path(sys.executable).parent / "stepflow"), "show", str(folder)]
    page = subprocess.run(show, capture_output=True, text=True, check=True, env={"PATH": os.environ["PATH"]}).stdout
    assert f"Iteration {ITERATIONS} of {ITERATIONS + 1}" in page
    assert f"{ITERATIONS - 200:,} earlier iterations" in page
