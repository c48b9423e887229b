"""The files that a step changed, as unified diffs that people can read and that never outgrow a page."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Literal

from stepflow.domain.checkout import LINK, PROGRAM
from stepflow.domain.figures import count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from stepflow.domain.checkout import FileChange, FileSide

#: Equal lines around what changed.
CONTEXT = 3
#: What comparing two texts may cost, in pairs of lines without what is equal at both ends; an equal pair counts more.
#: Measured, a million takes up to 0.3 s. Beyond, all of it is shown as replaced: difflib takes minutes for two texts
#: that somebody made for it.
MOST_PAIRS = 2_000_000
EQUAL_COUNTS = 20
NEWLINE = "\n"
#: As difflib gives it: what, and from where to where in the lines before and after.
Operation = tuple[Literal["replace", "delete", "insert", "equal"], int, int, int, int]
#: Characters of a file's diff, and of one line in it.
FILE_LIMIT = 10_000
LINE_LIMIT = 500
#: Where git looks for a zero, which no text has.
LOOKED_AT = 8000
#: What would end a line, or hide one, in the middle of it.
BREAKS = re.compile("[\r\v\f\x1b\x1c-\x1e\x85\x9b\u2028\u2029]")
#: Characters of all that a step changed, and its files.
STEP_LIMIT = 40_000
MOST_FILES = 50
#: Of all diffs of a page: characters; bytes of the files that are compared; pairs of lines that are.
PAGE_LIMIT = 3_000_000
BYTES_LIMIT = 64 * 1024 * 1024
PAIRS_LIMIT = 20_000_000
TOO_MUCH = "left out to keep this page small"


class _Compared(SequenceMatcher[str]):
    """A comparison whose operations are known."""

    def __init__(self, opcodes: Sequence[Operation]) -> None:
        super().__init__()
        self._opcodes = opcodes

    def get_opcodes(self) -> list[Operation]:
        """The operations that were given."""
        return [*self._opcodes]


def operations(before: Sequence[str], after: Sequence[str]) -> tuple[list[Operation], int]:
    """What makes the one of the other, and what it cost in pairs of lines."""
    shorter = min(len(before), len(after))
    head = next((at for at in range(shorter) if before[at] != after[at]), shorter)
    tail = next((at for at in range(shorter - head) if before[-1 - at] != after[-1 - at]), shorter - head)
    old, new = len(before) - tail, len(after) - tail
    middle: list[Operation] = [("replace", head, old, head, new)]
    common = Counter(after[head:new])
    pairs = (old - head) * (new - head) + EQUAL_COUNTS * sum(common[line] for line in before[head:old])
    if pairs <= MOST_PAIRS:
        inner = SequenceMatcher(None, before[head:old], after[head:new]).get_opcodes()
        middle = [(tag, head + i1, head + i2, head + j1, head + j2) for tag, i1, i2, j1, j2 in inner]
    ends: tuple[Operation, Operation] = (
        ("equal", 0, head, 0, head),
        ("equal", old, len(before), new, len(after)),
    )
    opcodes = [one for one in (ends[0], *middle, ends[1]) if one[2] > one[1] or one[4] > one[3]]
    return opcodes, pairs if pairs <= MOST_PAIRS else 0


def hunk_lines(before: Sequence[str], after: Sequence[str], opcodes: Sequence[Operation]) -> Iterator[str]:
    """The hunks, line by line, without line breaks at their ends."""
    for hunk in _Compared(opcodes).get_grouped_opcodes(CONTEXT):
        first, last = hunk[0], hunk[-1]
        yield f"@@ -{_range(first[1], last[2])} +{_range(first[3], last[4])} @@"
        for tag, i1, i2, j1, j2 in hunk:
            if tag == "equal":
                yield from _marked(" ", before[i1:i2])
            else:
                yield from _marked("-", before[i1:i2])
                yield from _marked("+", after[j1:j2])


def _range(begin: int, end: int) -> str:
    """Lines count from 1; an empty range is named by the line before it."""
    length = end - begin
    if length == 1:
        return f"{begin + 1}"
    return f"{begin + 1 if length else begin},{length}"


def _marked(sign: str, lines: Sequence[str]) -> Iterator[str]:
    for line in lines:
        yield f"{sign}{line.removesuffix(NEWLINE)}"
        if not line.endswith(NEWLINE):
            yield "\\ No newline at end of file"


@dataclass(frozen=True, kw_only=True)
class FileDiff:
    """`added` and `removed` count all lines, also those that the text leaves out; it cost so many `pairs` of lines."""

    path: str
    text: str
    added: int = 0
    removed: int = 0
    pairs: int = 0


def file_diff(change: FileChange, redact: Callable[[str], str]) -> FileDiff | None:
    """The diff of one file, None when nothing that git knows of it changed."""
    before, after = change.before, change.after
    path = _spelled(redact(change.path))
    if before == after:
        return None
    head = [f"diff --git a/{path} b/{path}", *_mode_lines(before, after)]
    instead = _instead(before, after)
    if instead:
        return FileDiff(path=path, text="\n".join((*head, instead)))
    old, new = _Text.of(before, redact), _Text.of(after, redact)
    opcodes, pairs = operations(old.lines, new.lines)
    head += _ending_lines(old, new)
    changed = [one for one in opcodes if one[0] != "equal"]
    if changed:
        head += [f"--- a/{path}" if before else "--- /dev/null", f"+++ b/{path}" if after else "+++ /dev/null"]
    elif len(head) == 1:
        # Both sides differ only in what is masked.
        head.append("only what is masked here changed")
    return FileDiff(
        path=path,
        text="\n".join((*head, *_bounded(hunk_lines(old.lines, new.lines, opcodes)))),
        added=sum(one[4] - one[3] for one in changed),
        removed=sum(one[2] - one[1] for one in changed),
        pairs=pairs,
    )


@dataclass(frozen=True, kw_only=True)
class _Text:
    """`lines` keep their line feeds; of a text all of whose lines end with CRLF they are without the CR."""

    lines: list[str]
    ending: str = ""

    @classmethod
    def of(cls, side: FileSide | None, redact: Callable[[str], str]) -> _Text:
        if side is None or side.content is None:
            return cls(lines=[])
        text = redact(side.content.decode("utf-8", "backslashreplace"))
        feeds, pairs = text.count("\n"), text.count("\r\n")
        ending = "" if not feeds else "LF" if not pairs else "CRLF" if pairs == feeds else "mixed"
        if ending == "CRLF":
            text = text.replace("\r\n", "\n")
        lines = [f"{line}\n" for line in text.split("\n")]
        lines[-1] = lines[-1].removesuffix("\n")
        return cls(lines=lines if lines[-1] else lines[:-1], ending=ending)


def _mode_lines(before: FileSide | None, after: FileSide | None) -> Iterator[str]:
    if before is None and after is not None:
        yield f"new file{f' mode {after.mode:o}' if after.mode in (PROGRAM, LINK) else ''}"
    elif after is None and before is not None:
        yield f"deleted file{f' mode {before.mode:o}' if before.mode in (PROGRAM, LINK) else ''}"
    elif before and after and before.mode and after.mode and before.mode != after.mode:
        yield f"old mode {before.mode:o}"
        yield f"new mode {after.mode:o}"


def _instead(before: FileSide | None, after: FileSide | None) -> str:
    """One line that stands for a diff where there can be none."""
    sides = [side for side in (before, after) if side]
    what = "added" if before is None else "deleted" if after is None else "changed"
    is_known = all(side.mode for side in sides)
    sizes = f" ({' → '.join(f'{side.size:,}' for side in sides)} bytes)" if is_known else ""
    if any(side.why == "binary" or b"\0" in (side.content or b"")[:LOOKED_AT] for side in sides):
        return f"binary file {what}{sizes}"
    whys = dict.fromkeys(side.why for side in sides if side.content is None)
    return f"{what}{sizes}, not shown: {', '.join(map(_spelled, whys))}" if whys else ""


def _ending_lines(old: _Text, new: _Text) -> Iterator[str]:
    if old.ending and new.ending and old.ending != new.ending:
        yield f"line endings {old.ending} → {new.ending}"
    elif "CRLF" in (old.ending, new.ending):
        yield "line endings CRLF"


def _bounded(lines: Iterator[str]) -> Iterator[str]:
    """As many lines as may be shown, each cut and on one line, and how many there are more."""
    size = 0
    for line in lines:
        shown = _spelled(line[:LINE_LIMIT])
        if len(line) > LINE_LIMIT:
            shown += f" [… {len(line) - LINE_LIMIT:,} characters left out …]"
        if size + len(shown) > FILE_LIMIT:
            left_out = 1 + sum(1 for _ in lines)
            yield f"… {count(left_out, 'more line')} of this difference left out"
            return
        size += len(shown) + 1
        yield shown


def _spelled(text: str) -> str:
    return BREAKS.sub(lambda match: f"<U+{ord(match[0]):04X}>", text).replace("\n", "<U+000A>")


@dataclass(kw_only=True)
class Budget:
    """What a page may still spend on diffs."""

    characters: int = PAGE_LIMIT
    bytes: int = BYTES_LIMIT
    pairs: int = PAIRS_LIMIT

    @property
    def is_left(self) -> bool:
        """Whether there is any."""
        return min(self.characters, self.bytes, self.pairs) > 0

    def spend(self, change: FileChange, diff: FileDiff) -> None:
        """Take what one file took."""
        self.characters -= len(diff.text)
        self.pairs -= diff.pairs
        self.bytes -= sum(len(side.content or b"") for side in (change.before, change.after) if side)


@dataclass(frozen=True, kw_only=True)
class StepDiff:
    """What one iteration, or all together, changed. `notes` say what is missing."""

    files: tuple[FileDiff, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Diffs:
    """The diffs of a page by the number of the iteration, the one of the whole `run`, and what is to be said of all of
    them."""

    steps: Mapping[int, StepDiff] = field(default_factory=dict)
    run: StepDiff = field(default_factory=StepDiff)
    note: str = ""


def step_diff(
    paths: Iterable[str], look: Callable[[str], FileChange], budget: Budget, redact: Callable[[str], str]
) -> StepDiff:
    """The diff of one iteration; `look` gives what became of a path. What the budget does not allow is counted
    in a note and not looked at."""
    files: list[FileDiff] = []
    left_out = size = 0
    for path in paths:
        if len(files) >= MOST_FILES or size >= STEP_LIMIT or not budget.is_left:
            left_out += 1
        elif diff := file_diff(change := look(path), redact):
            files.append(diff)
            size += len(diff.text)
            budget.spend(change, diff)
    notes = (f"… {count(left_out, 'more file')} left out",) if left_out else ()
    return StepDiff(files=tuple(files), notes=notes)
