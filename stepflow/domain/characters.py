"""Which characters people can see: one truth for what comes in, what is logged and what leaves.

Takes: characters and texts. Gives: whether a character shows, what terminals obey, invisible characters spelled out.
May touch: nothing.
"""

from __future__ import annotations

import re
import unicodedata

#: What a terminal obeys instead of showing.
ANSI = re.compile(
    r"""(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?          # control sequences such as colours
      | \x1b[\]PX^_][^\x07\x1b\x9c]*+(?:\x07|\x1b\\|\x9c|$|(?=\x1b))  # titles, links and other strings up to their end
      | \x1b[ -/]*[0-~]?                           # everything else that begins with escape
    """,
    re.VERBOSE,
)
#: Letters and marks that fonts show as nothing although Unicode does not class them as format characters: the rest of
#: Default_Ignorable_Code_Point (DerivedCoreProperties.txt), and the blank of Braille.
BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u3164\uffa0\u2800")
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


def spell_out(text: str) -> str:
    """The text with its invisible characters written as `<U+200B>`; line breaks and tabs stay."""
    if text.isascii() and text.isprintable():
        return text
    return text.translate({ord(c): f"<U+{ord(c):04X}>" for c in set(text) if c not in "\n\t" and is_invisible(c)})


def read_tags(text: str) -> str:
    """What the characters of the tag block in a text spell in ASCII, empty when it has none."""
    return "".join(chr(ord(c) - TAGS) for c in text if 0x20 <= ord(c) - TAGS <= 0x7E)
