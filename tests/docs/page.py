"""A page as the steps that its reader takes: files to write, commands to run, outputs to compare.

`python -m tests.docs.page PAGE [FROM HEADING] [TO HEADING]` follows a page here and prints what each command took.
It needs nothing but Python, so that a bare machine can do it.
"""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
import textwrap
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
README = ROOT / "README.md"
#: The page that shows a whole agent.
AGENT_PAGE = DOCS / "agent.md"
USE_PAGE, REFERENCE_PAGE, RESUME_PAGE = DOCS / "use.md", DOCS / "reference.md", DOCS / "how-to" / "costs.md"
SCENARIOS_PAGE = DOCS / "scenarios.md"
RECIPES = DOCS / "how-to" / "recipes.md"
BUILT_PAGE = DOCS / "how-it-is-built.md"

AGENT = ".agent/fixer/"
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

    @property
    def name(self) -> str:
        """The comment or the file name right above it."""
        return self.note or self.file


def around_action(workflow: str) -> tuple[str, str, str]:
    """A workflow with one job: the text before the step of the action, that step, and the text after it."""
    parts = re.split(r"(?m)^(?=      - )", workflow)
    uses = re.compile(r"uses: (org/stepflow-action@|\./ |docker://)")
    (at,) = (number for number, part in enumerate(parts) if uses.search(part))
    return "".join(parts[:at]), parts[at], "".join(parts[at + 1 :])


def page_part(page: Path, begin: str = "", end: str = "") -> str:
    """The page from the heading `begin` to the heading `end`; empty means from its start, to its end."""
    text = page.read_text(encoding="utf-8")
    for heading in filter(None, (begin, end)):
        assert text.count(f"\n## {heading}\n") == 1, f"{page.name} has no heading {heading!r}"
    after = text.partition(f"\n## {begin}\n")[2] if begin else text
    return after.partition(f"\n## {end}\n")[0] if end else after


def page_blocks(page: Path, begin: str = "", end: str = "") -> list[PageBlock]:
    """Every fenced block of a page or a part of it, in order."""
    return [
        PageBlock(
            file=match["file"] or "",
            note=match["note"] or "",
            language=match["language"],
            text=textwrap.dedent(match["indent"] + match["text"]) if match["indent"] else match["text"],
        )
        for match in _BLOCK.finditer(page_part(page, begin, end))
    ]


def named_block(name: str, document: Path = README) -> str:
    """The text of the one block of this name."""
    (text,) = [block.text for block in page_blocks(document) if block.name == name]
    return text


def agent_files() -> dict[str, str]:
    """The files of the agent to paste, by their path in its folder."""
    blocks = page_blocks(AGENT_PAGE)
    return {block.name.removeprefix(AGENT): block.text for block in blocks if block.name.startswith(AGENT)}


def page_steps(page: Path, begin: str = "", end: str = "") -> list[Step]:
    """What the page's reader does, in order; a block of text belongs to the commands above it."""
    steps: list[Step] = []
    for block in page_blocks(page, begin, end):
        if block.file:
            steps.append(Step(file=block.file, text=block.text))
        elif block.language == "sh":
            steps.append(Step(commands=block.text))
        elif block.language == SHOWN:
            match = _EXIT.fullmatch(block.note)
            steps[-1] = replace(steps[-1], shown=block.text, exit_code=int(match[1]) if match else 0)
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
        where = self.folder.parent / "where"
        # What a terminal would keep from one command to the next: the folder and the variables.
        script = f"trap 'env -0 > \"{where}\"' EXIT\nset -e\n{step.commands}"
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
        environment = dict(entry.split("=", 1) for entry in where.read_text(encoding="utf-8").split("\0") if entry)
        self.environment = environment
        self.folder = Path(environment["PWD"])
        return done.stdout


def is_shown(want: str, got: str) -> bool:
    """Whether an output is what the page shows; `…` stands for anything, the blanks that align it included."""
    return doctest.OutputChecker().check_output(re.sub(" *…", "...", want), got, doctest.ELLIPSIS)


def follow_printing(page: Path, begin: str, end: str) -> None:
    """Do here what the page says, and print commands with their seconds. Raises `AssertionError` at a stumble."""
    reader = Reader(folder=Path.cwd(), environment=dict(os.environ))
    started = before = time.monotonic()
    for step, got in reader.follow(page_steps(page, begin, end)):
        now = time.monotonic()
        did = (step.commands.strip() or f"(writes {step.file})").splitlines()
        print(f"{now - before:6.1f} s  " + f"\n{'':10}".join(did))
        assert not step.shown or is_shown(step.shown, got), f"shown:\n{step.shown}\ncame:\n{got}"
        before = now
    print(f"{time.monotonic() - started:6.1f} s  in all", flush=True)


if __name__ == "__main__":
    named, *headings = sys.argv[1:]
    begin, end, *_ = [*headings, "", ""]
    follow_printing(Path(named).resolve(), begin, end)
