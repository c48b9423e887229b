"""The texts of a page: each stored once, readable, and bounded.

Takes: texts of the model, of tools and of people. Gives: the table of texts, and where in it each one stands.
May touch: nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepflow.report.visible import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

#: What one text may show at most, in characters: the first limit under which the whole page stays in its bound.
LIMITS = (20_000, 8_000, 3_000, 1_000, 300)
#: Characters of all texts together: a browser reads so many within a second.
PAGE_LIMIT = 16_000_000


class Texts:
    """The table of a page's texts. What is said again and again, such as a system prompt, stands in it once."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}

    def add(self, text: str) -> int:
        """Where this text stands in the table."""
        return self._places.setdefault(text, len(self._places))

    def table(self) -> tuple[list[str], list[int]]:
        """Every text as it is shown, and of each how many characters were left out."""
        limit = limit_for([*map(len, self._places)])
        shown = [_bounded(text, limit) for text in self._places]
        return [text for text, _ in shown], [left_out for _, left_out in shown]


def limit_for(lengths: Sequence[int]) -> int:
    """How much of each text a page may show, so that all of them together stay in its bound."""
    fitting = (limit for limit in LIMITS if sum(min(length, limit) for length in lengths) <= PAGE_LIMIT)
    return next(fitting, LIMITS[-1])


def _bounded(text: str, limit: int) -> tuple[str, int]:
    """The text, or its beginning and its end with a mark between them."""
    if len(text) <= limit:
        return visible(text), 0
    head = limit * 2 // 3
    tail = limit - head
    left_out = len(text) - limit
    return f"{visible(text[:head])}\n[… {left_out:,} characters left out …]\n{visible(text[-tail:])}", left_out
