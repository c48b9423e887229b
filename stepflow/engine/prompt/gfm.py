"""The parts of GitHub's Markdown that can hide text: blocks by their lines, and what a paragraph hides.

markdown-it finds the blocks, by CommonMark. Inside a paragraph, Markdown's precedence counts: escapes, code, addresses
in angle brackets, and tags are read before any bracket.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from markdown_it import MarkdownIt
from markdown_it.common.utils import normalizeReference
from markdown_it.helpers import parseLinkDestination, parseLinkLabel
from markdown_it.rules_block import StateBlock, html_block
from markdown_it.rules_inline import StateInline, image, link
from markdown_it.token import Token
from markdown_it.utils import EnvType

from stepflow.domain.text import RemovalKind
from stepflow.engine.prompt.markup import ENTITY, FILTERED_TAG, MARKDOWN_TAG, SHORT_COMMENT, TAG, Edit, Scan

#: Blocks that are nested deeper are not parsed, but read line by line.
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
class MarkdownBlock:
    """The lines from `start` to before `end`."""

    kind: BlockKind
    start: int
    end: int
    #: The lines without quote marks and indentation; a fence's info string; a definition's label.
    content: str = ""
    #: A fence's opening mark, or a definition's title.
    mark: str = ""
    #: How many cells a row shows.
    cells: int = 0


@dataclass(frozen=True, kw_only=True)
class ParsedMarkdown:
    """Blocks in the order of their lines, without gaps; and addresses by the labels of their definitions."""

    blocks: tuple[MarkdownBlock, ...]
    links: Mapping[str, str]


def _html_block(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Parse a block of raw HTML. In GitHub's parser, a declaration in lower case does not begin one."""
    begins = state.bMarks[start] + state.tShift[start]
    return not _SMALL_DECLARATION.match(state.src, begins) and html_block(state, start, end, silent)


class _MarkdownParser(MarkdownIt):
    """Accepts any address of a link, as GitHub's parser does; the page drops unsafe ones later."""

    def validateLink(self, url: str) -> bool:
        return True


_PARSER = _MarkdownParser("commonmark", {"maxNesting": DEEPEST}).enable("table")
_PARSER.core.ruler.enableOnly(["normalize", "block"])
_PARSER.block.ruler.at("html_block", _html_block, {"alt": ["paragraph", "reference", "blockquote"]})


def parse_blocks(text: str) -> ParsedMarkdown:
    """Parse a text into blocks, with every line in exactly one."""
    env: EnvType = {}
    tokens = _PARSER.parse(text, env)
    blocks = [*_read_tokens(tokens), *_read_definitions(env)]
    blocks.sort(key=lambda block: block.start)
    links = {
        label: _address(str(entry["href"]))
        for label, entry in env.get("references", {}).items()
        if not label.startswith("^")
    }
    return ParsedMarkdown(blocks=tuple(_fill_gaps(blocks, text.count("\n") + 1)), links=links)


def _read_tokens(tokens: Sequence[Token]) -> Iterator[MarkdownBlock]:
    cells = 0
    for at, token in enumerate(tokens):
        start, end = token.map or (0, 0)
        match token.type:
            case "fence":
                yield MarkdownBlock(kind=BlockKind.FENCE, start=start, end=end, content=token.info, mark=token.markup)
            case "code_block":
                yield MarkdownBlock(kind=BlockKind.CODE, start=start, end=end)
            case "html_block":
                yield MarkdownBlock(kind=BlockKind.HTML, start=start, end=end, content=token.content)
            case "thead_open":
                cells = 0
            case "th_open":
                cells += 1
            case "tr_close":
                yield MarkdownBlock(
                    kind=BlockKind.ROW, start=_row_line(tokens, at), end=_row_line(tokens, at) + 1, cells=cells
                )
            case "inline" if not tokens[at - 1].type.startswith(("th_", "td_")):
                yield MarkdownBlock(kind=BlockKind.PROSE, start=start, end=end, content=token.content)
            case _:
                pass


def _row_line(tokens: Sequence[Token], at: int) -> int:
    """Return the line of the row that ends here, from its last cell."""
    lines = tokens[at - 2].map
    return lines[0] if lines else 0


def _read_definitions(env: EnvType) -> Iterator[MarkdownBlock]:
    """Yield link definitions. Labels that begin with `^` are footnotes, which this parser does not support."""
    named = [(label, entry) for label, entry in env.get("references", {}).items()]
    named += [("", entry) for entry in env.get("duplicate_refs", [])]
    for label, entry in named:
        start, end = entry["map"]
        kind = BlockKind.OTHER if (label or entry["label"]).startswith("^") else BlockKind.DEFINITION
        yield MarkdownBlock(kind=kind, start=start, end=end, content=label, mark=str(entry["title"]))


def _fill_gaps(blocks: Sequence[MarkdownBlock], lines: int) -> Iterator[MarkdownBlock]:
    """Yield the blocks, and the lines between them as separate blocks. If blocks overlap, the first one counts."""
    at = 0
    for block in (*blocks, MarkdownBlock(kind=BlockKind.OTHER, start=lines, end=lines + 1)):
        if block.end <= at or block.start < at:
            continue
        if block.start > at:
            yield MarkdownBlock(kind=BlockKind.OTHER, start=at, end=block.start)
        if block.start < lines:
            yield block
        at = block.end


def _address(href: str) -> str:
    return f"<{href}>" if "(" in href or ")" in href or not href else href


_HTML_SIGN = re.compile(r"[<&]")
#: Start and end of markup that is never shown (GFM 0.29 §6.10); a declaration ends at the first `>`.
_UNSEEN = (("<!--", "-->"), ("<?", "?>"), ("<![CDATA[", "]]>"))
_DECLARATION = re.compile(r"<![A-Z]++[ \t\n\v\f\r]")
_FOOTNOTE = re.compile(r"\[\^([^\]\s\[]++)\]")
#: Longer footnote names and link labels could carry text that nobody sees on the page.
LONGEST_NOTE = 12


class _NestedTooDeep(Exception):
    """More brackets are open at once than the parser follows."""


class InlineScan(Scan):
    """Scans one paragraph by the rules of `_PARSER`. `notes` are the footnotes that it refers to, `used` the labels of
    its links."""

    def run(self, links: Mapping[str, str]) -> list[Edit]:
        """Return the paragraph's edits; `links` are addresses by their normalized labels."""
        self._links = links
        self.notes: set[str] = set()
        self.used: set[str] = set()
        self._none_from: dict[str, int] = {}
        self.last_bracket = self.text.rfind("]")
        before = len(self.removals.pieces)
        references = {label: {"href": address, "title": ""} for label, address in links.items()}
        state = StateInline(self.text, _PARSER, {"references": references, "scan": self}, [])
        try:
            _PARSER.inline.tokenize(state)
        except _NestedTooDeep:
            del self.removals.pieces[before:]
            self.removals.note(RemovalKind.TOO_DEEP, self.text)
            return [Edit(start=0, end=len(self.text))]
        return self.finish()

    def markup_end(self, at: int) -> int:
        """Return the end of the tag, comment, processing instruction or declaration at `at`; `at` itself if there is
        none."""
        if short := SHORT_COMMENT.match(self.text, at) or MARKDOWN_TAG.match(self.text, at):
            return short.end()
        declared = _DECLARATION.match(self.text, at)
        other = (declared[0], ">") if declared else ("", "")
        begins, ends = next((each for each in _UNSEEN if self.text.startswith(each[0], at)), other)
        # An end that was not found is not searched again: a thousand unclosed starts must not take a thousand searches.
        if not begins or at >= self._none_from.get(ends, len(self.text)):
            return at
        if (end := self.text.find(ends, at + len(begins))) >= 0:
            return end + len(ends)
        self._none_from[ends] = at
        return at

    def markup(self, start: int, end: int) -> None:
        """Remove what people do not see of a tag or a comment."""
        if self.text[start + 1] in "!?":
            self.remove(RemovalKind.COMMENT, start, end)
        elif FILTERED_TAG.match(self.text, start):
            self._scan_shown_tag(start, end)
        elif tag := TAG.match(self.text, start):
            self.tag(tag)

    def _scan_shown_tag(self, at: int, end: int) -> None:
        """Scan a tag that the page shows as text: a browser continues after its `<`."""
        while sign := _HTML_SIGN.search(self.text, at + 1, end):
            if sign[0] == "<":
                self.hide_rest(sign.start())
                return
            at = self.entity(sign.start(), in_html=True) - 1

    def footnote(self, note: re.Match[str]) -> None:
        """Note a footnote, and shorten a long name: the page does not show it."""
        self.notes.add(note[1])
        if len(note[1]) > LONGEST_NOTE:
            short = f"{note[1][:4]}{sum(map(ord, note[1])) % 1000}"
            self.replace(note.start(1), note.end(1), short)
            self.removals.note(RemovalKind.LINK_LABEL, note[1])

    def link(self, inside: int, close: int, end: int) -> str:
        """Remove the title of a link or an image whose text is from `inside` to `close`, and return its address, which
        stays."""
        text = self.text
        if text.startswith("(", close + 1) and end > close + 1:
            start = _skip_blanks(text, close + 2)
            address = parseLinkDestination(text, start, end)
            after = address.pos if address.ok else start
            if _skip_blanks(text, after) < end - 1:
                self.remove(RemovalKind.LINK_TITLE, after, end - 1)
            return address.str
        shown_text, label = text[inside:close], text[close + 2 : end - 1]
        wanted = normalizeReference(label or shown_text)
        self.used.add(wanted)
        address_text = f"({self._links[wanted]})"
        self.replace(close + 1, end, address_text if self.removals.may_grow(len(address_text)) else "")
        if len(label) > LONGEST_NOTE and normalizeReference(shown_text) != wanted:
            self.removals.note(RemovalKind.LINK_LABEL, label)
        return self._links[wanted]

    def image(self, inside: int, close: int, end: int) -> None:
        """Remove an image's text, which the page does not show."""
        if close > inside:
            self.remove(RemovalKind.IMAGE_TEXT, inside, close)
        address = self.link(inside, close, end)
        if not self.hiding.hides:
            self.removals.images.append(address)


def _skip_blanks(text: str, at: int) -> int:
    while text[at : at + 1] in (" ", "\t", "\n"):
        at += 1
    return at


# These rules report to the scan what the parser finds in a paragraph; a `silent` rule only finds where something ends.


def _is_at(state: StateInline, sign: str) -> bool:
    """Whether the sign is at this position. Raises `_NestedTooDeep` inside too many brackets."""
    if state.src[state.pos] != sign:
        return False
    if state.level >= DEEPEST:
        raise _NestedTooDeep
    return True


def _link(state: StateInline, silent: bool) -> bool:
    scan: InlineScan = state.env["scan"]
    start = state.pos
    if start > scan.last_bracket or not _is_at(state, "[") or not link(state, silent):
        return False
    if not silent:
        scan.link(start + 1, parseLinkLabel(state, start, True), state.pos)
    return True


def _image(state: StateInline, silent: bool) -> bool:
    start = state.pos
    # Always silent, since none of its text is seen.
    if not _is_at(state, "!") or not image(state, True):
        return False
    if not silent:
        state.env["scan"].image(start + 2, parseLinkLabel(state, start + 1), state.pos)
    return True


def _footnote(state: StateInline, silent: bool) -> bool:
    note = None if silent else _FOOTNOTE.match(state.src, state.pos)
    if not note:
        return False
    state.env["scan"].footnote(note)
    state.pos = note.end()
    return True


def _markup(state: StateInline, silent: bool) -> bool:
    scan: InlineScan = state.env["scan"]
    start, end = state.pos, scan.markup_end(state.pos) if state.src[state.pos] == "<" else state.pos
    if not silent and end > start:
        scan.markup(start, end)
    state.pos = end
    return end > start


def _entity(state: StateInline, silent: bool) -> bool:
    spelled = ENTITY.match(state.src, state.pos)
    if not spelled:
        return False
    if not silent:
        state.env["scan"].entity(state.pos)
    state.pos = spelled.end()
    return True


_PARSER.inline.ruler.at("link", _link)
_PARSER.inline.ruler.after("link", "footnote", _footnote)
_PARSER.inline.ruler.at("image", _image)
_PARSER.inline.ruler.at("html_inline", _markup)
_PARSER.inline.ruler.at("entity", _entity)
_PARSER.inline.ruler.enableOnly(
    ["text", "escape", "backticks", "link", "footnote", "image", "autolink", "html_inline", "entity"]
)
