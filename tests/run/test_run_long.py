"""A long run through the real drive: nothing grows but the files.

It has 2,000 iterations, and 10,000 with `STEPFLOW_FULL=1`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median, quantiles

import pytest

from stepflow.journal import iter_journal
from tests.covering import FULL
from tests.run.long_run import THOUSAND, run_by_turns

pytestmark = [pytest.mark.whole, pytest.mark.alone, pytest.mark.timeout(900)]

ITERATIONS = 10_000 if FULL else 2_000


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict, dict]:
    """The long run's folder, what it measured of itself, and what a run measured that took turns with its end."""
    folder = tmp_path_factory.mktemp("long")
    return folder / "old" / "run", *run_by_turns(folder, ITERATIONS)


@pytest.fixture(scope="module")
def long_run(both: tuple[Path, dict, dict]) -> tuple[Path, dict]:
    """The run folder, and what the run measured of itself."""
    return both[:2]


def quickest(values: list[float]) -> float:
    """What the quickest tenth stays below: whatever else the machine does only adds to an iteration."""
    return quantiles(values, n=10)[0]


def thousands(values: list[float]) -> list[float]:
    """The median of each thousand iterations."""
    return [median(values[at : at + THOUSAND]) for at in range(0, len(values) - 1, THOUSAND)]


def test_the_last_thousand_iterations_need_the_memory_of_the_first(long_run: tuple[Path, dict]) -> None:
    _, measured = long_run
    assert (measured["outcome"], measured["iterations"]) == ("completed", ITERATIONS), measured["reason"]
    memory = thousands(measured["kib"])
    print(f"\nmemory, KiB: {memory}")
    assert memory[-1] <= 1.05 * memory[0]


def test_the_last_thousand_iterations_take_what_the_first_take(both: tuple[Path, dict, dict]) -> None:
    _, long, short = both
    late, early = quickest(long["seconds"][-THOUSAND:]), quickest(short["seconds"])
    print(f"\nseconds: {late:.6f} by turns with {early:.6f}, after {thousands(long['seconds'])}")
    assert late <= 1.05 * early


def test_its_files_are_read_and_shown_within_what_they_may_take(long_run: tuple[Path, dict]) -> None:
    folder, measured = long_run
    begun = sum(entry.event.event == "iteration_started" for entry in iter_journal(folder / "journal.jsonl"))
    assert begun == ITERATIONS
    assert len(json.loads((folder / "report.json").read_text())["history"]) == ITERATIONS
    assert measured["summary_bytes"] < 1024 * 1024


#: What a reader must do at the least.
PARSE = "import json, sys; print(sum(len(json.loads(line)) for line in open(sys.argv[1], 'rb')))"


def test_what_an_earlier_iteration_adds_to_showing_a_run_stays_near_what_parsing_its_lines_takes(
    long_run: tuple[Path, dict],
) -> None:
    long = long_run[0]
    short = long.parents[1] / "new" / "run"  # its last 200 iterations are shown in full, like the long run's
    show = [str(Path(sys.executable).parent / "stepflow"), "show"]
    parse = [sys.executable, "-c", PARSE]
    commands = [
        [*show, str(long)],
        [*show, str(short)],
        [*parse, str(long / "journal.jsonl")],
        [*parse, str(short / "journal.jsonl")],
    ]
    by_turns = [[_timed(command) for command in commands] for _ in range(7)]
    (shown, page), (less_shown, _), (parsed, _), (less_parsed, _) = (min(each) for each in zip(*by_turns, strict=True))
    print(f"\nstepflow show: {less_shown:.2f} to {shown:.2f} s, parsing alone: {less_parsed:.2f} to {parsed:.2f} s")
    assert shown - less_shown < 20 * (parsed - less_parsed)
    assert f"Iteration {ITERATIONS} of {ITERATIONS + 1}" in page
    assert f"{ITERATIONS - 200:,} earlier iterations" in page


def _timed(command: list[str]) -> tuple[float, str]:
    start = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={"PATH": os.environ["PATH"]})
    return time.monotonic() - start, done.stdout
