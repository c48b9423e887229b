"""Figures as words: money and numbers of things, the same wherever a person meets them.

Takes: numbers. Gives: short texts.
May touch: nothing.
"""

from __future__ import annotations


def usd(amount: float | None) -> str:
    """`$1.24`; amounts below a dollar with four digits, `unknown` where a price is."""
    if amount is None:
        return "unknown"
    return f"${amount:.2f}" if amount == 0 or amount >= 1 else f"${amount:.4f}"


def count(number: int, noun: str) -> str:
    """`1 step`, `2 steps`, `1,234 steps`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
