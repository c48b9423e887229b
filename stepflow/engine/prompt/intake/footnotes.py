"""Footnotes, which are shown only where something refers to them.

Takes: the lines of a text, its blocks. Gives: the lines that belong to footnotes that nothing refers to.
May touch: nothing. The form is cmark-gfm's: `[^name]:` begins one, lines indented by four go on with it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from stepflow.engine.prompt.intake.blocks import Block, BlockKind
from stepflow.engine.prompt.intake.findings import Findings
from stepflow.engine.prompt.intake.hiding import Hiding
from stepflow.engine.prompt.intake.inline import InlineScan

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_BEGIN = re.compile(r"[ \t>]*+(?:(?:[-*+]|\d{1,9}[.)])[ \t]++)*+\[\^(?P<name>[^\]\s\[]++)\]:")
_MARKS = re.compile(r"[ \t]*(?:>[ \t]?)*")
_INDENT = 4
_ENDS_ONE = (BlockKind.FENCE, BlockKind.HTML, BlockKind.ROW)


def unused_footnotes(lines: Sequence[str], blocks: Sequence[Block]) -> frozenset[int]:
    """The lines that GitHub leaves out. What only another footnote refers to counts as unused."""
    kinds = [block.kind for block in blocks for _ in range(block.start, block.end)]
    bodies = dict(_bodies(lines, kinds))
    if not bodies:
        return frozenset()
    inside = {line for body in bodies.values() for line in body}
    used = {name for block in blocks for name in _references(block, lines, inside)}
    begins = ((_BEGIN.match(lines[at]), body) for at, body in bodies.items())
    return frozenset(line for found, body in begins if found and found["name"] not in used for line in body)


def _bodies(lines: Sequence[str], kinds: Sequence[BlockKind]) -> Iterator[tuple[int, range]]:
    """Each footnote's first line, and all its lines."""
    starts = [
        at
        for at, line in enumerate(lines)
        if kinds[at] in (BlockKind.PROSE, BlockKind.OTHER, BlockKind.DEFINITION) and _BEGIN.match(line)
    ]
    for number, start in enumerate(starts):
        end, limit = start + 1, starts[number + 1] if number + 1 < len(starts) else len(lines)
        while end < limit and _goes_on(lines, kinds, end):
            end += 1
        while not lines[end - 1].strip(" \t>"):
            end -= 1
        yield start, range(start, end)


def _goes_on(lines: Sequence[str], kinds: Sequence[BlockKind], at: int) -> bool:
    text = _MARKS.sub("", lines[at], count=1) if ">" in lines[at] else lines[at]
    if not text.strip() or len(text.expandtabs(_INDENT)) - len(text.expandtabs(_INDENT).lstrip()) >= _INDENT:
        return True
    return bool(lines[at - 1].strip(" \t>")) and kinds[at] not in _ENDS_ONE


def _references(block: Block, lines: Sequence[str], inside: set[int]) -> Iterator[str]:
    """The names that a block refers to where people see it; code refers to nothing."""
    if block.kind not in (BlockKind.PROSE, BlockKind.ROW, BlockKind.OTHER):
        return
    if all(line in inside for line in range(block.start, block.end)):
        return
    shown = "\n".join(lines[line] for line in range(block.start, block.end) if line not in inside)
    scan = InlineScan(shown, Findings(where="", growth=0), Hiding())
    scan.run({})
    yield from scan.notes
