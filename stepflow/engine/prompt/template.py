"""The template language of retry prompts (prompts.md §9.2).

Takes: a template's text or nodes, and values. Gives: what is wrong with it, or the text it makes.
May touch: nothing. Values are put in as they are: no escaping, and they are never parsed again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

from stepflow.domain.json import JsonObject, JsonValue, compact, value_at
from stepflow.engine.prompt.template_parser import Block, Template, TemplateFault, Text, Value, Word, parse_template

if TYPE_CHECKING:
    from collections.abc import Iterator


def parse_retry_template(text: str) -> str | None:
    """What keeps this text from being a template, None when nothing does (SF513)."""
    try:
        parse_template(text)
    except TemplateFault as fault:
        return str(fault)
    return None


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
