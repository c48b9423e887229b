"""The run's commits as a bundle (boundary.md "Commits", step 1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .engine_git import COMMIT, engine_git
from .paths import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from .engine_git import Repository
    from .family import Family


class TooLarge(Exception):
    """The bundle has more bytes than are taken."""


class _Counted:
    """Hands pieces on until there are too many."""

    def __init__(self, hand_on: Callable[[bytes], None], limit: int) -> None:
        self._hand_on = hand_on
        self._limit = limit
        self.total = 0

    def feed(self, data: bytes) -> None:
        self.total += len(data)
        if self.total > self._limit:
            raise TooLarge
        self._hand_on(data)


def bundle(
    family: Family, repository: Repository, *, base: str, commit: str, limit: int, hand_on: Callable[[bytes], None]
) -> dict[str, object]:
    """Hand on a bundle of `base..commit`; nothing is handed on when there is no commit since the base."""
    for name in (base, commit):
        if not COMMIT.fullmatch(name):
            raise Refusal(f"{name!r} is no commit id")
    with engine_git(family, repository, commit) as own:
        tree = own.line("rev-parse", "--verify", "HEAD^{tree}")
        count = int(own.line("rev-list", "--count", f"{base}..HEAD"))
        if count == 0:
            return {"commits": 0, "commit": commit, "tree": tree, "bytes": 0}
        counted = _Counted(hand_on, limit)
        try:
            # Without deltas: what it holds is searched for secrets.
            plain = ("-c", "pack.window=0", "-c", "pack.depth=0")
            own.stream(*plain, "bundle", "create", "--quiet", "-", f"^{base}", "HEAD", sink=counted)
        except TooLarge:
            family.end()
            return {"too_large": True}
    return {"commits": count, "commit": commit, "tree": tree, "bytes": counted.total}
