"""A snapshot of the working tree, as the rest of a run sees it (action.md "Resume").

Takes: nothing. Gives: what was taken, and what was put back.
May touch: nothing.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class SnapshotInfo:
    """`name` is that of the snapshot before when nothing changed since, empty when there is none at all.

    `files` are the paths that changed, `bytes` what the store grew by. `left_out` says of paths why they are not in it;
    `special` counts pipes, sockets and devices, which never are. `problem` says why no snapshot could be taken, and
    `name` is then the last one that was.
    """

    name: str
    files: int = 0
    bytes: int = 0
    seconds: float = 0.0
    left_out: tuple[str, ...] = ()
    special: int = 0
    problem: str = ""


@dataclass(frozen=True, kw_only=True)
class RestoredInfo:
    """How many paths had to be written and removed."""

    written: int
    removed: int
