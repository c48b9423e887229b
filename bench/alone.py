"""What has no peer: the commands that wait for no model, ten thousand iterations, the image."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from bench.compare import BIN, ENVIRONMENT, ROOT
from bench.flows import AGENT, write_agent
from bench.page import Target, at_most
from release.image_size import compressed_size, layers
from tests.run.long_run import THOUSAND, run_alone

STEPS = 2000
ITERATIONS = 10_000
TIMES = 5


def measure_alone() -> list[Target]:
    """Each target with what was measured."""
    print("stepflow alone", flush=True)
    with tempfile.TemporaryDirectory(prefix="stepflow-bench-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        write_agent(folder / ".agent" / AGENT, STEPS)
        return [*_long_run(folder / "long"), *_commands(folder), *_image()]


def _long_run(folder: Path) -> list[Target]:
    folder.mkdir()
    measured = run_alone(folder, ITERATIONS)
    time_ratio, memory_ratio = (
        statistics.median(measured[name][-THOUSAND:]) / statistics.median(measured[name][:THOUSAND])
        for name in ("seconds", "kib")
    )
    return [
        at_most("10,000 iterations: time of the last thousand", time_ratio, 1.05, "× the first", 3),
        at_most("10,000 iterations: memory in the last thousand", memory_ratio, 1.05, "× the first", 3),
    ]


def _commands(folder: Path) -> list[Target]:
    def fastest_seconds(*words: str) -> float:
        times = []
        for _ in range(TIMES):
            begun = time.monotonic()
            subprocess.run([BIN / "stepflow", *words], cwd=folder, env=ENVIRONMENT, check=True, capture_output=True)
            times.append(time.monotonic() - begun)
        return min(times)

    return [
        at_most("`validate` of 2,000 steps", fastest_seconds("validate", AGENT), 1.5, "s"),
        at_most("`stepflow --help`", fastest_seconds("--help"), 0.25, "s"),
    ]


def _image() -> list[Target]:
    """Of the image that STEPFLOW_IMAGE names, or of one that is built of this tree."""
    if not shutil.which("docker") or subprocess.run(["docker", "version"], capture_output=True, check=False).returncode:
        return [Target("image", "≤ 550 MB, ≤ 200 MB compressed", "no Docker engine answered", None)]
    name = os.environ.get("STEPFLOW_IMAGE", "")
    if not name:
        name = "stepflow-action:bench"
        subprocess.run(["make", "image", f"IMAGE={name}"], cwd=ROOT, check=True, capture_output=True)
    return [
        at_most("image, unpacked", sum(layer.unpacked for layer in layers(name)) / 1e6, 550, "MB", 0),
        at_most("image, compressed", compressed_size(name) / 1e6, 200, "MB", 0),
    ]
