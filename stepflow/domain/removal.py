"""What was taken out of a text from outside before a model saw it, for the people who are told.

Takes: nothing. Gives: `RemovedPiece`, `RemovedText` and the kinds.
May touch: nothing (security.md case 22). The types are imported at run time because journal and report read them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum


class RemovalKind(StrEnum):
    """Why people do not see a piece of text on GitHub's page."""

    COMMENT = "HTML comment"
    ELEMENT = "hidden part"
    TAG = "HTML tag"
    ATTRIBUTE = "HTML attribute"
    IMAGE_TEXT = "image text"
    LINK_TITLE = "link title"
    LINK_LABEL = "link label"
    DEFINITION = "link definition"
    FOOTNOTE = "unused footnote"
    FENCE_WORDS = "words behind a fence"
    DRAWN = "drawn block"
    TABLE_CELL = "surplus table cell"
    CHARACTERS = "invisible characters"
    TOO_DEEP = "text nested too deep"
    CUT = "text beyond the limit"


@dataclass(frozen=True, kw_only=True)
class RemovedPiece:
    """One piece. `where` says which text it was taken from; in `text` invisible characters are spelled out."""

    kind: RemovalKind
    where: str
    text: str


@dataclass(frozen=True, kw_only=True)
class RemovedText:
    """How many pieces were removed, and the first of them, each cut."""

    count: int = 0
    pieces: tuple[RemovedPiece, ...] = ()


def count_kinds(pieces: tuple[RemovedPiece, ...]) -> str:
    """The kinds of some pieces in words: `HTML comment ×2, image text`."""
    counts = Counter(piece.kind for piece in pieces)
    return ", ".join(f"{kind} ×{number}" if number > 1 else kind for kind, number in counts.items())
