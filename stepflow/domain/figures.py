"""Money and numbers of things as words, the same wherever a person meets them."""

from __future__ import annotations

from dataclasses import dataclass

#: US dollars; what costs less is not written with digits that are all zero.
SMALLEST = 0.0001


def usd(amount: float | None) -> str:
    """`$1.24`; amounts below a dollar with four digits, `unknown` where a price is."""
    if amount is None:
        return "unknown"
    if amount < 0:
        return f"-{usd(-amount)}"
    if 0 < amount < SMALLEST:
        return f"less than ${SMALLEST}"
    return f"${amount:,.2f}" if amount == 0 or round(amount, 4) >= 1 else f"${amount:.4f}"


def minutes(number: float) -> str:
    """`50`, `2.5`, `0.02`: as exact as a limit is given."""
    if number >= 10:
        return f"{number:.0f}"
    return f"{number:.1f}".removesuffix(".0") if number >= 1 or not number else f"{number:.1g}"


def count(number: int, noun: str) -> str:
    """`1 step`, `2 steps`, `1,234 steps`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def mebibytes(size: int) -> str:
    """`12 MiB`, `1,234 MiB`; never less than one."""
    return f"{max(1, round(size / 1024**2)):,} MiB"


def changed_lines(added: int, removed: int) -> str:
    """`+12 −3`."""
    return f"+{added:,} −{removed:,}"


@dataclass(frozen=True, kw_only=True)
class Spent:
    """US dollars; `at_least`: some turns had no known price and count nothing."""

    usd: float = 0.0
    at_least: bool = False

    def __add__(self, other: Spent) -> Spent:
        return Spent(usd=self.usd + other.usd, at_least=self.at_least or other.at_least)

    def or_more(self, known: Spent) -> Spent:
        """The larger one: what is known to be spent was spent, whoever has forgotten it."""
        return Spent(usd=max(self.usd, known.usd), at_least=self.at_least or known.at_least)

    def __str__(self) -> str:
        return f"{'at least ' if self.at_least else ''}{usd(self.usd)}"
