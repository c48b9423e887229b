"""What is known of the checkout beside a validator's own words (security.md cases 14, 15 and 34)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

#: So many paths are named in one sentence.
MOST_NAMED = 20


@dataclass(frozen=True, kw_only=True)
class Closing:
    """The checkout at a closing, before the first validator: HEAD's commit and its tree, tracked paths that differ from
    it, and paths that no commit holds. `created` are such paths that the validators themselves made. `problem` says why
    none of that can be told. Empty where there is no repository.
    """

    commit: str = ""
    tree: str = ""
    changed: tuple[str, ...] = ()
    untracked: tuple[str, ...] = ()
    created: tuple[str, ...] = ()
    problem: str = ""


@dataclass(frozen=True, kw_only=True)
class GuardFindings:
    """`hidden` are lines of `git status --porcelain` for what was hidden from a validator that found the tree clean;
    `changed` are files that the validator depends on, with what became of them since the run began; `moved` are HEAD
    and tracked paths that are not what they were at the closing; `created` are untracked paths that are new since then;
    `problem` says why it cannot be told whether the validator saw everything; `notes` only matter to people.
    """

    hidden: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()
    created: tuple[str, ...] = ()
    problem: str = ""
    notes: tuple[str, ...] = ()


def named(paths: Sequence[str]) -> str:
    """The first paths in one line, and how many more there are."""
    more = f" and {len(paths) - MOST_NAMED} more" if len(paths) > MOST_NAMED else ""
    return ", ".join(path.strip() for path in paths[:MOST_NAMED]) + more
