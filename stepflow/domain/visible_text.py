"""Which characters people can see, and what was removed from a text because nobody sees it (security.md case 22)."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum

#: What a terminal obeys instead of showing.
ANSI = re.compile(
    r"""(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?          # control sequences such as colors
      | \x1b[\]PX^_][^\x07\x1b\x9c]*+(?:\x07|\x1b\\|\x9c|$|(?=\x1b))  # titles, links and other strings up to their end
      | \x1b[ -/]*[0-~]?                           # everything else that begins with escape
    """,
    re.VERBOSE,
)
#: Letters and marks that fonts show as nothing although Unicode does not class them as format characters: the rest of
#: Default_Ignorable_Code_Point (DerivedCoreProperties.txt), and the blank of Braille.
BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u3164\uffa0\u2800")
#: Joiners and variants belong to the letter or sign before them; elsewhere nobody sees them.
JOINED = re.compile("(?<=[^\x00-\u02ff\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufe00-\ufe0f])[\u200c\u200d\ufe0e\ufe0f]")
JOINERS = re.compile("[\u200c\u200d\ufe0e\ufe0f]")
INVISIBLE_CLASSES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})
#: Characters of the tag block stand for the ASCII characters this far below them.
TAGS = 0xE0000


def is_invisible(character: str) -> bool:
    """True for what nobody sees, line breaks and tabs among it; blanks that take room are seen."""
    if is_variant(character) or character in BLANK:
        return True
    return unicodedata.category(character) in INVISIBLE_CLASSES


def is_variant(character: str) -> bool:
    """True for the two blocks of variation selectors."""
    return "\ufe00" <= character <= "\ufe0f" or "\U000e0100" <= character <= "\U000e01ef"


def seen_part(text: str) -> str:
    """The text without what nobody sees; line breaks, tabs, and joiners where they belong to a letter or sign stay."""
    if text.isascii() and text.replace("\n", "").replace("\t", "").isprintable():
        return text
    text = ANSI.sub("", text.replace("\r\n", "\n"))
    unseen = {ord(c): None for c in set(text) if c not in "\n\t" and not JOINERS.match(c) and is_invisible(c)}
    text = text.translate(unseen)
    return JOINERS.sub(lambda joiner: joiner[0] if JOINED.match(text, joiner.start()) else "", text)


def spell_out(text: str) -> str:
    """The text with its invisible characters written as `<U+200B>`; line breaks and tabs stay."""
    if text.isascii() and text.isprintable():
        return text
    return text.translate({ord(c): f"<U+{ord(c):04X}>" for c in set(text) if c not in "\n\t" and is_invisible(c)})


def read_tags(text: str) -> str:
    """What the characters of the tag block in a text spell in ASCII, empty when it has none."""
    return "".join(chr(ord(c) - TAGS) for c in text if 0x20 <= ord(c) - TAGS <= 0x7E)


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
