"""The texts of a page: each stored once, readable, and bounded.

Takes: texts of the model, of tools and of people. Gives: the table of texts, and where in it each one stands.
May touch: nothing. What is stored never grows beyond the bound, however long the run was.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

from stepflow.report.plain import visible

#: What one text may show at most, in characters; the next limit holds for all as soon as the page would grow too large.
LIMITS = (20_000, 8_000, 3_000, 1_000, 300)
#: Characters of all texts together: a browser reads so many within a second.
PAGE_LIMIT = 16_000_000
#: A longer text is remembered by its digest.
SHORT = 200


@dataclass(frozen=True)
class Shown:
    """The beginning of a text, and where it was cut also its end, and how many characters are missing between them."""

    head: str
    tail: str = ""
    left_out: int = 0

    @property
    def text(self) -> str:
        """What stands on the page."""
        if not self.left_out:
            return self.head
        return f"{self.head}\n[… {self.left_out:,} characters left out …]\n{self.tail}"


class Texts:
    """The table of a page's texts. What is said again and again, such as a system prompt, stands in it once."""

    def __init__(self) -> None:
        self._places: dict[str | bytes, int] = {}
        self._shown: list[Shown] = []
        self._size = 0
        self._limits = list(LIMITS)

    def add(self, text: str) -> int:
        """Where this text stands in the table."""
        key = text if len(text) <= SHORT else blake2b(text.encode("utf-8", "surrogatepass")).digest()
        if key not in self._places:
            self._places[key] = len(self._shown)
            self._shown.append(cut_to(text, self._limits[0]))
            self._size += len(self._shown[-1].text)
        while self._size > PAGE_LIMIT and len(self._limits) > 1:
            self._limits.pop(0)
            self._shown = [cut_more(shown, self._limits[0]) for shown in self._shown]
            self._size = sum(len(shown.text) for shown in self._shown)
        return self._places[key]

    def table(self) -> tuple[list[str], list[int]]:
        """Every text as it is shown, and of each how many characters were left out."""
        return [shown.text for shown in self._shown], [shown.left_out for shown in self._shown]


def cut_to(text: str, limit: int) -> Shown:
    """The text, or so many characters of its beginning and its end."""
    if len(text) <= limit:
        return Shown(visible(text))
    head = limit * 2 // 3
    return Shown(visible(text[:head]), visible(text[head - limit :]), len(text) - limit)


def cut_more(shown: Shown, limit: int) -> Shown:
    """What is shown, cut to a lower limit."""
    whole = shown.head + shown.tail
    if len(whole) <= limit:
        return shown
    head = min(limit * 2 // 3, len(shown.head))
    tail = whole[head - limit :]
    return Shown(whole[:head], tail, shown.left_out + len(whole) - limit)
