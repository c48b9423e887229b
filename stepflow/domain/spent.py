"""What was spent, as a sum that may lack what nobody knows.

Takes: nothing. Gives: `Spent`.
May touch: nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from stepflow.domain.figures import usd


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
