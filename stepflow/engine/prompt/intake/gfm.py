"""GitHub's Markdown as far as it can hide text: the blocks of a text by its lines, and what a paragraph hides.

Blocks are found by markdown-it, which keeps to CommonMark. In a paragraph Markdown's order counts: an escape, code, an
address in angle brackets and a tag are read before any bracket."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from markdown_it import MarkdownIt
from markdown_it.common.utils import normalizeReference
from markdown_it.helpers import parseLinkDestination, parseLinkTitle
from markdown_it.rules_block import html_block

from stepflow.domain.visible_text import RemovalKind
from stepflow.engine.prompt.intake.markup import FILTERED_TAG, MARKDOWN_TAG, SHORT_COMMENT, TAG, Scan

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from markdown_it.rules_block import StateBlock
    from markdown_it.token import Token
    from markdown_it.utils import EnvType

    from stepflow.engine.prompt.intake.markup import Edit, Mark

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
    blocks = [*_of_tokens(tokens), *_definitions(env)]
    blocks.sort(key=lambda block: block.start)
    links = {
        label: _address(str(entry["href"]))
        for label, entry in env.get("references", {}).items()
        if not label.startswith("^")
    }
    return Parsed(blocks=tuple(_without_gaps(blocks, text.count("\n") + 1)), links=links)


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
    lines = tokens[at - 2].map
    return lines[0] if lines else 0


def _definitions(env: EnvType) -> Iterator[Block]:
    """Definitions of links; those that begin with `^` are footnotes, which this parser does not know."""
    named = [(label, entry) for label, entry in env.get("references", {}).items()]
    named += [("", entry) for entry in env.get("duplicate_refs", [])]
    for label, entry in named:
        start, end = entry["map"]
        kind = BlockKind.OTHER if (label or entry["label"]).startswith("^") else BlockKind.DEFINITION
        yield Block(kind=kind, start=start, end=end, content=label, mark=str(entry["title"]))


def _without_gaps(blocks: Sequence[Block], lines: int) -> Iterator[Block]:
    """The blocks, and the lines between them as blocks of their own. Of blocks that overlap the first counts."""
    at = 0
    for block in (*blocks, Block(kind=BlockKind.OTHER, start=lines, end=lines + 1)):
        if block.end <= at or block.start < at:
            continue
        if block.start > at:
            yield Block(kind=BlockKind.OTHER, start=at, end=block.start)
        if block.start < lines:
            yield block
        at = block.end


def _address(href: str) -> str:
    return f"<{href}>" if "(" in href or ")" in href or not href else href


_SIGN = re.compile(r"[\\`<&\[\]!]")
_HTML_SIGN = re.compile(r"[<&]")
_ESCAPE = re.compile(r"\\[!-/:-@\[-`{-~]")
_TICKS = re.compile(r"`+")
_AUTOLINK = re.compile(r"<(?:[A-Za-z][A-Za-z0-9+.-]{1,31}:[^\s<>]*+|[\w.!#$%&'*+/=?^`{|}~-]++@[\w.-]++)>", re.ASCII)
#: How what nobody sees begins, and how it ends (GFM 0.29 §6.10); a declaration has the end of its kind.
_UNSEEN = (("<!--", "-->"), ("<?", "?>"), ("<![CDATA[", "]]>"))
_DECLARATION = re.compile(r"<![A-Z]++[ \t\n\v\f\r]")
_LABEL = re.compile(r"\[((?:[^\[\]\\]|\\.){0,999}+)\]", re.DOTALL)
_FOOTNOTE = re.compile(r"\[\^([^\]\s\[]++)\]")
#: CommonMark 0.31 §6.3: a link label has at most 999 characters.
LONGEST_LABEL = 999
#: Longer names of footnotes and labels of links may say something that nobody sees on the page.
LONGEST_NOTE = 12


@dataclass(frozen=True, kw_only=True)
class Opener:
    """A bracket that may begin a link or an image."""

    at: int
    image: bool
    mark: Mark

    @property
    def inside(self) -> int:
        """Where its text begins."""
        return self.at + (2 if self.image else 1)


class InlineScan(Scan):
    """Reads one paragraph from left to right, in one go. `notes` are the footnotes that it refers to, `used` the
    labels of its links."""

    def run(self, links: Mapping[str, str]) -> list[Edit]:
        """The paragraph's edits; `links` are addresses by their normalized labels."""
        self._links = links
        self.notes: set[str] = set()
        self.used: set[str] = set()
        self._openers: list[Opener] = []
        self._inert = 0
        self._ticks: dict[int, list[int]] = {}
        self._none_from: dict[str, int] = {}
        for match in _TICKS.finditer(self.text):
            self._ticks.setdefault(len(match[0]), []).append(match.start())
        at = 0
        while sign := _SIGN.search(self.text, at):
            at = self._read(sign[0], sign.start())
        return self.finish()

    def _read(self, sign: str, at: int) -> int:
        match sign:
            case "\\":
                return at + (2 if _ESCAPE.match(self.text, at) else 1)
            case "`":
                return self._code(at)
            case "<":
                return self._angle(at)
            case "&":
                return self.entity(at)
            case "]":
                return self._close(at)
            case _:
                return self._open(at)

    def _code(self, at: int) -> int:
        """Behind the code that begins here, else behind the ticks."""
        ticks = _TICKS.match(self.text, at)
        length = len(ticks[0]) if ticks else 1
        ends = self._ticks.get(length, [])
        next_end = bisect_right(ends, at)
        return (ends[next_end] if next_end < len(ends) else at) + length

    def _angle(self, at: int) -> int:
        if address := _AUTOLINK.match(self.text, at):
            return address.end()
        end = self._comment_end(at)
        if end > at:
            self.remove(RemovalKind.COMMENT, at, end)
            return end
        if markup := MARKDOWN_TAG.match(self.text, at):
            if FILTERED_TAG.match(self.text, at):
                return self._shown_tag(at, markup.end())
            if tag := TAG.match(self.text, at):
                return self.tag(tag)
        return at + 1

    def _shown_tag(self, at: int, end: int) -> int:
        """A tag that the page shows as text: a browser reads on behind its `<`."""
        while sign := _HTML_SIGN.search(self.text, at + 1, end):
            if sign[0] == "<":
                return self.hide_rest(sign.start())
            at = self.entity(sign.start(), in_html=True) - 1
        return end

    def _comment_end(self, at: int) -> int:
        """Where a comment, instruction or declaration that begins here ends; `at` itself when none does."""
        if short := SHORT_COMMENT.match(self.text, at):
            return short.end()
        declared = _DECLARATION.match(self.text, at)
        other = (declared[0], ">") if declared else ("", "")
        begins, ends = next((each for each in _UNSEEN if self.text.startswith(each[0], at)), other)
        # What was not found once is not looked for again: a thousand beginnings must not take a thousand searches.
        if not begins or at >= self._none_from.get(ends, len(self.text)):
            return at
        if (end := self.text.find(ends, at + len(begins))) >= 0:
            return end + len(ends)
        self._none_from[ends] = at
        return at

    def _open(self, at: int) -> int:
        image = self.text[at] == "!"
        if image and self.text[at + 1 : at + 2] != "[":
            return at + 1
        if not image and (note := _FOOTNOTE.match(self.text, at)):
            return self._footnote(note)
        self._openers.append(Opener(at=at, image=image, mark=self.mark()))
        return at + (2 if image else 1)

    def _footnote(self, note: re.Match[str]) -> int:
        self.notes.add(note[1])
        if len(note[1]) > LONGEST_NOTE:
            short = f"{note[1][:4]}{sum(map(ord, note[1])) % 1000}"
            self.replace(note.start(1), note.end(1), short)
            self.removals.note(RemovalKind.LINK_LABEL, note[1])
        return note.end()

    def _close(self, at: int) -> int:
        """A bracket closes: a link, an image, or nothing."""
        if not self._openers:
            return at + 1
        opener = self._openers.pop()
        inert = not opener.image and len(self._openers) < self._inert
        self._inert = min(self._inert, len(self._openers))
        if inert:
            return at + 1
        return self._direct(opener, at) or self._by_label(opener, at) or at + 1

    def _direct(self, opener: Opener, at: int) -> int:
        """A link or image with its address behind it; 0 when there is none."""
        text, size = self.text, len(self.text)
        if text[at + 1 : at + 2] != "(":
            return 0
        start = _skip_blanks(text, at + 2)
        address = parseLinkDestination(text, start, size)
        after = address.pos if address.ok else start
        behind = end = _skip_blanks(text, after)
        if behind > after and text[behind : behind + 1] in ('"', "'", "("):
            title = parseLinkTitle(text, behind, size)
            if not title.ok:
                return 0
            end = _skip_blanks(text, title.pos)
        if text[end : end + 1] != ")":
            return 0
        self._linked(opener, at)
        if end > behind:
            self.remove(RemovalKind.LINK_TITLE, after, end)
        return end + 1

    def _by_label(self, opener: Opener, at: int) -> int:
        """A link or image whose address the text defines elsewhere; 0 when it does not."""
        own = self.text[opener.inside : at] if at - opener.inside <= LONGEST_LABEL else ""
        label = _LABEL.match(self.text, at + 1)
        given = label[1] if label else ""
        wanted = normalizeReference(given or own)
        if wanted not in self._links or not (given or own).strip() or (not given and ("[" in own or "]" in own)):
            return 0
        end = label.end() if label else at + 1
        self.used.add(wanted)
        self._linked(opener, at)
        address = f"({self._links[wanted]})"
        self.replace(at + 1, end, address if self.removals.may_grow(len(address)) else "")
        if len(given) > LONGEST_NOTE and normalizeReference(own) != wanted:
            self.removals.note(RemovalKind.LINK_LABEL, given)
        return end

    def _linked(self, opener: Opener, at: int) -> None:
        """An image shows no text at all; a link makes the brackets around it plain ones."""
        if not opener.image:
            self._inert = len(self._openers)
            return
        self.go_back(opener.mark)
        if at > opener.inside:
            self.remove(RemovalKind.IMAGE_TEXT, opener.inside, at)


def _skip_blanks(text: str, at: int) -> int:
    while text[at : at + 1] in (" ", "\t", "\n"):
        at += 1
    return at
