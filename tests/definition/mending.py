"""What a reader of a suggestion does: make its edits in the files.

Takes: a repository and a problem's suggestion. Gives: nothing.
May touch: the files of that repository.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from stepflow.domain.suggestion import Change, Region, Suggestion


def apply_suggestion(suggestion: Suggestion, root: Path) -> None:
    """Replace every region by its text, from the end of each file to its beginning; rename what is to be renamed."""
    by_file = defaultdict(list)
    for edit in suggestion.edits:
        if edit.change is Change.MOVE:
            target = (root / edit.file).parents[_depth(edit.file)] / edit.value
            target.parent.mkdir(parents=True, exist_ok=True)
            (root / edit.file).rename(target)
        else:
            assert edit.region is not None
            by_file[edit.file].append((edit.region, edit.text))
    for file, changes in by_file.items():
        replace_regions(root / file, changes)


def replace_regions(file: Path, changes: list[tuple[Region, str]]) -> None:
    """The edits of one file. A byte-order mark is no column."""
    text = file.read_bytes().decode("utf-8-sig")
    for region, new in sorted(changes, key=lambda change: (change[0].line, change[0].column), reverse=True):
        start, end = offset(text, region.line, region.column), offset(text, region.end_line, region.end_column)
        text = text[:start] + new + text[end:]
    file.write_bytes(text.encode())


def offset(text: str, line: int, column: int) -> int:
    return sum(len(one) + 1 for one in text.split("\n")[: line - 1]) + column - 1


def _depth(file: str) -> int:
    """How many folders a file is below its agent's folder: `.agent/demo/a/b.md` is one below."""
    return len(Path(file).parts) - 3
