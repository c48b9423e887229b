"""Text for a page in which every sign is seen, in any script.

Takes: text of the model, of tools and of people. Gives: the same text, with what would be hidden spelled out.
May touch: nothing.
"""

from __future__ import annotations

import re

from stepflow.domain.characters import ANSI, spell_out
from stepflow.report.plain import LINE_BREAK

#: Joiners and variants belong to the letter or sign before them; elsewhere nobody sees them, so they are spelled out.
JOINED = re.compile("(?<=[^\x00-\u02ff\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufe00-\ufe0f])[\u200c\u200d\ufe0e\ufe0f]")


def visible(text: str) -> str:
    """A text with its line breaks, without what terminals obey, and with every invisible character spelled out."""
    text = LINE_BREAK.sub("\n", ANSI.sub("", text))
    if text.isascii() and text.replace("\n", "").replace("\t", "").isprintable():
        return text
    kept = JOINED.split(text)
    if len(kept) == 1:
        return spell_out(text)
    joiners = JOINED.findall(text)
    return "".join(spell_out(piece) + joiner for piece, joiner in zip(kept, [*joiners, ""], strict=True))
