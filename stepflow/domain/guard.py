"""What is found out about a validator beside its own words (security.md cases 14 and 15).

Takes: nothing. Gives: `GuardFindings`.
May touch: nothing.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class GuardFindings:
    """`hidden` are lines of `git status --porcelain` for what was hidden from a validator that found the tree clean;
    `changed` are files that the validator depends on, with what became of them since the run began; `problem` says why
    it cannot be told whether the validator saw everything; `notes` only matter to people.
    """

    hidden: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    problem: str = ""
    notes: tuple[str, ...] = ()
