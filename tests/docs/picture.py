"""The README's picture: what a terminal shows of `stepflow demo`. `python -m tests.docs.picture` draws it again."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from tests.docs.page import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

PICTURE = ROOT / "docs" / "demo.svg"
WIDTH = 112
#: The picture begins where the first closing is asked for, and ends with the final words.
BEGIN, END = "Iteration 3", "The same agent"
#: What differs from run to run, and what a reader of the picture need not know.
LEFT_OUT = re.compile(
    r"^\s+(?:iteration \d+ of|prompt:|retry prompt:|\[)|^The flow ended|^\s+planned: |^\s+run folder|^\s+look |^$"
)
#: Where the run worked.
WORKSPACE = re.compile(r"/\S*/stepflow-workspace-\w+")
#: Times differ too; they are taken out and not made up.
TIMES = re.compile(r"(?: \(|, | · )\d+(?:\.\d+)? s(?=\)|$)\)?| in \d+\.\d+s$")


def run_demo() -> str:
    """What the demo prints, with the colors of a terminal."""
    with tempfile.TemporaryDirectory(prefix="stepflow-demo-") as folder:
        done = subprocess.run(
            [sys.executable, "-m", "stepflow", "demo", "--keep", folder + "/kept"],
            env={"PATH": os.environ["PATH"], "FORCE_COLOR": "1", "TERM": "xterm-256color"},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
    return done.stdout


def shown(output: str) -> list[Text]:
    """The lines of the picture."""
    lines = [Text.from_ansi(line) for line in WORKSPACE.sub("…", output).splitlines()]
    begin, end = (next(at for at, line in enumerate(lines) if line.plain.startswith(mark)) for mark in (BEGIN, END))
    return [_without_times(line) for line in _without_texts(lines[begin:end]) if not LEFT_OUT.match(line.plain)]


def _without_texts(lines: list[Text]) -> Iterator[Text]:
    """Without the texts that would be written, which stand below what is planned."""
    is_planned = False
    for line in lines:
        is_planned = line.plain.startswith("  planned: ") or (is_planned and line.plain.startswith("  │"))
        if not is_planned:
            yield line


def _without_times(line: Text) -> Text:
    for match in reversed(list(TIMES.finditer(line.plain))):
        keeps = 1 if match[0].startswith(",") else 0
        line = line[: match.start()] + line[match.end() - keeps :]
    line.truncate(WIDTH, overflow="ellipsis")
    line.rstrip()
    return line


def draw(lines: list[Text]) -> str:
    """The lines as a terminal window. Fonts are the reader's own: nothing is fetched to show it."""
    console = Console(file=io.StringIO(), record=True, width=WIDTH, force_terminal=True, color_system="truecolor")
    for line in lines:
        console.print(line, no_wrap=True, overflow="ellipsis", highlight=False)
    svg = console.export_svg(title="stepflow demo", unique_id="stepflow-demo")
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.S)
    svg = svg.replace("font-family: Fira Code, monospace", "font-family: ui-monospace, Menlo, Consolas, monospace")
    return "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"


if __name__ == "__main__":
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(draw(shown(run_demo())), encoding="utf-8")
    print(f"{PICTURE.relative_to(Path.cwd())}: {PICTURE.stat().st_size} bytes")
