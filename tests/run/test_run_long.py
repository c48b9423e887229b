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
from tests.world import crowd

pytestmark = [pytest.mark.whole, pytest.mark.alone, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
ITERATIONS = 10_000
THOUSAND = 1000


@pytest.fixture(scope="module")
def long_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict]:
    """The run folder, and what the run measured of itself.

    A machine that changes its pace meanwhile, as a virtual one does that shares its processor, changes it by another
    factor for each kind of work: such a run is made again, and the third one counts whatever the machine does.
    """
    for _ in range(3):
        place = tmp_path_factory.mktemp("long")
        words = [sys.executable, "-m", "tests.run.long_run", str(place), str(ITERATIONS)]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        measured = json.loads(done.stdout)
        pace = thousands(measured["pace"])
        if 0.9 < min(pace[-3:]) / min(pace[:3]) < 1.1:
            break
    return place / "run", measured


def thousands(values: list[float]) -> list[float]:
    """The median of each thousand iterations."""
    return [median(values[at : at + THOUSAND]) for at in range(0, len(values) - 1, THOUSAND)]


def test_the_last_thousand_iterations_need_the_memory_of_the_first(long_run: tuple[Path, dict]) -> None:
    _, measured = long_run
    assert (measured["outcome"], measured["iterations"]) == ("completed", ITERATIONS), measured["reason"]
    memory = thousands(measured["kib"])
    print(f"\nmemory, KiB: {memory}")
    assert memory[-1] <= 1.05 * memory[0]


def test_the_last_thousand_iterations_take_the_time_of_the_first(long_run: tuple[Path, dict]) -> None:
    """In units of what the machine took for always the same beside each iteration. What else runs on it can slow a
    part of the run, never make it faster: the best of three thousands on either side tells what an iteration costs."""
    seconds, pace = long_run[1]["seconds"], long_run[1]["pace"]
    cost = thousands([each / unit for each, unit in zip(seconds, pace, strict=True)])
    print(f"\nseconds: {thousands(seconds)}\npace: {thousands(pace)}\nin units of the pace: {cost}")
    assert min(cost[-3:]) <= 1.05 * min(cost[:3])


def test_its_files_are_read_and_shown_within_what_they_may_take(long_run: tuple[Path, dict]) -> None:
    folder, measured = long_run
    begun = sum(entry.event.event == "iteration_started" for entry in iter_journal(folder / "journal.jsonl"))
    assert begun == ITERATIONS
    assert len(json.loads((folder / "report.json").read_text())["history"]) == ITERATIONS
    assert measured["summary_bytes"] < 1024 * 1024


def test_it_is_shown_in_less_than_two_seconds(long_run: tuple[Path, dict]) -> None:
    folder, _ = long_run
    words = [str(Path(sys.executable).parent / "stepflow"), "show", str(folder)]
    times = []
    for _ in range(3):
        began = time.monotonic()
        done = subprocess.run(words, capture_output=True, text=True, check=True, env={"PATH": os.environ["PATH"]})
        times.append(time.monotonic() - began)
    print(f"\nstepflow show: {min(times):.2f} s")
    assert min(times) < 2 * crowd()
    assert "Iteration 10000 of 10001" in done.stdout
    assert "9,800 earlier iterations" in done.stdout
