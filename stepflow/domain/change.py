"""What became of one file between two moments of a run, as far as it is known.

Takes: nothing. Gives: `FileChange` with its two sides.
May touch: nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

LINK = 0o120000
PROGRAM = 0o100755
PLAIN = 0o100644


@dataclass(frozen=True, kw_only=True)
class FileSide:
    """A file at one moment. `mode` is as git names it, `size` in bytes; both are 0 where they are not known. Without
    `content`, `why` says why it is not there to be shown."""

    mode: int = 0
    size: int = 0
    content: bytes | None = None
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class FileChange:
    """`before` is None for a file that was not there, `after` for one that is there no more."""

    path: str
    before: FileSide | None
    after: FileSide | None
