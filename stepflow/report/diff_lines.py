"""The lines of a unified diff between two texts, in bounded time whatever the texts are.

Takes: lines with their line breaks. Gives: lines of hunks, each beginning with a blank, `+`, `-`, `@@` or `\\`.
May touch: nothing.
"""

from __future__ import annotations

from collections import Counter
from difflib import SequenceMatcher
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

#: Equal lines around what changed.
CONTEXT = 3
#: What comparing two texts may cost, in pairs of lines without what is equal at both ends; an equal pair counts more.
#: Measured, a million takes up to 0.3 s. Beyond, all of it is told as replaced: difflib takes minutes for two texts
#: that somebody made for it.
MOST_PAIRS = 2_000_000
EQUAL_COUNTS = 20
NEWLINE = "\n"

#: As difflib tells it: what, and from where to where in the lines before and after.
Operation = tuple[str, int, int, int, int]


def operations(before: Sequence[str], after: Sequence[str]) -> tuple[list[Operation], int]:
    """What makes the one of the other, and what it cost in pairs of lines."""
    shorter = min(len(before), len(after))
    head = next((at for at in range(shorter) if before[at] != after[at]), shorter)
    tail = next((at for at in range(shorter - head) if before[-1 - at] != after[-1 - at]), shorter - head)
    old, new = len(before) - tail, len(after) - tail
    middle: list[Operation] = [("replace", head, old, head, new)]
    pairs = _pairs(before[head:old], after[head:new])
    if pairs <= MOST_PAIRS:
        inner = SequenceMatcher(None, before[head:old], after[head:new]).get_opcodes()
        middle = [(tag, head + i1, head + i2, head + j1, head + j2) for tag, i1, i2, j1, j2 in inner]
    ends: tuple[Operation, Operation] = (
        ("equal", 0, head, 0, head),
        ("equal", old, len(before), new, len(after)),
    )
    found = [one for one in (ends[0], *middle, ends[1]) if one[2] > one[1] or one[4] > one[3]]
    return found, pairs if pairs <= MOST_PAIRS else 0


def hunk_lines(before: Sequence[str], after: Sequence[str], found: Sequence[Operation]) -> Iterator[str]:
    """The hunks, line by line, without line breaks at their ends."""
    for hunk in _hunks(found):
        first, last = hunk[0], hunk[-1]
        yield f"@@ -{_range(first[1], last[2])} +{_range(first[3], last[4])} @@"
        for tag, i1, i2, j1, j2 in hunk:
            if tag == "equal":
                yield from _marked(" ", before[i1:i2])
            else:
                yield from _marked("-", before[i1:i2])
                yield from _marked("+", after[j1:j2])


def _pairs(before: Sequence[str], after: Sequence[str]) -> int:
    common = Counter(after)
    return len(before) * len(after) + EQUAL_COUNTS * sum(common[line] for line in before)


def _hunks(found: Sequence[Operation]) -> Iterator[list[Operation]]:
    """What changed, with the equal lines around it; changes that stand close together are one hunk."""
    hunk: list[Operation] = []
    for tag, i1, i2, j1, j2 in found:
        if tag != "equal":
            hunk.append((tag, i1, i2, j1, j2))
            continue
        if any(one[0] != "equal" for one in hunk):
            if i2 - i1 <= 2 * CONTEXT:
                hunk.append((tag, i1, i2, j1, j2))
                continue
            yield [*hunk, (tag, i1, i1 + CONTEXT, j1, j1 + CONTEXT)]
        hunk = [(tag, max(i1, i2 - CONTEXT), i2, max(j1, j2 - CONTEXT), j2)]
    if any(one[0] != "equal" for one in hunk):
        tag, i1, i2, j1, j2 = hunk[-1]
        yield hunk if tag != "equal" else [*hunk[:-1], (tag, i1, min(i2, i1 + CONTEXT), j1, min(j2, j1 + CONTEXT))]


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
