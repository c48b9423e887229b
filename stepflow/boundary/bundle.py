"""Reads the head of a git bundle: its tip and the commits that it builds on.

The pack is git's to check: `index-pack --strict` does so in every version of git, fetching from a bundle only in some.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import IO

from stepflow.boundary.github_types import Refused

MOST_HEADER_LINES = 1_000
LONGEST_HEADER_LINE = 4_096
_SIGNATURES = (b"# v2 git bundle\n", b"# v3 git bundle\n")
_OBJECT_FORMATS = (b"@object-format=sha1\n", b"@object-format=sha256\n")
_PREREQUISITE = re.compile(rb"-([0-9a-f]{40}|[0-9a-f]{64})(?: .*)?\n")
_REFERENCE = re.compile(rb"([0-9a-f]{40}|[0-9a-f]{64}) (\S+)\n")


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """What a bundle says about itself; the file stands at the beginning of its pack."""

    tip: str
    builds_on: frozenset[str]


def read_bundle(file: IO[bytes]) -> Bundle:
    """Read up to the pack. `file` must be unbuffered, so that another process can go on from there."""
    if file.readline(LONGEST_HEADER_LINE) not in _SIGNATURES:
        raise Refused("refused: what the checkout handed over is no git bundle.")
    tips: dict[bytes, str] = {}
    builds_on: set[str] = set()
    for _ in range(MOST_HEADER_LINES):
        line = file.readline(LONGEST_HEADER_LINE)
        if line == b"\n":
            return Bundle(tip=_tip(tips), builds_on=frozenset(builds_on))
        if match := _PREREQUISITE.fullmatch(line):
            builds_on.add(match[1].decode())
        elif match := _REFERENCE.fullmatch(line):
            tips[match[2]] = match[1].decode()
        elif line not in _OBJECT_FORMATS:
            break
    raise Refused("refused: the bundle of the run's commits has a header that git would not write.")


def _tip(tips: dict[bytes, str]) -> str:
    if b"HEAD" in tips:
        return tips[b"HEAD"]
    if len(set(tips.values())) != 1:
        raise Refused("refused: the bundle of the run's commits does not say which commit is the last.")
    return next(iter(tips.values()))
