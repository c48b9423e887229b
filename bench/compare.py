"""The same flows through stepflow, a bare script and its peers, in turn: time and memory."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from glob import glob
from pathlib import Path
from typing import NamedTuple

from bench.flows import AGENT, make_flow
from bench.server import ModelServer, serve

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
PEERS_PYTHON = ROOT / ".venv-bench" / "bin" / "python"
#: By the name that the page shows, the program of each beside stepflow.
PROGRAMS = {"floor": "floor.py", "pydantic-ai": "pydantic_flow.py", "LangGraph": "langgraph_flow.py"}
RUNNERS = ("floor", "stepflow", "pydantic-ai", "LangGraph")
#: What every run sees of this process's environment.
ENVIRONMENT = {name: os.environ[name] for name in ("PATH", "HOME")} | {"ANTHROPIC_API_KEY": "sk-ant-bench"}
SMALL, LARGE = 3, 33
REQUESTS_PER_STEP = 5
#: Seconds between two looks at the memory; each look may take at most this share of the time.
PAUSE, SHARE = 0.03, 0.1
LONGEST = 180.0


class Run(NamedTuple):
    """One run; `first` is the time to its first request."""

    seconds: float
    first: float
    peak_kib: int


class Figures(NamedTuple):
    """The medians of one runner."""

    first_s: float
    step_ms: float
    peak_mb: float


def compare(runs: int) -> dict[str, Figures]:
    """The figures by runner. A runner that fails ends the bench, with what it said."""
    done: dict[tuple[str, int], list[Run]] = defaultdict(list)
    with serve() as server:
        for number in range(runs + 1):
            for steps in (SMALL, LARGE) if number else (SMALL,):
                for runner in RUNNERS:
                    run = run_flow(runner, server, steps)
                    # The first one is for nothing: it reads the disk and leaves Python's compiled files.
                    if number:
                        done[runner, steps].append(run)
                    print(f"run {number} of {runs}: {runner}, {steps} steps: {run.seconds:.2f} s", flush=True)
    return {runner: _figures(done[runner, SMALL], done[runner, LARGE]) for runner in RUNNERS}


def _figures(small: list[Run], large: list[Run]) -> Figures:
    more = statistics.median(run.seconds for run in large) - statistics.median(run.seconds for run in small)
    return Figures(
        first_s=statistics.median(run.first for run in small + large),
        step_ms=more / (LARGE - SMALL) * 1000,
        peak_mb=statistics.median(run.peak_kib for run in large) / 1024,
    )


def run_flow(runner: str, server: ModelServer, steps: int) -> Run:
    """Run the flow of so many steps once; the server knows then what was asked."""
    with tempfile.TemporaryDirectory(prefix="stepflow-bench-") as name:
        folder = Path(name)
        # The tools' user may enter.
        folder.chmod(0o755)
        make_flow(folder, steps)
        server.reset()
        begun = time.monotonic()
        with (folder / "output").open("w+") as output:
            process = subprocess.Popen(
                command(runner, server.url, folder), env=ENVIRONMENT, cwd=folder, stdout=output, stderr=output
            )
            over, peak = threading.Event(), [0]
            watching = threading.Thread(target=_watch, args=(process.pid, over, peak))
            watching.start()
            try:
                code = process.wait(LONGEST)
            finally:
                process.kill()
                over.set()
            seconds = time.monotonic() - begun
            watching.join()
        requests = len(server.accounts.bills)
        if code or requests != steps * REQUESTS_PER_STEP:
            said = (folder / "output").read_text()[-1000:]
            raise SystemExit(f"{runner} ended with code {code} after {requests} requests:\n{said}")
        return Run(seconds, server.first - begun, peak[0])


def command(runner: str, url: str, folder: Path) -> list[str]:
    """The words that start a runner on the work in a folder."""
    if runner in PROGRAMS:
        return [str(PEERS_PYTHON), str(ROOT / "bench" / "peers" / PROGRAMS[runner]), url, str(folder)]
    isolation = "required" if os.getuid() == 0 else "best-effort"
    options = [f"--repo={folder / 'checkout'}", f"--run-folder={folder / 'run'}", f"--isolation={isolation}"]
    options += [f"--model=base-url={url}", "--boundary=dry-run", "--limits=usd=1000", "--json"]
    return [str(BIN / "stepflow"), "run", AGENT, "--in-place", *options]


def _watch(root: int, over: threading.Event, peak: list[int]) -> None:
    """Keep the largest proportional set size of the process and all below it."""
    while not over.is_set():
        at = time.monotonic()
        peak[0] = max(peak[0], _tree_kib(root))
        over.wait(max(PAUSE, (time.monotonic() - at) / SHARE))


def _tree_kib(pid: int, above: bytes = b"") -> int:
    mapped = _read(f"/proc/{pid}/smaps_rollup")
    children = [int(child) for task in glob(f"/proc/{pid}/task/*/children") for child in _read(task).split()]
    own = 0 if _is_same_memory(mapped, above) else _sizes(mapped).get(b"Pss:", 0)
    return own + sum(_tree_kib(child, mapped) for child in children)


def _is_same_memory(mapped: bytes, above: bytes) -> bool:
    """Whether a process still runs in the memory of the one that starts it (vfork), which would count twice."""
    if not mapped or mapped.partition(b" ")[0] != above.partition(b" ")[0]:
        return False
    # After a real fork the pages are shared by two, so the share of each is about half.
    own = _sizes(mapped)
    return own.get(b"Private_Dirty:", 0) + own.get(b"Private_Clean:", 0) > own.get(b"Rss:", 0) // 2


def _sizes(mapped: bytes) -> dict[bytes, int]:
    lines = (line.split() for line in mapped.splitlines()[1:])
    return {words[0]: int(words[1]) for words in lines}


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""
