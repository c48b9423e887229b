"""Version numbers of releases, and which tags a new one gets."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from release.refusal import Refused

if TYPE_CHECKING:
    from collections.abc import Iterable

_NUMBERS = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)", re.ASCII)


class Version(NamedTuple):
    """`X.Y.Z`; a later release compares as greater."""

    major: int
    minor: int
    patch: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"

    @property
    def tag(self) -> str:
        """The tag that never moves."""
        return f"v{self}"

    @property
    def major_tag(self) -> str:
        """The tag that moves to each newest release of its major version."""
        return f"v{self.major}"


def read_version(text: str) -> Version:
    """Read `X.Y.Z`, and nothing else: no `v` before it, no suffix behind it."""
    if not (match := _NUMBERS.fullmatch(text)):
        raise Refused(f"{text!r} is no version. Give three numbers, such as 1.4.0, without a v.")
    return Version(*map(int, match.groups()))


def is_newest(version: Version, tags: Iterable[str]) -> bool:
    """Whether no release of the same major version is later: a mended 1.2.x must not take `v1` back from 1.3.0."""
    released = [read_version(tag[1:]) for tag in tags if tag.startswith("v") and _NUMBERS.fullmatch(tag[1:])]
    return all(other <= version for other in released if other.major == version.major)
