"""The change to the files of an agent that mends a problem.

Takes: nothing. Gives: `Suggestion`, a change in words and as edits that a program can apply.
May touch: nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Change(StrEnum):
    """What an edit does: to a value of a JSON file, to a key, to a piece of text, or to a file as a whole."""

    REPLACE = "replace"
    RENAME = "rename"
    REMOVE = "remove"
    ADD = "add"
    TEXT = "text"
    MOVE = "move"


@dataclass(frozen=True, kw_only=True)
class Region:
    """A piece of a text: lines and columns from 1, in characters; the end is the first character after it."""

    line: int
    column: int
    end_line: int
    end_column: int


@dataclass(frozen=True, kw_only=True)
class Edit:
    """One edit. `file` is relative to the repository root, `path` a JSON Pointer into it.

    `value` is JSON (replace, add), the new key (rename), the new text (text) or the new path of the file (move).
    `region` becomes `text`: whoever replaces it has made the edit. A move has no region.
    """

    change: Change
    file: str = ""
    path: str = ""
    value: str = ""
    region: Region | None = None
    text: str = ""


@dataclass(frozen=True, kw_only=True)
class Suggestion:
    """Edits that together mend one problem, and the same as a sentence."""

    words: str
    edits: tuple[Edit, ...]
