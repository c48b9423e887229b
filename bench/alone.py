"""What only stepflow has: its sandboxed calls, its loader, its journal, its page, its image.

Takes: a folder. Gives: figures by name.
May touch: the folder, processes, the Docker engine where one answers.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.flows import write_agent
from bench.runners import ROOT, environment
from release.image_size import compressed_size, layers

BIN = Path(sys.executable).parent
SIZES = (10, 200, 2000)
ITERATIONS = 10_000
THOUSAND = 1000
TIMES = 5
CALLS = 60


def measure_alone(tell: Callable[[str], None], *, iterations: int = ITERATIONS) -> dict[str, Any]:
    """Everything; a part that cannot be measured here is a text that says why."""
    with tempfile.TemporaryDirectory(prefix="stepflow-bench-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        parts: dict[str, Callable[[], Any]] = {
            "help_s": lambda: _seconds([str(BIN / "stepflow"), "--help"], folder),
            "validate_s": lambda: _validate(folder),
            "tool_call_ms": lambda: _tool_call(folder),
            "long_run": lambda: _long_run(folder, iterations),
            "image": _image,
        }
        figures = {}
        for part, work in parts.items():
            tell(f"stepflow alone: {part}")
            try:
                figures[part] = work()
            except (OSError, subprocess.SubprocessError, ValueError) as error:
                figures[part] = f"could not be measured: {str(error)[:300]}"
        return figures


def _seconds(words: list[str], folder: Path) -> float:
    taken = []
    for _ in range(TIMES):
        begun = time.monotonic()
        subprocess.run(words, cwd=folder, env=environment(), check=True, capture_output=True)
        taken.append(time.monotonic() - begun)
    return round(statistics.median(taken), 3)


def _validate(folder: Path) -> dict[str, float]:
    found = {}
    for steps in SIZES:
        place = folder / f"validate-{steps}"
        write_agent(place / ".agent" / "bencher", steps)
        found[str(steps)] = _seconds([str(BIN / "stepflow"), "validate", "bencher"], place)
    return found


def _tool_call(folder: Path) -> dict[str, float]:
    """Medians, the sandbox and no layer of it in turn, as `python -m tests.bench.sandbox` prints them."""
    words = [sys.executable, "-m", "tests.bench.sandbox", str(CALLS)]
    said = subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in said.splitlines() if line.count("|") > 3]
    call = next(row for row in rows if row[0] == "bash: `true`")
    return {"with": float(call[1]), "without": float(call[2])}


def _long_run(folder: Path, iterations: int) -> dict[str, Any]:
    """Ten thousand iterations of a scripted flow, of which one in fifty runs a tool and commits."""
    place = folder / "long"
    place.mkdir()
    words = [sys.executable, "-m", "tests.run.long_run", str(place), str(iterations)]
    said = json.loads(subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True).stdout)
    if said["outcome"] != "completed":
        raise ValueError(said["reason"])
    part = min(THOUSAND, iterations // 3)
    seconds, kib = said["seconds"], said["kib"]
    cost = [each / pace for each, pace in zip(seconds, said["pace"], strict=True)]
    run = place / "run"
    return {
        "iterations": iterations,
        "first_ms": round(statistics.median(seconds[:part]) * 1000, 3),
        "last_ms": round(statistics.median(seconds[-part:]) * 1000, 3),
        "time_ratio": round(statistics.median(cost[-part:]) / statistics.median(cost[:part]), 3),
        "memory_ratio": round(statistics.median(kib[-part:]) / statistics.median(kib[:part]), 3),
        "journal_bytes": round(said["file_bytes"]["journal.jsonl"] / iterations),
        "page_s": _seconds([str(BIN / "stepflow"), "show", str(run), "--html", str(place / "report.html")], folder),
        "page_bytes": (place / "report.html").stat().st_size,
    }


def _image() -> dict[str, Any]:
    """Of the image that STEPFLOW_IMAGE names, or of one that is built of this tree."""
    if shutil.which("docker") is None:
        raise OSError("there is no docker command; set STEPFLOW_IMAGE where there is one")
    asked = subprocess.run(["docker", "version"], capture_output=True, text=True, check=False, timeout=30)
    if asked.returncode:
        raise OSError(f"no Docker engine answers: {asked.stderr.strip()}")
    tag = os.environ.get("STEPFLOW_IMAGE", "")
    if not tag:
        tag = "stepflow-action:bench"
        subprocess.run(
            ["docker", "build", "--quiet", "--tag", tag, str(ROOT)], capture_output=True, check=True, timeout=400
        )
    return {
        "mb": round(sum(layer.unpacked for layer in layers(tag)) / 1e6),
        "packed_mb": round(compressed_size(tag) / 1e6),
        "first_request_s": _container(tag),
    }


def _container(tag: str) -> float | str:
    """From `docker run` to the first request of the model's API, with the network of this machine."""
    from bench.compare import ask_service, open_folder, open_service  # noqa: PLC0415
    from bench.flows import make_flow  # noqa: PLC0415

    with open_service() as url, open_folder() as folder:
        checkout = make_flow(folder, 3)
        taken = []
        for _ in range(TIMES):
            ask_service(f"{url}/bench/reset")
            begun = time.monotonic()
            words = ["run", "--rm", "--network", "host", "--volume", f"{checkout}:/github/workspace"]
            words += ["--env", "ANTHROPIC_API_KEY=sk-ant-bench", "--entrypoint", "/opt/stepflow/bin/stepflow", tag]
            words += [
                "run",
                "bencher",
                "--repo",
                "/github/workspace",
                "--anthropic-base-url",
                url,
                "--isolation",
                "required",
            ]
            done = subprocess.run(["docker", *words], capture_output=True, text=True, check=False, timeout=120)
            first = ask_service(f"{url}/bench/account")["first"]
            if first is None:
                return f"could not be measured: {done.stderr.strip()[-300:] or done.stdout.strip()[-300:]}"
            taken.append(first - begun)
        return round(statistics.median(taken), 2)
