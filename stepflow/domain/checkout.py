"""The checkout as git sees it from inside the toolbox.

Takes: nothing. Gives: the state of the tree, and what a bundle of the run's commits holds (boundary.md "Commits").
May touch: nothing.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class TreeState:
    """HEAD's commit and tree, empty when there is none (`problem` says why).

    `uncommitted` are the paths that differ from HEAD or are not tracked, ignored files left out, at most 1000.
    """

    commit: str
    tree: str
    uncommitted: tuple[str, ...] = ()
    problem: str = ""


@dataclass(frozen=True, kw_only=True)
class BundleInfo:
    """A bundle that was streamed: how many commits it adds to the base, the last one and its tree, its size."""

    commits: int
    commit: str
    tree: str
    size: int
