"""The template language of retry prompts: parsing and rendering (prompts.md §9.2).

Values are put in as they are and never parsed again.

No library fits: Handlebars for Python prints lists as Python does, does not look outside of an item, accepts unknown
blocks, and lets its helpers hide values of the same name."""

from __future__ import annotations

import re
from collections.abc import Sequence
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
class Value:
    """A value put in."""

    path: str


@dataclass(kw_only=True)
class Block:
    """A block with its two parts, `otherwise` being None without an `else`. The template itself has no `tag`."""

    word: Word
    path: str = ""
    tag: _Tag | None = None
    body: list[Node] = field(default_factory=list)
    otherwise: list[Node] | None = None

    def add(self, node: Node) -> None:
        """Append a node to the part that is being read."""
        (self.body if self.otherwise is None else self.otherwise).append(node)


Node = str | Value | Block
Template = Sequence[Node]


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


def parse_template(text: str) -> Template:
    """The template's nodes; raises `TemplateFault`."""
    blocks, at = [Block(word=Word.IF)], 0
    for match in TAG.finditer(text):
        raw = match["raw"] is not None
        tag = _Tag(text=match["raw" if raw else "plain"].strip(), line=_line_number(text, match.start()), raw=raw)
        start, end = _whole_line(text, match) if tag.sign in ("#", "/", "else") else match.span()
        blocks[-1].add(_plain(text, at, start))
        _read(tag, blocks)
        at = end
    blocks[-1].add(_plain(text, at, len(text)))
    if blocks[-1].tag:
        raise blocks[-1].tag.fault("is never closed")
    return blocks[0].body


def _plain(text: str, start: int, end: int) -> str:
    opened = text.find("{{", start, end)
    if opened >= 0:
        raise TemplateFault(f"line {_line_number(text, opened)}: {{{{ is never closed with }}}}")
    return text[start:end]


def _line_number(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def _whole_line(text: str, match: re.Match[str]) -> tuple[int, int]:
    """The span of the whole line if the tag stands alone on it, else the tag's own."""
    first = text.rfind("\n", 0, match.start()) + 1
    newline = text.find("\n", match.end())
    last = len(text) if newline < 0 else newline + 1
    around = text[first : match.start()] + text[match.end() : last]
    return match.span() if around.strip() else (first, last)


def _read(tag: _Tag, blocks: list[Block]) -> None:
    """Add what the tag says to the innermost of the open blocks."""
    innermost = blocks[-1]
    match tag.sign:
        case "#":
            opened = _open(tag, depth=len(blocks))
            innermost.add(opened)
            blocks.append(opened)
        case "/":
            if not innermost.tag:
                raise tag.fault("closes a block that was never opened")
            if tag.text[1:].strip() != innermost.word:
                raise tag.fault(f"cannot close {{{{{innermost.tag.text}}}}} of line {innermost.tag.line}")
            blocks.pop()
        case "else":
            if not innermost.tag:
                raise tag.fault("stands outside of a block")
            if innermost.otherwise is not None:
                raise tag.fault("is the second one of its block")
            innermost.otherwise = []
        case "":
            innermost.add(Value(path=_path(tag, tag.text)))


def _open(tag: _Tag, *, depth: int) -> Block:
    word, path = (*tag.text[1:].split(maxsplit=1), "", "")[:2]
    if word not in set(Word):
        raise tag.fault("is not a block; there are each, if and unless")
    if depth > DEEPEST:
        raise tag.fault(f"stands more than {DEEPEST} blocks deep")
    return Block(word=Word(word), path=_path(tag, path.strip()), tag=tag)


def _path(tag: _Tag, path: str) -> str:
    if not PATH.fullmatch(path):
        raise tag.fault("holds no plain name; write for example {{error}}, {{this.file}} or {{#if error}}")
    return path


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
                yield from names_in(node.otherwise or (), asked)
                if node.word is not Word.EACH:
                    yield from names_in(node.body, asked | {node.path.split(".")[0]})
            case str():
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
            case str():
                yield node
            case Value():
                yield _text(_look_up(node.path, scope))
            case Block():
                yield from _render_block(node, _look_up(node.path, scope), scope)
            case _:
                assert_never(node)


def _render_block(block: Block, value: JsonValue, scope: _Scope) -> Iterator[str]:
    otherwise = block.otherwise or ()
    if block.word is not Word.EACH:
        holds = value not in (None, False, 0, "", [])
        yield from _render(block.body if holds is (block.word is Word.IF) else otherwise, scope)
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield from _render(block.body, _Scope(item=item, index=index, outer=scope))
    else:
        yield from _render(otherwise, scope)


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
