"""JSON as a person would lay it out: what fits on a line stands on one.

Takes: JSON. Gives: text of lines up to `WIDTH`, where words allow it.
May touch: nothing.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stepflow.domain.json import JsonValue

WIDTH = 120
INDENT = "  "


def layout_json(document: JsonValue) -> str:
    """The text of a file."""
    return f"{_laid_out(document, '', 0)}\n"


def _laid_out(value: JsonValue, indent: str, before: int) -> str:
    """`before`: how many places of the first line are taken already."""
    flat = _flat(value)
    if before + len(flat) <= WIDTH and (indent or not isinstance(value, dict)):
        return flat
    inner = indent + INDENT
    match value:
        case dict():
            named = ((f"{json.dumps(key, ensure_ascii=False)}: ", each) for key, each in value.items())
            lines = (f"{name}{_laid_out(each, inner, len(inner + name) + 1)}" for name, each in named)
            return _block("{", lines, "}", indent)
        case list():
            return _block("[", (_laid_out(each, inner, len(inner) + 1) for each in value), "]", indent)
        case _:
            return flat


def _block(begin: str, lines: Iterable[str], end: str, indent: str) -> str:
    return f"{begin}\n{indent}{INDENT}" + f",\n{indent}{INDENT}".join(lines) + f"\n{indent}{end}"


def _flat(value: JsonValue) -> str:
    match value:
        case dict() if value:
            inner = (f"{json.dumps(key, ensure_ascii=False)}: {_flat(each)}" for key, each in value.items())
            return f"{{ {', '.join(inner)} }}"
        case list():
            return f"[{', '.join(map(_flat, value))}]"
        case _:
            return json.dumps(value, ensure_ascii=False)
