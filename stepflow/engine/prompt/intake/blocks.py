"""The blocks of a Markdown text, by its lines, as GitHub's parser divides them.

Takes: a text with plain line breaks. Gives: its blocks in order, and the links that it defines.
May touch: nothing. The parser is markdown-it, which keeps to CommonMark; it is used for blocks alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from markdown_it import MarkdownIt
from markdown_it.rules_block import html_block

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from markdown_it.rules_block import StateBlock
    from markdown_it.token import Token
    from markdown_it.utils import EnvType

#: Blocks deeper than this are not parsed; what is in them is read line by line.
DEEPEST = 100
_SMALL_DECLARATION = re.compile(r"<![a-z]")


class BlockKind(StrEnum):
    """How the lines of a block are read."""

    PROSE = "prose"
    ROW = "row"
    HTML = "html"
    CODE = "code"
    FENCE = "fence"
    DEFINITION = "definition"
    OTHER = "other"


@dataclass(frozen=True, kw_only=True)
class Block:
    """The lines from `start` to before `end`. `content` is what the parser sees of them without quote marks and
    indentation, of a fence its words, of a definition its label; `mark` is a fence's own sign, or a definition's title;
    `cells` how many cells a row shows."""

    kind: BlockKind
    start: int
    end: int
    content: str = ""
    mark: str = ""
    cells: int = 0


@dataclass(frozen=True, kw_only=True)
class Parsed:
    """Blocks in the order of their lines, without gaps between them; addresses by the labels of their definitions."""

    blocks: tuple[Block, ...]
    links: Mapping[str, str]


def _html_block(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """A block of raw HTML; to GitHub's parser a declaration in small letters begins none."""
    begins = state.bMarks[start] + state.tShift[start]
    return not _SMALL_DECLARATION.match(state.src, begins) and html_block(state, start, end, silent)


_PARSER = MarkdownIt("commonmark", {"maxNesting": DEEPEST}).enable("table")
_PARSER.core.ruler.enableOnly(["normalize", "block"])
_PARSER.block.ruler.at("html_block", _html_block, {"alt": ["paragraph", "reference", "blockquote"]})


def parse_blocks(text: str) -> Parsed:
    """Every line of the text in exactly one block."""
    env: EnvType = {}
    tokens = _PARSER.parse(text, env)
    found = [*_of_tokens(tokens), *_definitions(env)]
    found.sort(key=lambda block: block.start)
    links = {
        label: _address(str(entry["href"]))
        for label, entry in env.get("references", {}).items()
        if not label.startswith("^")
    }
    return Parsed(blocks=tuple(_without_gaps(found, text.count("\n") + 1)), links=links)


def _of_tokens(tokens: Sequence[Token]) -> Iterator[Block]:
    cells = 0
    for at, token in enumerate(tokens):
        start, end = token.map or (0, 0)
        match token.type:
            case "fence":
                yield Block(kind=BlockKind.FENCE, start=start, end=end, content=token.info, mark=token.markup)
            case "code_block":
                yield Block(kind=BlockKind.CODE, start=start, end=end)
            case "html_block":
                yield Block(kind=BlockKind.HTML, start=start, end=end, content=token.content)
            case "thead_open":
                cells = 0
            case "th_open":
                cells += 1
            case "tr_close":
                yield Block(kind=BlockKind.ROW, start=_row(tokens, at), end=_row(tokens, at) + 1, cells=cells)
            case "inline" if not tokens[at - 1].type.startswith(("th_", "td_")):
                yield Block(kind=BlockKind.PROSE, start=start, end=end, content=token.content)
            case _:
                pass


def _row(tokens: Sequence[Token], at: int) -> int:
    """The line of the row that closes here: its last cell knows it."""
    place = tokens[at - 2].map
    return place[0] if place else 0


def _definitions(env: EnvType) -> Iterator[Block]:
    """Definitions of links; those that begin with `^` are footnotes, which this parser does not know."""
    named = [(label, entry) for label, entry in env.get("references", {}).items()]
    named += [("", entry) for entry in env.get("duplicate_refs", [])]
    for label, entry in named:
        start, end = entry["map"]
        kind = BlockKind.OTHER if (label or entry["label"]).startswith("^") else BlockKind.DEFINITION
        yield Block(kind=kind, start=start, end=end, content=label, mark=str(entry["title"]))


def _without_gaps(found: Sequence[Block], lines: int) -> Iterator[Block]:
    """The blocks, and the lines between them as blocks of their own. Of blocks that overlap the first counts."""
    at = 0
    for block in (*found, Block(kind=BlockKind.OTHER, start=lines, end=lines + 1)):
        if block.end <= at or block.start < at:
            continue
        if block.start > at:
            yield Block(kind=BlockKind.OTHER, start=at, end=block.start)
        if block.start < lines:
            yield block
        at = block.end


def _address(href: str) -> str:
    return f"<{href}>" if "(" in href or ")" in href or not href else href
