"""The same flows through each runner, in turn.

Takes: how many runs. Gives: one figure set per run, kept in a file, so that a bench that was stopped goes on.
May touch: build/bench, processes, loopback.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.flows import make_flow
from bench.runners import ROOT, RUNNERS, Runner, environment, words_of
from bench.watch import watch

SMALL, LARGE = 3, 33
Run = dict[str, Any]


def compare(kept: Path, runs: int, tell: Callable[[str], None]) -> list[Run]:
    """All runs, those of an earlier bench with the same versions among them."""
    done = [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []
    with open_service() as url, open_folder() as folder, kept.open("a") as file:
        if not done:
            # Once for nothing: everything is read from the disk then, and Python's compiled files are there.
            for runner in RUNNERS:
                _run(runner, url, folder, SMALL, -1)
        for number in range(runs):
            for steps in (SMALL, LARGE):
                for runner in RUNNERS:
                    key = (runner.name, steps, number)
                    if any((run["runner"], run["steps"], run["number"]) == key for run in done):
                        continue
                    run = _run(runner, url, folder, steps, number)
                    done.append(run)
                    file.write(json.dumps(run) + "\n")
                    file.flush()
                    tell(f"run {number + 1} of {runs}: {runner.name}, {steps} steps: {run['seconds']:.2f} s")
    return done


def figures(runs: list[Run]) -> dict[str, dict[str, Any]]:
    """Medians by runner; `problem` instead for one that could not be run."""
    return {runner.name: _figures([run for run in runs if run["runner"] == runner.name]) for runner in RUNNERS}


def _figures(runs: list[Run]) -> dict[str, Any]:
    if failed := next((run for run in runs if run["problem"]), None):
        return {"problem": failed["problem"]}

    def median(name: str, *sizes: int) -> float:
        return statistics.median(run[name] for run in runs if run["steps"] in sizes)

    return {
        "first_s": round(median("first", SMALL, LARGE), 3),
        "step_ms": round((median("seconds", LARGE) - median("seconds", SMALL)) / (LARGE - SMALL) * 1000, 1),
        "peak_mb": round(median("peak_kb", LARGE) / 1024, 1),
        "requests": {steps: int(median("requests", steps)) for steps in (SMALL, LARGE)},
        "billed": {steps: round(median("billed", steps)) for steps in (SMALL, LARGE)},
        "bytes": {steps: int(median("bytes", steps)) for steps in (SMALL, LARGE)},
    }


def _run(runner: Runner, url: str, folder: Path, steps: int, number: int) -> Run:
    place = folder / f"{runner.name}-{steps}"
    make_flow(place, steps)
    ask_service(f"{url}/bench/reset")
    try:
        seen = watch(words_of(runner, url, place), environment=environment(), folder=place, log=folder / "said")
    except OSError as error:
        return {"runner": runner.name, "steps": steps, "number": number, "problem": str(error), "seconds": 0.0}
    account = ask_service(f"{url}/bench/account")
    shutil.rmtree(place)
    problem = ""
    if seen.code or account["requests"] < steps * 5:
        problem = f"exit code {seen.code} after {account['requests']} requests: {seen.said.strip()[-600:]}"
    return {
        "runner": runner.name,
        "steps": steps,
        "number": number,
        "problem": problem,
        "seconds": round(seen.seconds, 4),
        "first": round((account["first"] or seen.begun) - seen.begun, 4),
        "peak_kb": seen.peak_kb,
        **{name: account[name] for name in ("requests", "bytes", "billed", "input", "written", "read")},
    }


@contextmanager
def open_service() -> Iterator[str]:
    """The model service, until the block ends; its address."""
    words = [sys.executable, "-m", "bench.server"]
    with subprocess.Popen(words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin
        assert server.stdout
        yield server.stdout.readline().strip()
        server.stdin.close()


@contextmanager
def open_folder() -> Iterator[Path]:
    """Where the tools' user may enter."""
    with tempfile.TemporaryDirectory(prefix="stepflow-bench-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


def ask_service(url: str) -> dict[str, Any]:
    """One of the bench's own questions to the service."""
    with urllib.request.urlopen(url, timeout=10) as answer:
        return dict(json.load(answer))
