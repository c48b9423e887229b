"""What the sandbox costs: the same tool calls with every layer and with none, in turn.

`python -m tests.bench.sandbox` prints a Markdown table of medians in milliseconds; the number of calls may be given.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from stepflow.domain.checkout import CommandRequest
from stepflow.domain.conversation import ToolUse
from stepflow.domain.words import Isolation
from stepflow.sandbox.box import Toolbox
from stepflow.sandbox.isolation import LAYERS, ToolboxOptions

CALLS = 200
STARTS = 20
ALL_LAYERS = ToolboxOptions(isolation=Isolation.REQUIRED if os.getuid() == 0 else Isolation.BEST_EFFORT)
NO_LAYERS = ToolboxOptions(isolation=Isolation.BEST_EFFORT, disabled_layers=frozenset(LAYERS))

TOOLS: dict[str, Callable[[Toolbox], object]] = {
    "bash: `true`": lambda box: _call(box, "bash", command="true"),
    "bash: `git status`": lambda box: _call(box, "bash", command="git status --porcelain"),
    "read a file": lambda box: _call(box, "read", file_path="hello.txt"),
    "write a file": lambda box: _call(box, "write", file_path="new.txt", content="new"),
    "validator: `git status`": lambda box: box.run_command(CommandRequest(argv=("git", "status"), timeout=20)),
}


def main() -> None:
    """Measure and print."""
    calls = int(sys.argv[1]) if len(sys.argv) > 1 else CALLS
    with _folder() as folder:
        rows = [("start", *_starts(folder)), *_tools(folder, calls)]
    print(f"Medians of {calls} calls ({STARTS} starts), in milliseconds, with and without in turn:\n")
    print("| what | with the sandbox | without | difference |\n| --- | --- | --- | --- |")
    for name, with_layers, disabled in rows:
        print(f"| {name} | {with_layers:.1f} | {disabled:.1f} | {with_layers - disabled:+.1f} |")


def _starts(folder: Path) -> tuple[float, float]:
    def start(checkout: Path, options: ToolboxOptions) -> None:
        Toolbox.start(checkout, options=options).close()

    return _medians(STARTS, lambda: start(folder / "with", ALL_LAYERS), lambda: start(folder / "without", NO_LAYERS))


def _tools(folder: Path, calls: int) -> Iterator[tuple[str, float, float]]:
    with (
        Toolbox.start(folder / "with", options=ALL_LAYERS) as closed,
        Toolbox.start(folder / "without", options=NO_LAYERS) as open_,
    ):
        for name, tool in TOOLS.items():
            yield name, *_medians(calls, lambda tool=tool: tool(closed), lambda tool=tool: tool(open_))


def _medians(times: int, one: Callable[[], object], other: Callable[[], object]) -> tuple[float, float]:
    """In turn, so that whatever else the machine does strikes both alike."""
    measured: tuple[list[float], list[float]] = ([], [])
    for _ in range(times):
        for measure, series in zip((one, other), measured, strict=True):
            begun = time.perf_counter()
            measure()
            series.append((time.perf_counter() - begun) * 1000)
    return statistics.median(measured[0]), statistics.median(measured[1])


def _call(box: Toolbox, name: str, **inputs: str) -> None:
    result = box.run_tool(ToolUse(tool_use_id="bench", name=name, input=inputs))
    if result.is_error:
        raise SystemExit(result.output)


@contextmanager
def _folder() -> Iterator[Path]:
    """Two copies of a small repository, where the tools' user may enter."""
    with tempfile.TemporaryDirectory(prefix="stepflow-bench-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "with").mkdir()
        (folder / "with" / "hello.txt").write_text("hello\n")
        for words in (("init", "--quiet"), ("add", "."), ("commit", "--quiet", "--message", "Begin")):
            who = ("-c", "user.name=Bench", "-c", "user.email=bench@example.invalid")
            subprocess.run(("git", *who, *words), cwd=folder / "with", check=True)
        shutil.copytree(folder / "with", folder / "without")
        yield folder


if __name__ == "__main__":
    main()
