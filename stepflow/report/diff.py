"""What a step changed in the working tree, as unified diffs that a person can read.

Takes: `FileChange`s. Gives: `StepDiff`, never larger than the room that a page has for it.
May touch: nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stepflow.domain.figures import count
from stepflow.report.diff_file import FileDiff, file_diff

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from stepflow.domain.change import FileChange

#: Characters of all that a step changed, and its files.
STEP_LIMIT = 40_000
MOST_FILES = 50
#: Of all diffs of a page: characters; bytes of the files that are compared; pairs of lines that are.
PAGE_LIMIT = 3_000_000
BYTES_LIMIT = 64 * 1024 * 1024
PAIRS_LIMIT = 20_000_000
TOO_MUCH = "left out to keep this page small"


@dataclass(kw_only=True)
class Room:
    """What a page may still spend on diffs."""

    characters: int = PAGE_LIMIT
    bytes: int = BYTES_LIMIT
    pairs: int = PAIRS_LIMIT

    @property
    def is_left(self) -> bool:
        """Whether there is any."""
        return min(self.characters, self.bytes, self.pairs) > 0

    def spend(self, change: FileChange, found: FileDiff) -> None:
        """Take what one file took."""
        self.characters -= len(found.text)
        self.pairs -= found.pairs
        self.bytes -= sum(len(side.content or b"") for side in (change.before, change.after) if side)


@dataclass(frozen=True, kw_only=True)
class StepDiff:
    """What one iteration changed. `notes` say what is missing."""

    files: tuple[FileDiff, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Diffs:
    """The diffs of a page by the number of the iteration, and what is to be said of all of them."""

    steps: Mapping[int, StepDiff] = field(default_factory=dict)
    note: str = ""


def step_diff(
    paths: Iterable[str], look: Callable[[str], FileChange], room: Room, redact: Callable[[str], str]
) -> StepDiff:
    """The diff of one iteration; `look` gives what became of a path. What there is no room for is counted in a note and
    not looked at."""
    files: list[FileDiff] = []
    nested = left_out = size = 0
    for path in paths:
        if "/.git/" in f"/{path}":
            nested += 1
        elif len(files) >= MOST_FILES or size >= STEP_LIMIT or not room.is_left:
            left_out += 1
        elif found := file_diff(change := look(path), redact):
            files.append(found)
            size += len(found.text)
            room.spend(change, found)
    notes = (
        f"… {count(left_out, 'more file')} left out" if left_out else "",
        f"{count(nested, 'file')} left out in `.git` of a repository in the repository" if nested else "",
    )
    return StepDiff(files=tuple(files), notes=tuple(filter(None, notes)))
