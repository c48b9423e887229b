"""A Markdown text without what GitHub's page does not show.

Takes: a text with plain line breaks. Gives: the text that people see, code and all visible words as they were written.
May touch: the findings that it was given (security.md case 22).
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

from stepflow.domain.removal import RemovalKind
from stepflow.engine.prompt.intake.blocks import Block, BlockKind, parse_blocks
from stepflow.engine.prompt.intake.findings import edited
from stepflow.engine.prompt.intake.footnotes import unused_footnotes
from stepflow.engine.prompt.intake.frames import framed
from stepflow.engine.prompt.intake.hiding import Hiding
from stepflow.engine.prompt.intake.inline import InlineScan
from stepflow.engine.prompt.intake.raw import RawScan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stepflow.engine.prompt.intake.findings import Edit, Findings

#: Fences that GitHub draws: people see a picture and not this text.
DRAWN = frozenset({"mermaid", "geojson", "topojson", "stl"})
#: A language's name; anything longer is a sentence.
_LANGUAGE = re.compile(r"[A-Za-z0-9_+#.-]{1,20}")
_SIGNS = re.compile(r"[<&\[]")
_PIPE = re.compile(r"(?<!\\)\|")


def seen_markdown(text: str, findings: Findings) -> str:
    """What people see of a text."""
    return _Page(text, findings).seen()


class _Page:
    def __init__(self, text: str, findings: Findings) -> None:
        self._lines, self._findings = text.split("\n"), findings
        self._parsed = parse_blocks(text)
        self._hiding = Hiding()
        self._used: set[str] = set()
        self._unused = unused_footnotes(self._lines, self._parsed.blocks)

    def seen(self) -> str:
        """Block for block; a block of which nothing is left takes its lines along."""
        parts = [part for block in self._parsed.blocks for part in self._pieces(block)]
        for block in self._parsed.blocks:
            if block.kind is BlockKind.DEFINITION:
                self._note_definition(block)
        return "\n".join(part for part in parts if part is not None)

    def _pieces(self, block: Block) -> Iterator[str | None]:
        """The block, or its lines one by one where some of them belong to a footnote that is not shown."""
        if self._hiding.to_the_end:
            self._findings.note(RemovalKind.ELEMENT, self._source(block))
            return
        if not self._unused or self._unused.isdisjoint(range(block.start, block.end)):
            yield self._seen(block)
            return
        for line in range(block.start, block.end):
            if line in self._unused:
                self._findings.note(RemovalKind.FOOTNOTE, self._lines[line])
            else:
                yield self._single(self._lines[line])

    def _seen(self, block: Block) -> str | None:
        match block.kind:
            case BlockKind.HTML | BlockKind.PROSE:
                return self._rewritten(block)
            case BlockKind.ROW:
                return self._row(block)
            case BlockKind.OTHER:
                return self._other(block)
            case BlockKind.FENCE | BlockKind.CODE:
                return self._code(block)
            case BlockKind.DEFINITION:
                return None

    def _source(self, block: Block) -> str:
        return "\n".join(self._lines[block.start : block.end])

    def _note_definition(self, block: Block) -> None:
        """Links have their addresses beside them now; a definition that serves none was hidden text."""
        if block.content not in self._used:
            self._findings.note(RemovalKind.DEFINITION, self._source(block))
        else:
            self._findings.note(RemovalKind.LINK_TITLE, block.mark)

    def _code(self, block: Block) -> str | None:
        if self._hiding.hides:
            self._findings.note(RemovalKind.ELEMENT, self._source(block))
            return None
        return self._fence(block) if block.kind is BlockKind.FENCE else self._source(block)

    def _fence(self, block: Block) -> str | None:
        words = block.content.split()
        if words and words[0].lower() in DRAWN:
            self._findings.note(RemovalKind.DRAWN, self._source(block))
            return None
        first, *rest = self._lines[block.start : block.end]
        language = words[0] if words and _LANGUAGE.fullmatch(words[0]) else ""
        if block.content.strip() != language:
            self._findings.note(RemovalKind.FENCE_WORDS, block.content)
            first = first[: first.index(block.mark) + len(block.mark)] + language
        return "\n".join((first, *rest))

    def _rewritten(self, block: Block) -> str | None:
        """A paragraph or a block of raw HTML: its content edited, what stands around each line kept."""
        lines = self._lines[block.start : block.end]
        content = block.content.removesuffix("\n") if block.kind is BlockKind.HTML else block.content
        return framed(lines, content, self._scan(block.kind, content))

    def _scan(self, kind: BlockKind, content: str) -> list[Edit]:
        if not self._hiding.hides and not _SIGNS.search(content):
            return []
        if kind is BlockKind.HTML:
            raw = RawScan(content, self._findings, self._hiding)
            edits, self._hiding = raw.run(), raw.hiding
        else:
            inline = InlineScan(content, self._findings, self._hiding)
            edits, self._hiding = inline.run(self._parsed.links), inline.hiding
            self._used |= inline.used
        return edits

    def _other(self, block: Block) -> str | None:
        """Rules, underlines and empty lines; and what is nested too deep to be parsed."""
        source = self._source(block)
        if not self._hiding.hides and not _SIGNS.search(source):
            return source
        parts = [self._single(self._lines[line]) for line in range(block.start, block.end)]
        kept = [part for part in parts if part is not None]
        return "\n".join(kept) if kept else None

    def _single(self, line: str) -> str | None:
        return framed([line], line, self._scan(BlockKind.PROSE, line))

    def _row(self, block: Block) -> str | None:
        """Cell for cell: nothing goes on from one to the next, and cells without a column are not shown."""
        line = self._lines[block.start]
        bounds = [0, *(pipe.end() for pipe in _PIPE.finditer(line)), len(line)]
        cells = [line[start:end] for start, end in pairwise(bounds)]
        shown = block.cells + (1 if not cells[0].removesuffix("|").strip(" \t>") else 0)
        surplus = "".join(cells[shown:])
        if surplus.strip(" \t|"):
            self._findings.note(RemovalKind.TABLE_CELL, surplus)
            cells = cells[:shown]
        return "".join(edited(cell, self._scan(BlockKind.PROSE, cell)) for cell in cells)
