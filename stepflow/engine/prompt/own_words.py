"""What the author of a comment says to others in it, as GitHub's page shows it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html.parser import HTMLParser

from stepflow.domain.text import replace_surrogates
from stepflow.engine.prompt.github_page import render_page

#: Elements whose text is code, somebody else's, an address, or folded away: GitHub notifies nobody whom it mentions.
_ASIDE = frozenset({"code", "pre", "tt", "samp", "kbd", "blockquote", "a", "details"})
#: Elements that go on in their line.
_INLINE = frozenset(
    re.findall(r"\w+", "b i strong em code tt ins del sup sub q samp kbd var ruby rt rp s strike a img")
)
#: Stands for a picture in a text.
_PICTURE = "\N{OBJECT REPLACEMENT CHARACTER}"
#: Below it, Outlook puts the message that is answered, without marks for a quote.
_ORIGINAL_MESSAGE = re.compile(
    r"^[^\S\n]*(?:-{3,} ?Original Message ?-{3,}|_{16,})[^\S\n]*$", re.MULTILINE | re.IGNORECASE
)


@dataclass(frozen=True, kw_only=True)
class OwnWords:
    """What the author of a comment says to others in it: the first line, empty if it begins with something else, and
    the whole text."""

    first_line: str
    text: str


def read_own_words(markdown: str) -> OwnWords:
    """Return the words that GitHub's page shows as the author's own: not code, quotes, links, or what is folded
    away."""
    reader = _OwnWords()
    reader.feed(render_page(replace_surrogates(markdown)))
    reader.close()
    shown = "".join(text for text, _ in reader.pieces).strip()
    begins_own = next((is_own for text, is_own in reader.pieces if text.strip()), False)
    own = "".join(text if is_own else " " for text, is_own in reader.pieces)
    return OwnWords(
        first_line=shown.partition("\n")[0] if begins_own else "", text=_ORIGINAL_MESSAGE.split(own, maxsplit=1)[0]
    )


class _OwnWords(HTMLParser):
    """Collects the text of clean HTML, each piece with whether it is the author's own."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.pieces: list[tuple[str, bool]] = []
        #: How many open elements are asides.
        self._asides = 0

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        self._asides += tag in _ASIDE
        if tag == "img":
            self.pieces.append((_PICTURE, False))
        elif tag not in _INLINE:
            self.pieces.append(("\n", True))

    def handle_endtag(self, tag: str) -> None:
        self._asides -= tag in _ASIDE
        if tag not in _INLINE:
            self.pieces.append(("\n", True))

    def handle_data(self, data: str) -> None:
        self.pieces.append((data, not self._asides))
