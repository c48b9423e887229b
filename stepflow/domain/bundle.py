"""The header of a git bundle: which commit it brings, and on which commits that builds."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import IO

LONGEST_HEADER = 1024 * 1024
_HEADER = re.compile(rb"# v[23] git bundle\n(?:@object-format=sha(?:1|256)\n)?(?:[-0-9a-f].*\n)+\n")
_PREREQUISITE = re.compile(rb"(?m)^-([0-9a-f]{40,64})\b")
_TIP = re.compile(rb"(?m)^([0-9a-f]{40,64}) HEAD$")
#: How git takes the pack behind the header in, which it checks itself: it does so in every version, while fetching from
#: a bundle checks the objects only in some.
INDEX_PACK = ("index-pack", "--stdin", "--fix-thin")


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """The header of a bundle."""

    tip: str
    builds_on: frozenset[str]

    @classmethod
    def read(cls, file: IO[bytes]) -> Bundle | None:
        """Read the header and stop at the pack; None if this is no bundle of a HEAD. `file` must be unbuffered, so that
        another process can continue."""
        begin = file.tell()
        header = _HEADER.match(file.read(LONGEST_HEADER))
        tip = _TIP.search(header[0]) if header else None
        if header is None or tip is None:
            return None
        file.seek(begin + header.end())
        builds_on = frozenset(oid.decode() for oid in _PREREQUISITE.findall(header[0]))
        return cls(tip=tip[1].decode(), builds_on=builds_on)
