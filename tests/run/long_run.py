"""One long run through the real drive, and what each iteration cost.

Run as a process of its own, so that the memory it measures is the run's. Its arguments are a folder and the number of
iterations; it prints one JSON object.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from array import array
from pathlib import Path

from stepflow.domain.event import Entry, IterationStarted
from stepflow.report.log import ActionLog
from stepflow.report.summary import job_summary
from stepflow.run.clock import Cancellation
from stepflow.run.execute import drive_run
from stepflow.run.prepare import clock_for, prepare_run
from stepflow.run.request import RunRequest
from stepflow.run.start.inputs import read_inputs
from stepflow.run.start.trigger import Trigger
from tests.checkout import git

ROOT = Path(__file__).parents[2]
CHECKOUT = ROOT / "tests" / "action" / "checkout"
THOUSAND = 1000
#: One iteration in so many runs a tool; the others only answer.
BLOCK = 50
WORK = "echo hello, world > greeting.txt; git add --all; git commit --quiet --allow-empty --message 'Greet the world'"
PAGE = os.sysconf("SC_PAGE_SIZE")


def scenario(iterations: int) -> dict:
    """So many iterations of the work step with one before and one after them, most of which say the same again."""
    again = _output("continuation.issue", "repeat", summary="not yet" + " and more" * 20)
    block = [{"tools": [{"bash": {"command": WORK}}]}, again, {"repeat": BLOCK - 1}]
    first = _output("initial.issue", "next", understanding="the greeting leaves the world out")
    work = (iterations - 3) // BLOCK
    rest = (iterations - 3) % BLOCK
    turns = [first, *block * work, *([again, {"repeat": rest - 1}] if rest > 1 else [again] * rest)]
    turns.append(_output("continuation.issue", "handoff", summary="the world is greeted"))
    closing = {"comment": "Greeted.", "pull_request": {"title": "Greet the world", "body": "It was left out."}}
    turns.append(_output("closure.issue", "closing", **closing))
    return {"params": {"issue": 7}, "issue": {"number": 7, "title": "Greet the world"}, "turns": turns}


def _output(step: str, intent: str, **more: object) -> dict:
    return {"output": {"stepId": step, "next_action": {"action": intent, "reason": f"{intent} it is"}, **more}}


class Meter:
    """Time and memory at the beginning of each iteration, in arrays that have their size from the start."""

    def __init__(self, iterations: int) -> None:
        zeros = bytes(8 * (iterations + 2))
        self.ends, self.times = array("d", zeros), array("d", zeros)
        self.pages = array("l", zeros)

    def __call__(self, entry: Entry) -> None:
        if isinstance(entry.event, IterationStarted):
            at = entry.event.iteration
            self.ends[at - 1] = time.perf_counter()
            self.times[at] = time.perf_counter()
            with open("/proc/self/statm", "rb") as statm:  # noqa: PTH123 - the cheapest way, ten thousand times
                self.pages[at] = int(statm.read().split()[1])


def main(folder: Path, iterations: int) -> dict:
    root = folder / "checkout"
    shutil.copytree(CHECKOUT, root)
    git("init", "--quiet", cwd=root)
    git("add", "--all", cwd=root)
    git("commit", "--quiet", "--message", "Begin", cwd=root)
    (folder / "scenario.yaml").write_text(json.dumps(scenario(iterations)))
    given = {
        "scenario": str(folder / "scenario.yaml"),
        "boundary": "dry-run",
        "isolation": "best-effort",
        "limits": {"iterations": iterations + 1, "minutes": 600},
    }
    trigger = Trigger(agent="fixer", actor="bob", actor_is_bot=False)
    request = RunRequest(
        run_id="long", inputs=read_inputs(given), trigger=trigger, root=root, folder=folder / "run", repository="o/r"
    )
    clock, meter, log = clock_for(request.inputs), Meter(iterations), ActionLog()
    with open(os.devnull, "w") as job:  # noqa: PTH123
        prepared = prepare_run(request, now=clock.now())
        began = time.perf_counter()
        result = drive_run(
            prepared,
            clock=clock,
            cancellation=Cancellation(),
            listeners=(meter, lambda entry: job.writelines(log.render(entry))),
        )
        ended = time.perf_counter()
    return {
        "outcome": result.report.outcome,
        "reason": result.reason,
        "iterations": result.iterations,
        "seconds": [round(meter.ends[at] - meter.times[at], 6) for at in range(1, iterations)],
        "kib": [pages * PAGE // 1024 for pages in meter.pages[1 : iterations + 1]],
        "all": round(ended - began, 1),
        "ending": round(ended - meter.times[iterations], 1),
        "summary_bytes": len(job_summary(result.report, prepared.agent).encode()),
        "file_bytes": {path.name: path.stat().st_size for path in (folder / "run").iterdir()},
    }


def run_alone(folder: Path, iterations: int) -> dict:
    """What a long run in a process of its own measured of itself."""
    words = [sys.executable, "-m", "tests.run.long_run", str(folder), str(iterations)]
    return json.loads(subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout)


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]))))
