"""A page of docs/ as the steps that its reader takes: files to write, commands to run, outputs to compare.

Takes: a Markdown page. Gives: its steps, run one after another in a folder, as real processes.
May touch: the pages; the folder that a test gives.
"""

from __future__ import annotations

import doctest
import re
import subprocess
import textwrap
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tests.docs.readme import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

DOCS = ROOT / "docs"
_BLOCK = re.compile(
    r"(?:\*\*`(?P<file>[^\n`]+)`\*\*[^\n]*\n|<!-- (?P<note>[^\n]+?) -->\n)?"
    r"^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^ *```$",
    re.M | re.S,
)
_EXIT = re.compile(r"exit (\d+)")
#: What a page shows as an output.
SHOWN = "text"


@dataclass(frozen=True, kw_only=True)
class Step:
    """One thing that the reader does: write `file`, or run `commands` and see `shown` (empty: the page shows none)."""

    file: str = ""
    commands: str = ""
    text: str = ""
    shown: str = ""
    exit_code: int = 0


@dataclass(frozen=True, kw_only=True)
class PageBlock:
    """A fenced block, its indent taken away; `file` is the bold name above it, `note` the comment."""

    file: str
    note: str
    language: str
    text: str


def page_blocks(page: Path) -> list[PageBlock]:
    """Every fenced block of a page, in order."""
    return [
        PageBlock(
            file=match["file"] or "",
            note=match["note"] or "",
            language=match["language"],
            text=textwrap.dedent(match["indent"] + match["text"]) if match["indent"] else match["text"],
        )
        for match in _BLOCK.finditer(page.read_text(encoding="utf-8"))
    ]


def page_steps(page: Path) -> list[Step]:
    """What the page's reader does, in order; a block of text belongs to the commands above it."""
    steps: list[Step] = []
    for block in page_blocks(page):
        if block.file:
            steps.append(Step(file=block.file, text=block.text))
        elif block.language == "sh":
            steps.append(Step(commands=block.text))
        elif block.language == SHOWN:
            found = _EXIT.fullmatch(block.note)
            steps[-1] = replace(steps[-1], shown=block.text, exit_code=int(found[1]) if found else 0)
        else:
            raise AssertionError(f"{page.name} has a block that is neither file, commands nor output: {block}")
    return steps


@dataclass(kw_only=True)
class Reader:
    """Stands in a folder and does what a page says; commands change the folder as `cd` does at a terminal."""

    folder: Path
    environment: Mapping[str, str]

    def follow(self, steps: list[Step]) -> Iterator[tuple[Step, str]]:
        """Each step with what its commands printed. Raises `AssertionError` where the exit code is another one."""
        for step in steps:
            yield step, self._run(step) if step.commands else self._write(step)

    def _write(self, step: Step) -> str:
        path = self.folder / step.file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(step.text, encoding="utf-8")
        return ""

    def _run(self, step: Step) -> str:
        told = self.folder.parent / "where"
        # What a terminal would keep from one command to the next: the folder and the variables.
        script = f"trap 'env -0 > \"{told}\"' EXIT\nset -e\n{step.commands}"
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=self.folder,
            env={**self.environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == step.exit_code, f"{step.commands}\n{done.stdout}"
        kept = dict(entry.split("=", 1) for entry in told.read_text(encoding="utf-8").split("\0") if entry)
        self.environment = kept
        self.folder = Path(kept["PWD"])
        return done.stdout


def is_shown(want: str, got: str) -> bool:
    """Whether an output is what the page shows; `…` stands for anything."""
    return doctest.OutputChecker().check_output(want.replace("…", "..."), got, doctest.ELLIPSIS)
