"""`make bench`: run everything, write the tables and the plot.

Takes: options. Gives: exit code 0 when stepflow and the floor could be measured.
May touch: build/bench, docs/performance.*.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import os
import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench.alone import ITERATIONS, measure_alone
from bench.compare import compare, figures
from bench.page import judged, put_in, tables
from bench.runners import PEERS_PYTHON, ROOT, RUNNERS

RUNS = 7
DOCS = ROOT / "docs"


def main() -> int:
    """Measure, write, and say which targets are met."""
    asked = _arguments()
    work = ROOT / "build" / "bench"
    work.mkdir(parents=True, exist_ok=True)
    # A bench that was stopped goes on, but never with runs of other code.
    kept = work / f"runs-{_state_of_code()}.jsonl"
    if asked.fresh:
        kept.unlink(missing_ok=True)
    runs = compare(kept, asked.runs, _tell)
    alone = {"long_run": "left out"} if asked.compare_only else measure_alone(_tell, iterations=asked.iterations)
    result: dict[str, Any] = {
        "date": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}",
        "command": "make bench",
        "runs": asked.runs,
        "machine": _machine(),
        "versions": _versions(),
        "compared": figures(runs),
        "alone": alone,
    }
    result = json.loads(json.dumps(result))
    (work / "performance.json").write_text(json.dumps(result, indent=1) + "\n")
    print(tables(result))
    if not asked.compare_only:
        _publish(work / "performance.json", result)
    missed = [f"{name}: {value}, wanted {target}" for name, target, value, met in judged(result) if not met]
    _tell(f"not met: {'; '.join(missed)}" if missed else "every target is met")
    return 0 if judged(result) else 1


def _publish(source: Path, result: dict[str, Any]) -> None:
    page = DOCS / "performance.md"
    page.write_text(put_in(page.read_text(), result))
    (DOCS / "performance.json").write_text(source.read_text())
    subprocess.run([str(PEERS_PYTHON), "-m", "bench.plot", str(source), str(DOCS)], cwd=ROOT, check=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measures stepflow beside its peers.")
    parser.add_argument("--runs", type=int, default=RUNS, help="runs of each flow and runner (default: 7)")
    parser.add_argument("--iterations", type=int, default=ITERATIONS, help="of the long run (default: 10,000)")
    parser.add_argument("--compare-only", action="store_true", help="only the comparison; docs stay as they are")
    parser.add_argument("--fresh", action="store_true", help="forget the runs of a bench that was stopped")
    return parser.parse_args()


def _state_of_code() -> str:
    seen = hashlib.sha256()
    folders = (ROOT / "stepflow", ROOT / "bench")
    for path in sorted(path for folder in folders for path in folder.rglob("*") if path.is_file()):
        if "__pycache__" not in path.parts:
            seen.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes())
    seen.update((ROOT / "requirements.txt").read_bytes() + (ROOT / "requirements-bench.txt").read_bytes())
    return seen.hexdigest()[:12]


def _versions() -> dict[str, str]:
    packages = [runner.package for runner in RUNNERS if runner.program] + ["langchain-anthropic"]
    program = "import json, sys; from importlib.metadata import version as v"
    program += "; print(json.dumps({name: v(name) for name in sys.argv[1:]}))"
    said = subprocess.run(
        [str(PEERS_PYTHON), "-c", program, *packages], check=True, capture_output=True, text=True
    ).stdout
    commit = subprocess.run(
        ("git", "rev-parse", "--short", "HEAD"), cwd=ROOT, check=False, capture_output=True, text=True
    )
    own = f"{version('stepflow')} ({commit.stdout.strip() or 'no commit'})"
    return {"stepflow": own, "Python": platform.python_version(), **json.loads(said)}


def _machine() -> dict[str, Any]:
    info = Path("/proc/cpuinfo").read_text()
    names = [line.partition(":")[2].strip() for line in info.splitlines() if line.startswith("model name")]
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cores": os.cpu_count(),
        "processor": names[0] if names else platform.machine(),
        "memory_gb": round(pages / 1e9),
        "kernel": platform.release(),
    }


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
