"""The template language of every prompt: of steps, sections, checks, retries and the system prompt.

`{uv-NAME}` and `{{NAME}}` are values, and so is `{NAME}` outside of a code block; blocks are `{{#if}}`, `{{#unless}}`
and `{{#each}}`. A tag with an unknown name stays as it is written, and so does one after a backslash or a `$`. Values
are inserted as they are and never parsed again.

No library fits: Handlebars for Python prints lists as Python does, cannot look outside of an item, accepts unknown
blocks, and lets its helpers hide values of the same name."""

from __future__ import annotations

import re
import sys
from bisect import bisect_right
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import assert_never

from stepflow.domain.conversation import Substitution
from stepflow.domain.json import JsonObject, JsonValue, compact, value_at

#: Blocks that are nested deeper are plain text, so that rendering cannot run out of stack.
DEEPEST = 50

#: Everything that may be a tag. Double braces come before single ones, so that both are consumed.
_FORMS = re.compile(
    r"(?P<sign>[\\$]?)(?P<written>\{\{!(?:(?!\{\{!).)*?\}\}|\{\{\{(?!uv-)(?P<triple>[^{}]*)\}\}\}|\{\{(?P<double>[^{}]*)\}\}"
    r"|\{(?P<single>[ \t]*uv[:-][^{}\s]*[ \t]*|section:[A-Za-z0-9._-]+|[A-Za-z_][\w-]*(?:\.[\w-]+)*)\})",
    re.DOTALL,
)
_OPENED = re.compile(r"\{\{")
_NAME = re.compile(r"[A-Za-z0-9_-]+")
_PATH = re.compile(r"@index|[\w$-]+(?:\.[\w$-]+)*")
_SECTION = re.compile(r"section:([A-Za-z0-9._-]+)")
#: What may be between double braces in this language or a similar one; anything else in braces is plain text.
_LIKE_A_TAG = re.compile(r"[#/>^&@.].*|else\b.*|[\w$./-]+(?:\s+[\w$./-]+)*(?:\s*\|.*)?|", re.DOTALL)
_FENCE = re.compile(
    r"^[ \t]*(?P<fence>`{3,}|~{3,})[^\n]*$.*?(?:^[ \t]*(?P=fence)[`~]*[ \t]*$|\Z)", re.DOTALL | re.MULTILINE
)
_CODE_SPAN = re.compile(r"(?<!`)(?P<ticks>`{1,2})(?!`)[^\n]+?(?<!`)(?P=ticks)(?!`)")


class Word(StrEnum):
    """The kinds of blocks."""

    EACH = "each"
    IF = "if"
    UNLESS = "unless"


class Use(StrEnum):
    """What a tag is in its template."""

    #: A value, or a block that asks for one.
    VALUE = "value"
    SECTION = "section"
    #: The name is unknown: the tag stays as text.
    UNKNOWN = "unknown"
    #: Not valid in this language: the tag stays as text.
    FAULT = "fault"


@dataclass(frozen=True, kw_only=True)
class Tag:
    """A tag of a template."""

    #: The tag as it is written.
    written: str
    start: int
    use: Use
    #: What the tag refers to: a variable's name or a dotted path into it, or a section.
    path: str = ""
    #: The tag is in a code block or between backticks.
    in_code: bool = False
    #: The value may be missing, because an enclosing block tests for it, or belongs to an item.
    is_asked: bool = False
    #: What is wrong with the tag.
    fault: str = ""

    @property
    def name(self) -> str:
        """The name of the variable, or of the section."""
        return self.path if self.use is Use.SECTION else name_of(self.path)

    @property
    def is_explicit(self) -> bool:
        """Whether it is marked as a variable: `{uv-NAME}`."""
        return self.written.startswith(("{uv-", "{{uv-"))


@dataclass(frozen=True, kw_only=True)
class Value:
    """A value to insert. An explicit one, `{uv-NAME}`, must not be missing."""

    path: str
    is_explicit: bool = False


@dataclass(kw_only=True)
class Block:
    """A block with its one or two parts. The template itself is a block without a `word`."""

    word: str = ""
    path: str = ""
    tag: Tag | None = None
    #: The block is plain text: its tags are kept.
    is_text: bool = True
    #: The text that its opening tag and its `else` replaced.
    opening: str = ""
    middle: str = ""
    body: list[Node] = field(default_factory=list)
    #: The part after `else`; None without one.
    otherwise: list[Node] | None = None

    @property
    def last(self) -> list[Node]:
        """The part that is being parsed."""
        return self.body if self.otherwise is None else self.otherwise


Node = str | Value | Block


@dataclass(frozen=True, kw_only=True)
class Template:
    """A parsed text, with its tags in order."""

    nodes: Sequence[Node]
    tags: tuple[Tag, ...]

    @property
    def faults(self) -> tuple[Tag, ...]:
        """The tags that are not valid in this language."""
        return tuple(tag for tag in self.tags if tag.use is Use.FAULT)


def parse_template(
    text: str,
    known: Container[str] = (),
    *,
    is_open: bool = True,
    is_closed: bool = False,
    sections: Mapping[str, str] | None = None,
) -> Template:
    """Parse a text as a template; every text is a valid one. `known` are the names of values.

    With `is_open`, `{{NAME}}` is a value whatever its name; with `is_closed`, `{uv-NAME}` is one only if its name is
    known. `sections` replace `{section:ID}`, and do not nest.
    """
    return _TemplateParser(
        text=text, known=known, is_open=is_open, is_closed=is_closed, sections=sections or {}
    ).parse()


@dataclass(kw_only=True)
class _TemplateParser:
    text: str
    known: Container[str]
    is_open: bool
    is_closed: bool
    sections: Mapping[str, str]
    tags: list[Tag] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=lambda: [Block()])
    at: int = 0

    def parse(self) -> Template:
        fences = [match.span() for match in _FENCE.finditer(self.text)]
        spans = sorted((*fences, *(match.span() for match in _CODE_SPAN.finditer(self.text))))
        for match in _FORMS.finditer(self.text):
            start = match.start("written")
            in_fence = _within(fences, start)
            self.read(match, in_fence=in_fence, in_code=in_fence or _within(spans, start))
        self.put(len(self.text), len(self.text))
        while len(self.blocks) > 1:
            self.end_unclosed(self.blocks.pop())
        taken = sorted(match.span() for match in _FORMS.finditer(self.text))
        for opened in _OPENED.finditer(self.text):
            start = opened.start()
            if not _within(taken, start) and not _within(spans, start):
                fault = "is never closed with }}"
                self.tags.append(Tag(written=self.text[start:].split("\n")[0], start=start, use=Use.FAULT, fault=fault))
        return Template(nodes=self.blocks[0].body, tags=tuple(sorted(self.tags, key=lambda tag: tag.start)))

    def read(self, match: re.Match[str], *, in_fence: bool, in_code: bool) -> None:
        """Add a form to the innermost open block; plain text is left for the next form."""
        content, single = (match["triple"] or match["double"] or match["single"] or "").strip(), match["single"]
        tag = Tag(written=match["written"], start=match.start("written"), use=Use.VALUE, in_code=in_code)
        is_note, is_uv = tag.written.startswith("{{!"), content.startswith("uv-")
        if match["sign"] == "$" and not is_uv:
            return
        if match["sign"] == "\\" and not (single and in_fence and not is_uv and single not in self.known):
            self.put(match.start(), match.end(), tag.written)
        elif is_note:
            self.put(tag.start, match.end())
        elif is_uv:
            self.read_variable(tag, content[3:], match.end())
        elif section := _SECTION.fullmatch(content):
            self.read_section(tag, section[1], match.end())
        elif single is not None:
            self.read_value(tag, content, match.end(), is_value=not in_fence and content in self.known)
        elif (match["triple"] is None and content[:1] in ("#", "/")) or content == "else":
            self.read_block(tag, content, match)
        elif _PATH.fullmatch(content):
            self.read_value(tag, content, match.end(), is_value=self.knows(content))
        elif _LIKE_A_TAG.fullmatch(content):
            self.fault(tag, "has no plain name; write for example {{error}}, {{this.file}} or {{#if error}}")

    def knows(self, path: str) -> bool:
        in_each = any(block.word == Word.EACH and not block.is_text for block in self.blocks)
        return in_each or self.is_open or name_of(path) in self.known

    def is_asked_around(self, path: str) -> bool:
        around = [block for block in self.blocks if not block.is_text and block.otherwise is None]
        return any(block.word == Word.EACH or name_of(block.path) == name_of(path) for block in around)

    def put(self, start: int, end: int, *nodes: Node) -> None:
        """Add the text before `start`, then the nodes that replace the text from there to `end`."""
        self.blocks[-1].last.extend((self.text[self.at : start], *nodes))
        self.at = end

    def fault(self, tag: Tag, why: str) -> None:
        """Report a tag that stays as text, except in a code block of a prompt, where it may be intended."""
        if not tag.in_code or self.is_open:
            self.tags.append(replace(tag, use=Use.FAULT, fault=why))

    def read_variable(self, tag: Tag, name: str, end: int) -> None:
        if _NAME.fullmatch(name):
            self.read_value(tag, name, end, is_value=not self.is_closed or name in self.known)
        elif re.fullmatch(r"[\w.-]+", name):
            self.tags.append(replace(tag, use=Use.UNKNOWN, path=name))

    def read_value(self, tag: Tag, path: str, end: int, *, is_value: bool) -> None:
        use = Use.VALUE if is_value else Use.UNKNOWN
        self.tags.append(replace(tag, use=use, path=path, is_asked=self.is_asked_around(path)))
        if is_value:
            self.put(tag.start, end, Value(path=path, is_explicit=tag.is_explicit))

    def read_section(self, tag: Tag, name: str, end: int) -> None:
        self.tags.append(replace(tag, use=Use.SECTION, path=name))
        if name in self.sections:
            self.put(tag.start, end, *parse_template(self.sections[name], self.known, is_open=self.is_open).nodes)

    def read_block(self, tag: Tag, content: str, match: re.Match[str]) -> None:
        inner = self.blocks[-1]
        if content.startswith("#"):
            self.open(tag, content, match)
        elif content == "else":
            if not inner.word:
                self.fault(tag, "is outside of a block")
            elif inner.otherwise is not None:
                self.fault(tag, "is the second one of its block")
            else:
                start, end = self.whole_line(match, inner)
                inner.middle = self.text[start:end]
                self.put(start, end, *((tag.written,) if inner.is_text else ()))
                inner.otherwise = inner.body if inner.is_text else []
        elif not inner.word:
            self.fault(tag, "closes a block that was never opened")
        elif content[1:].strip() != inner.word:
            opened = inner.tag.written if inner.tag else ""
            line = self.text.count("\n", 0, inner.tag.start if inner.tag else 0) + 1
            self.fault(tag, f"cannot close {opened} of line {line}")
        else:
            self.put(*self.whole_line(match, inner), *((tag.written,) if inner.is_text else ()))
            self.blocks.pop()

    def open(self, tag: Tag, content: str, match: re.Match[str]) -> None:
        word, path = (*content[1:].split(maxsplit=1), "", "")[:2]
        path = path.strip()
        why = ""
        if word not in set(Word):
            why = "is not a block; the blocks are each, if and unless"
        elif len(self.blocks) > DEEPEST:
            why = f"is more than {DEEPEST} blocks deep"
        elif not _PATH.fullmatch(path):
            why = "has no plain name; write for example {{error}}, {{this.file}} or {{#if error}}"
        is_known = not why and self.knows(path)
        if why:
            self.fault(tag, why)
        else:
            tag = replace(tag, use=Use.VALUE if is_known else Use.UNKNOWN, path=path, is_asked=True)
            self.tags.append(tag)
        is_text = bool(why) or (tag.in_code and not is_known)
        block = Block(word=word or "#", path=path, tag=tag, is_text=is_text)
        start, end = self.whole_line(match, block)
        block.opening = self.text[start:end]
        self.put(start, end, *((tag.written,) if is_text else (block,)))
        if is_text:
            block.body = self.blocks[-1].last  # its text continues in the enclosing block
        self.blocks.append(block)

    def whole_line(self, match: re.Match[str], block: Block) -> tuple[int, int]:
        """Return the span of the whole line if a tag of the block is alone on it, else that of the tag."""
        start, end = match.span("written")
        if block.is_text:
            return start, end
        first = self.text.rfind("\n", 0, start) + 1
        newline = self.text.find("\n", end)
        last = len(self.text) if newline < 0 else newline + 1
        around = self.text[first:start] + self.text[end:last]
        return (start, end) if around.strip() else (first, last)

    def end_unclosed(self, block: Block) -> None:
        """Turn a block without an end back into text."""
        if block.tag is None:
            return
        if not block.is_text:
            outer = self.blocks[-1].last
            at = next(index for index, node in enumerate(outer) if node is block)
            outer[at : at + 1] = [block.opening, *block.body, block.middle, *(block.otherwise or ())]
            self.tags.remove(block.tag)
        self.fault(block.tag, "is never closed")


def name_of(path: str) -> str:
    """Return the name of the variable that a path begins with."""
    return path.removeprefix("uv.").partition(".")[0]


def _within(spans: list[tuple[int, int]], at: int) -> bool:
    """Whether a position is inside one of these spans, which are sorted."""
    index = bisect_right(spans, (at, sys.maxsize)) - 1
    return index >= 0 and spans[index][0] <= at < spans[index][1]


@dataclass(frozen=True, kw_only=True)
class Filled:
    """A filled template. `missing` are the names of `{uv-NAME}` tags without a value."""

    text: str
    substitutions: tuple[Substitution, ...] = ()
    missing: tuple[str, ...] = ()


def fill_template(
    template: Template, values: JsonObject, texts: Mapping[str, str] | None = None, otherwise: str = ""
) -> Filled:
    """Fill a template with values. Never fails: `otherwise` replaces a missing value. `texts` are values with a text of
    their own, used instead of the usual form of a list or an object."""
    filler = _Filler(texts=texts or {}, otherwise=otherwise)
    text = "".join(filler.fill(template.nodes, _Scope(item=values)))
    missing = tuple(dict.fromkeys(filler.missing))
    return Filled(text=text, substitutions=tuple(filler.substitutions), missing=missing)


@dataclass(frozen=True, kw_only=True)
class _Scope:
    """Where names are looked up: an item of an `each` (or all values), and the scope outside it."""

    item: JsonValue
    index: int | None = None
    outer: _Scope | None = None


@dataclass(kw_only=True)
class _Filler:
    texts: Mapping[str, str]
    otherwise: str
    length: int = 0
    substitutions: list[Substitution] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    def fill(self, nodes: Sequence[Node], scope: _Scope) -> Iterator[str]:
        for node in nodes:
            match node:
                case str():
                    self.length += len(node)
                    yield node
                case Value():
                    yield self.put(node, scope)
                case Block():
                    yield from self.fill_block(node, _look_up(node.path, scope), scope)
                case _:
                    assert_never(node)

    def put(self, node: Value, scope: _Scope) -> str:
        value, name = _look_up(node.path, scope), name_of(node.path)
        text = None if _is_in_item(node.path, scope) else self.texts.get(node.path.removeprefix("uv."))
        if text is None and value is None and scope.outer is None:
            text = self.otherwise
            if node.is_explicit:
                self.missing.append(name)
        elif text is None:
            text = _format_value(value)
        if text:
            self.substitutions.append(Substitution(name=name, start=self.length, end=self.length + len(text)))
        self.length += len(text)
        return text

    def fill_block(self, block: Block, value: JsonValue, scope: _Scope) -> Iterator[str]:
        otherwise = block.otherwise or ()
        if block.word != Word.EACH:
            holds = value not in (None, False, 0, "", [])
            yield from self.fill(block.body if holds is (block.word == Word.IF) else otherwise, scope)
        elif isinstance(value, list) and value:
            for index, item in enumerate(value):
                yield from self.fill(block.body, _Scope(item=item, index=index, outer=scope))
        else:
            yield from self.fill(otherwise, scope)


def _is_in_item(path: str, scope: _Scope) -> bool:
    """Whether the item of an enclosing `each` has this name."""
    first = path.partition(".")[0]
    here: _Scope | None = scope
    while here and here.outer:
        if first in ("this", "@index") or (isinstance(here.item, dict) and first in here.item):
            return True
        here = here.outer
    return False


def _look_up(path: str, scope: _Scope) -> JsonValue:
    """Return the value of a name, from the innermost item that has it, else from all values."""
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


def _format_value(value: JsonValue) -> str:
    match value:
        case None:
            return ""
        case str():
            return value
        case list() if all(isinstance(item, str | int | float) for item in value):
            return ", ".join(_format_value(item) for item in value)
        case _:
            return compact(value)
