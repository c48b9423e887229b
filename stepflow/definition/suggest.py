"""What a check may suggest, before it is known where in the file that is.

Takes: JSON Pointers, words and values. Gives: `Idea`, one edit to be placed; the known word that was surely meant.
May touch: nothing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import TYPE_CHECKING

from stepflow.domain.suggestion import Change

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stepflow.domain.json import JsonValue

#: A word less like any known one is not corrected.
LIKENESS = 0.75


@dataclass(frozen=True, kw_only=True)
class Idea:
    """An edit by JSON Pointer (or by the words that stand in a text). An empty `file` is that of the problem."""

    change: Change
    path: str = ""
    value: str = ""
    #: Text: what stands there now.
    old: str = ""
    file: str = ""
    #: Text: offsets, where the words alone do not say which of them is meant.
    span: tuple[int, int] | None = None


Ideas = tuple[Idea, ...]


def write(path: str, value: JsonValue, *, file: str = "") -> Ideas:
    """Put another value in the place of the one at the pointer."""
    return (Idea(change=Change.REPLACE, path=path, value=json.dumps(value, ensure_ascii=False), file=file),)


def rename(path: str, key: str) -> Ideas:
    """Give the member at the pointer another key."""
    return (Idea(change=Change.RENAME, path=path, value=key),)


def remove(path: str) -> Ideas:
    """Take the member or item at the pointer out."""
    return (Idea(change=Change.REMOVE, path=path),)


def add(path: str, value: JsonValue, *, file: str = "") -> Ideas:
    """Write a new member at the pointer; a last part `-` appends to a list."""
    return (Idea(change=Change.ADD, path=path, value=json.dumps(value, ensure_ascii=False), file=file),)


def reword(old: str, new: str, span: tuple[int, int] | None = None) -> Ideas:
    """Put `new` in the place of `old`, on the line of the problem or at the offsets."""
    return (Idea(change=Change.TEXT, old=old, value=new, span=span),)


def move(old: str, new: str) -> Ideas:
    """Rename a file; both paths are relative to the agent folder."""
    return (Idea(change=Change.MOVE, file=old, value=new),)


def meant(word: str, known: Iterable[str]) -> str | None:
    """The one known word that is surely meant: very like the given one, and more so than every other."""
    rated = sorted(((_likeness(word, one), one) for one in set(known)), reverse=True)
    (best, found), (second, _) = (*rated, (0.0, ""), (0.0, ""))[:2]
    return found if best >= LIKENESS and best > second else None


def write_meant(path: str, word: str, known: Iterable[str]) -> Ideas:
    """The word that was surely meant; nothing when there is none."""
    found = meant(word, known)
    return write(path, found) if found is not None else ()


def _likeness(word: str, known: str) -> float:
    # What differs in capitals alone is the same word to its author.
    return SequenceMatcher(None, word.casefold(), known.casefold()).ratio()
