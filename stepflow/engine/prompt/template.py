"""The template language of retry prompts: parsing and rendering (prompts.md §9.2).

Values are put in as they are and never parsed again.

No library fits: Handlebars for Python prints lists as Python does, does not look outside of an item, accepts unknown
blocks, and lets its helpers hide values of the same name."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, assert_never

from stepflow.domain.json import JsonObject, JsonValue, compact, value_at

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Deeper nesting is refused, so that rendering cannot run out of stack.
DEEPEST = 50

TAG = re.compile(r"\{\{\{(?P<raw>.*?)\}\}\}|\{\{(?P<plain>.*?)\}\}", re.DOTALL)
PATH = re.compile(r"@index|[\w$-]+(?:\.[\w$-]+)*")


class TemplateFault(ValueError):
    """A template that cannot be parsed."""


class Word(StrEnum):
    """The blocks there are."""

    EACH = "each"
    IF = "if"
    UNLESS = "unless"


@dataclass(frozen=True, kw_only=True)
class Text:
    """Characters that stay as they are."""

    text: str


@dataclass(frozen=True, kw_only=True)
class Value:
    """A value put in."""

    path: str


@dataclass(frozen=True, kw_only=True)
class Block:
    """A block with its two parts."""

    word: Word
    path: str
    body: Template
    otherwise: Template


Node = Text | Value | Block
Template = tuple[Node, ...]


def parse_template(text: str) -> Template:
    """The template's nodes; raises `TemplateFault`."""
    frames = [_Frame()]
    for piece in _pieces(text):
        if isinstance(piece, Text):
            frames[-1].add(piece)
        else:
            _read(piece, frames)
    if frames[-1].tag:
        raise frames[-1].tag.fault("is never closed")
    return tuple(frames[-1].parts[0])


@dataclass(frozen=True, kw_only=True)
class _Tag:
    """What stands between braces. `line` is 1-based; `raw` marks three braces, which only values have."""

    text: str
    line: int
    raw: bool

    @property
    def sign(self) -> str:
        """`#`, `/`, `!` or `else`; empty for a value."""
        if self.raw:
            return ""
        return "else" if self.text == "else" else self.text[:1] if self.text[:1] in ("#", "/", "!") else ""

    def fault(self, why: str) -> TemplateFault:
        return TemplateFault(f"line {self.line}: {{{{{self.text}}}}} {why}")


@dataclass(kw_only=True)
class _Frame:
    """A block that the parser is inside of, or the template itself (no tag). `parts` are body and else part."""

    tag: _Tag | None = None
    word: Word = Word.IF
    path: str = ""
    parts: list[list[Node]] = field(default_factory=lambda: [[]])

    def add(self, node: Node) -> None:
        self.parts[-1].append(node)

    def block(self) -> Block:
        otherwise = tuple(self.parts[1]) if len(self.parts) > 1 else ()
        return Block(word=self.word, path=self.path, body=tuple(self.parts[0]), otherwise=otherwise)


def _pieces(text: str) -> Iterator[Text | _Tag]:
    """Text and tags in turn; a block tag alone on its line takes the line with it."""
    at = 0
    for match in TAG.finditer(text):
        raw = match["raw"] is not None
        tag = _Tag(text=match["raw" if raw else "plain"].strip(), line=_line_number(text, match.start()), raw=raw)
        start, end = _whole_line(text, match) if tag.sign in ("#", "/", "else") else match.span()
        yield _plain(text, at, start)
        yield tag
        at = end
    yield _plain(text, at, len(text))


def _plain(text: str, start: int, end: int) -> Text:
    opened = text.find("{{", start, end)
    if opened >= 0:
        raise TemplateFault(f"line {_line_number(text, opened)}: {{{{ is never closed with }}}}")
    return Text(text=text[start:end])


def _line_number(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def _whole_line(text: str, match: re.Match[str]) -> tuple[int, int]:
    """The span of the whole line if the tag stands alone on it, else the tag's own."""
    first = text.rfind("\n", 0, match.start()) + 1
    newline = text.find("\n", match.end())
    last = len(text) if newline < 0 else newline + 1
    around = text[first : match.start()] + text[match.end() : last]
    return match.span() if around.strip() else (first, last)


def _read(tag: _Tag, frames: list[_Frame]) -> None:
    match tag.sign:
        case "#":
            frames.append(_open(tag, depth=len(frames)))
        case "/":
            block = _close(tag, frames)
            frames[-1].add(block)
        case "else":
            _switch(tag, frames[-1])
        case "":
            frames[-1].add(Value(path=_path(tag, tag.text)))


def _open(tag: _Tag, *, depth: int) -> _Frame:
    word, path = (*tag.text[1:].split(maxsplit=1), "", "")[:2]
    if word not in set(Word):
        raise tag.fault("is not a block; there are each, if and unless")
    if depth > DEEPEST:
        raise tag.fault(f"stands more than {DEEPEST} blocks deep")
    return _Frame(tag=tag, word=Word(word), path=_path(tag, path.strip()))


def _path(tag: _Tag, path: str) -> str:
    if not PATH.fullmatch(path):
        raise tag.fault("holds no plain name; write for example {{error}}, {{this.file}} or {{#if error}}")
    return path


def _close(tag: _Tag, frames: list[_Frame]) -> Block:
    opened = frames[-1].tag
    if not opened:
        raise tag.fault("closes a block that was never opened")
    if tag.text[1:].strip() != frames[-1].word:
        raise tag.fault(f"cannot close {{{{{opened.text}}}}} of line {opened.line}")
    return frames.pop().block()


def _switch(tag: _Tag, frame: _Frame) -> None:
    if not frame.tag:
        raise tag.fault("stands outside of a block")
    if len(frame.parts) > 1:
        raise tag.fault("is the second one of its block")
    frame.parts.append([])


def parse_retry_template(text: str) -> str | None:
    """What keeps this text from being a template, None when nothing does (SF513)."""
    try:
        parse_template(text)
    except TemplateFault as fault:
        return str(fault)
    return None


def names_in(template: Template, asked: frozenset[str] = frozenset()) -> Iterator[str]:
    """The first names of the values that are put in unasked: within an `each` they may be an item's, and a block may
    ask for what only some failures have. `asked` are the names that blocks around ask for."""
    for node in template:
        match node:
            case Value():
                yield from {node.path.split(".")[0]} - asked
            case Block():
                yield from names_in(node.otherwise, asked)
                if node.word is not Word.EACH:
                    yield from names_in(node.body, asked | {node.path.split(".")[0]})
            case Text():
                pass


def render_template(template: Template, values: JsonObject) -> str:
    """The text that a template makes of these values. Never fails: what is missing is empty."""
    return "".join(_render(template, _Scope(item=values)))


@dataclass(frozen=True, kw_only=True)
class _Scope:
    """Where names are looked up: an item of an `each` (or all values), and what lies outside it."""

    item: JsonValue
    index: int | None = None
    outer: _Scope | None = None


def _render(template: Template, scope: _Scope) -> Iterator[str]:
    for node in template:
        match node:
            case Text():
                yield node.text
            case Value():
                yield _text(_look_up(node.path, scope))
            case Block():
                yield from _render_block(node, scope)
            case _:
                assert_never(node)


def _render_block(block: Block, scope: _Scope) -> Iterator[str]:
    value = _look_up(block.path, scope)
    match block.word:
        case Word.EACH:
            yield from _render_each(block, value, scope)
        case Word.IF:
            yield from _render(block.body if _holds(value) else block.otherwise, scope)
        case Word.UNLESS:
            yield from _render(block.otherwise if _holds(value) else block.body, scope)
        case _:
            assert_never(block.word)


def _render_each(block: Block, items: JsonValue, scope: _Scope) -> Iterator[str]:
    if not isinstance(items, list) or not items:
        yield from _render(block.otherwise, scope)
        return
    for index, item in enumerate(items):
        yield from _render(block.body, _Scope(item=item, index=index, outer=scope))


def _look_up(path: str, scope: _Scope) -> JsonValue:
    """The value of a name: in the innermost item that has it, else outside."""
    first, _, rest = path.partition(".")
    if first == "@index":
        return scope.index
    if first == "this":
        return value_at(scope.item, rest) if rest else scope.item
    here: _Scope | None = scope
    while here:
        if isinstance(here.item, dict) and first in here.item:
            return value_at(here.item, path)
        here = here.outer
    return None


def _holds(value: JsonValue) -> bool:
    return value not in (None, False, 0, "", [])


def _text(value: JsonValue) -> str:
    match value:
        case None:
            return ""
        case str():
            return value
        case list() if all(isinstance(item, str | int | float) for item in value):
            return ", ".join(_text(item) for item in value)
        case _:
            return compact(value)
