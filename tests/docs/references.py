"""Looks up every reference of the code to a section of the specification: `python -m tests.docs.references`.

`flow.md §6.1` in a comment or a docstring stands for section 6.1 of `docs/spec/flow.md`, and `(boundary.md)` for the
whole page.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SPEC = ROOT / "docs" / "spec"
SOURCES = (*("stepflow", "tests", "release", "bench", "examples"), *("entrypoint.py", "pyproject.toml", "Makefile"))
SUFFIXES = {".py", ".pyi", ".yaml", ".yml", ".toml", ""}
#: A page with sections, `flow.md §1 and §10`, or one alone in parentheses.
REFERENCE = re.compile(r"\b([a-z]+)\.md((?:(?:,| and)? §[\d.]*\d)+)|\(([a-z]{3,})\.md\)")
SECTION = re.compile(r"§([\d.]*\d)")
HEADING = re.compile(r"^#{2,3} (\d+(?:\.\d+)*)\.? ", re.MULTILINE)


def sections() -> dict[str, frozenset[str]]:
    """The numbers of the sections of each file of the specification."""
    return {page.stem: frozenset(HEADING.findall(page.read_text(encoding="utf-8"))) for page in SPEC.glob("*.md")}


def broken_references(text: str, known: dict[str, frozenset[str]]) -> Iterator[str]:
    """What of this text leads nowhere."""
    for match in REFERENCE.finditer(text):
        page = match[1] or match[3]
        if page not in known:
            yield match[0]
            continue
        yield from (f"{page}.md §{number}" for number in SECTION.findall(match[2] or "") if number not in known[page])


def sources() -> Iterator[Path]:
    """Every file whose references are looked up."""
    for name in SOURCES:
        found = ROOT / name
        files = found.rglob("*") if found.is_dir() else [found]
        yield from (file for file in files if file.suffix in SUFFIXES and file.is_file())


def main() -> None:
    """Print what leads nowhere, and exit with 1 where anything does."""
    known = sections()
    broken = [
        f"{file.relative_to(ROOT)}: {reference} is not in docs/spec"
        for file in sources()
        for reference in broken_references(file.read_text(encoding="utf-8", errors="replace"), known)
    ]
    if broken:
        sys.exit("\n".join(broken))


if __name__ == "__main__":
    main()
