"""A piece of a file with a mark under what is meant, as a terminal shows it.

Takes: the text of a file, a line and columns. Gives: the line, cut to a width, and the line of the mark.
May touch: nothing.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

from stepflow.report.plain import ELLIPSIS, clean

#: Of a line that is longer than there is room, so much is shown before the mark.
BEFORE = 30


@dataclass(frozen=True, kw_only=True)
class Excerpt:
    """Lines with their numbers; the last of them is the one that is meant. `mark` has its carets, or nothing."""

    lines: tuple[tuple[int, str], ...]
    mark: str


def excerpt(text: str, line: int, columns: tuple[int, int] | None, *, room: int) -> Excerpt | None:
    """The line with the one before it; None when the text has no such line. `room` is the width for a line."""
    rows = text.split("\n")
    if not 0 < line <= len(rows):
        return None
    above = _seen(rows[line - 2].rstrip("\r")) if line > 1 else ""
    before = ((line - 1, _cut(above, room)),) if above.strip() else ()
    shown, mark = _marked(rows[line - 1].rstrip("\r"), columns, room)
    return Excerpt(lines=(*before, (line, shown)), mark=mark)


def _seen(text: str) -> str:
    """What is visible of a part of a line. More than `\\n` breaks lines for a terminal, and for a job's runner."""
    return clean(text).replace("\n", " ")


def width_of(text: str) -> int:
    """How many cells of a terminal a text takes."""
    return sum(_cells(sign) for sign in text)


def _cells(sign: str) -> int:
    if unicodedata.combining(sign):
        return 0
    return 2 if unicodedata.east_asian_width(sign) in "WF" else 1


def _marked(row: str, columns: tuple[int, int] | None, room: int) -> tuple[str, str]:
    if columns is None:
        return _cut(_seen(row), room), ""
    head, meant, rest = (
        _seen(part) for part in (row[: columns[0] - 1], row[columns[0] - 1 : columns[1] - 1], row[columns[1] - 1 :])
    )
    if width_of(head) + width_of(meant) > room and width_of(head) > BEFORE:
        head = ELLIPSIS + head[-BEFORE:]
    meant = _cut(meant, max(room - width_of(head), 1))
    rest = _cut(rest, max(room - width_of(head) - width_of(meant), 1))
    return (head + meant + rest).rstrip(), " " * width_of(head) + "^" * max(width_of(meant), 1)


def _cut(text: str, room: int) -> str:
    """The beginning of a text that takes no more than `room` cells."""
    if width_of(text) <= room:
        return text
    used = 0
    for at, sign in enumerate(text):
        used += _cells(sign)
        if used > room - 1:
            return text[:at] + ELLIPSIS
    return text
