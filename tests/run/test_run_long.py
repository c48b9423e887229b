"""Ten thousand iterations through the real drive: nothing grows but the files (issue acceptance; cli.md "Journal")."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

import pytest

from stepflow.journal.reader import iter_journal
from tests.run.long_run import THOUSAND, run_by_turns

pytestmark = [pytest.mark.whole, pytest.mark.alone, pytest.mark.timeout(900)]

ITERATIONS = 10_000


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict, dict]:
    """The long run's folder, what it measured of itself, and what a run measured that took turns with its end."""
    place = tmp_path_factory.mktemp("long")
    return place / "old" / "run", *run_by_turns(place, ITERATIONS)


@pytest.fixture(scope="module")
def long_run(both: tuple[Path, dict, dict]) -> tuple[Path, dict]:
    """The run folder, and what the run measured of itself."""
    return both[:2]


def thousands(values: list[float]) -> list[float]:
    """The median of each thousand iterations."""
    return [median(values[at : at + THOUSAND]) for at in range(0, len(values) - 1, THOUSAND)]


def test_the_last_thousand_iterations_need_the_memory_of_the_first(long_run: tuple[Path, dict]) -> None:
    _, measured = long_run
    assert (measured["outcome"], measured["iterations"]) == ("completed", ITERATIONS), measured["reason"]
    memory = thousands(measured["kib"])
    print(f"\nmemory, KiB: {memory}")
    assert memory[-1] <= 1.05 * memory[0]


def test_an_iteration_takes_after_nine_thousand_what_it_takes_at_first(both: tuple[Path, dict, dict]) -> None:
    _, long, short = both
    late, early = median(long["seconds"][-THOUSAND:]), median(short["seconds"])
    print(f"\nseconds: {late:.6f} by turns with {early:.6f}, after {thousands(long['seconds'])}")
    assert late <= 1.05 * early


def test_its_files_are_read_and_shown_within_what_they_may_take(long_run: tuple[Path, dict]) -> None:
    folder, measured = long_run
    begun = sum(entry.event.event == "iteration_started" for entry in iter_journal(folder / "journal.jsonl"))
    assert begun == ITERATIONS
    assert len(json.loads((folder / "report.json").read_text())["history"]) == ITERATIONS
    assert measured["summary_bytes"] < 1024 * 1024


#: What a reader must do at the least: 0.3 s where the whole is shown within 2 s.
PARSE = "import json, sys; print(sum(len(json.loads(line)) for line in open(sys.argv[1], 'rb')))"


def test_it_is_shown_within_six_times_what_parsing_its_lines_takes(long_run: tuple[Path, dict]) -> None:
    folder, _ = long_run
    show = [str(Path(sys.executable).parent / "stepflow"), "show", str(folder)]
    parse = [sys.executable, "-c", PARSE, str(folder / "journal.jsonl")]
    (shown, whole), (parsed, _) = (
        min(each) for each in zip(*[(_timed(show), _timed(parse)) for _ in range(5)], strict=True)
    )
    print(f"\nstepflow show: {shown:.2f} s, parsing alone: {parsed:.2f} s")
    assert shown < 6 * parsed
    assert "Iteration 10000 of 10001" in whole
    assert "9,800 earlier iterations" in whole


def _timed(words: list[str]) -> tuple[float, str]:
    began = time.monotonic()
    done = subprocess.run(words, capture_output=True, text=True, check=True, env={"PATH": os.environ["PATH"]})
    return time.monotonic() - began, done.stdout
