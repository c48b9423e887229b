"""One long run through the real drive, and what each iteration cost.

Run as a process of its own, so that the memory it measures is the run's. Its arguments are a folder, the number of
iterations and, for two runs that take turns, the first iteration to do so and the two descriptors of the turns; it
prints one JSON object.
"""

from __future__ import annotations

import contextlib
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


class Turns:
    """Two runs, one iteration each by turns from iteration `start` on: what the machine does meets both alike."""

    def __init__(self, start: int, take: int, give: int) -> None:
        self.start, self._take, self._give = start, take, give

    def pass_on(self) -> None:
        """Let the other run do an iteration; one that is over does none."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self._give, b".")
        os.read(self._take, 1)


class Meter:
    """Time and memory at the beginning of each iteration, in arrays that have their size from the start."""

    def __init__(self, iterations: int, turns: Turns | None) -> None:
        zeros = bytes(8 * (iterations + 2))
        self.ends, self.times = array("d", zeros), array("d", zeros)
        self.pages = array("l", zeros)
        self._turns = turns

    def __call__(self, entry: Entry) -> None:
        if isinstance(entry.event, IterationStarted):
            at = entry.event.iteration
            self.ends[at - 1] = time.perf_counter()
            if self._turns and at >= self._turns.start:
                self._turns.pass_on()
            self.times[at] = time.perf_counter()
            with open("/proc/self/statm", "rb") as statm:  # noqa: PTH123 - the cheapest way, ten thousand times
                self.pages[at] = int(statm.read().split()[1])


def main(folder: Path, iterations: int, turns: Turns | None = None) -> dict:
    root = folder / "checkout"
    shutil.copytree(CHECKOUT, root)
    git("init", "--quiet", cwd=root)
    git("add", "--all", cwd=root)
    git("commit", "--quiet", "--message", "Begin", cwd=root)
    (folder / "scenario.yaml").write_text(json.dumps(scenario(iterations)))
    given = {
        "provider": "scripted",
        "scenario": str(folder / "scenario.yaml"),
        "boundary": "dry-run",
        "isolation": "best-effort",
        "max-iterations": str(iterations + 1),
        "timeout-minutes": "600",
    }
    trigger = Trigger(agent="fixer", actor="bob", actor_is_bot=False)
    request = RunRequest(
        run_id="long", inputs=read_inputs(given), trigger=trigger, root=root, folder=folder / "run", repository="o/r"
    )
    clock, meter, log = clock_for(request.inputs), Meter(iterations, turns), ActionLog()
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


def run_by_turns(folder: Path, iterations: int) -> tuple[dict, dict]:
    """What a long run measured of itself, and a run of a thousand iterations that began at its last thousand.

    These two take turns: a machine that changes its pace, as a virtual one does that shares its processor, changes it
    for both. The long one's folder is `old/run`.
    """
    to_long, from_short = os.pipe()
    to_short, from_long = os.pipe()
    with _begin(folder / "new", THOUSAND, 1, to_short, from_short) as short:
        # It gives its first turn away: the long run has it.
        os.read(to_long, 1)
        long = _begin(folder / "old", iterations, iterations - THOUSAND, to_long, from_long)
        for end in (to_long, from_short, to_short, from_long):
            os.close(end)
        with long:
            measured_long, measured_short = (json.loads(run.communicate()[0]) for run in (long, short))
    return measured_long, measured_short


def _begin(folder: Path, iterations: int, start: int, take: int, give: int) -> subprocess.Popen[str]:
    folder.mkdir(parents=True)
    words = [sys.executable, "-m", "tests.run.long_run", *map(str, (folder, iterations, start, take, give))]
    return subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True, pass_fds=(take, give))


if __name__ == "__main__":
    folder, iterations, *by_turns = sys.argv[1:]
    print(json.dumps(main(Path(folder), int(iterations), Turns(*map(int, by_turns)) if by_turns else None)))
