"""Columns of text in any script, for terminals and logs.

Takes: rows of cells. Gives: lines whose columns begin below each other where every character has its usual width.
May touch: nothing.
"""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def aligned(rows: Iterable[Sequence[str]]) -> tuple[str, ...]:
    """One line per row, two blanks between columns, none at the end."""
    cells = [list(row) for row in rows]
    widths = [max(map(width, column)) for column in zip(*cells, strict=True)]
    return tuple(_line(row, widths) for row in cells)


def width(text: str) -> int:
    """How many places a terminal gives the text: East Asian characters take two, combining marks none."""
    if text.isascii():
        return len(text)
    return sum(_places(character) for character in text)


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell + " " * (wide - width(cell)) for cell, wide in zip(row, widths, strict=True)).rstrip()


def _places(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1
