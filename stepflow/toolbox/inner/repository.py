"""What git says about the checkout, and the commits as a bundle (boundary.md "Commits", step 1).

Takes: the base commit. Gives: HEAD, its tree, the files that are not committed; a bundle to a sink.
May touch: git in the checkout, with an index of its own, so that the user's index stays as it is.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import tempfile
from typing import TYPE_CHECKING

from .git import git, said
from .places import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from .family import Family

_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_FILES_LIMIT = 1000


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


def look_at_tree(family: Family) -> dict[str, object]:
    """HEAD's commit and tree, and the paths that differ from it or are not tracked; empty texts without a commit."""
    commit = git(family, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    if commit.exit_code != 0:
        problem = commit.error or commit.stderr.strip() or "there is no commit yet"
        return {"commit": "", "tree": "", "uncommitted": [], "problem": problem}
    tree = said(git(family, "rev-parse", "--verify", "HEAD^{tree}")).strip()
    return {"commit": commit.stdout.strip(), "tree": tree, "uncommitted": _uncommitted(family), "problem": ""}


def head_tree(family: Family) -> dict[str, object]:
    """The tree of HEAD; empty without a commit."""
    return {"tree": git(family, "rev-parse", "--verify", "--quiet", "HEAD^{tree}").stdout.strip()}


def bundle(family: Family, base: str, limit: int, hand_on: Callable[[bytes], None]) -> dict[str, object]:
    """Hand on a bundle of `base..HEAD`; nothing is handed on when there is no commit since the base.

    Everything that still runs is killed first, so that nothing moves HEAD meanwhile.
    """
    if not _COMMIT.fullmatch(base):
        raise Refusal(f"{base!r} is no commit id")
    family.end()
    commit = said(git(family, "rev-parse", "--verify", "HEAD^{commit}")).strip()
    tree = said(git(family, "rev-parse", "--verify", "HEAD^{tree}")).strip()
    count = int(said(git(family, "rev-list", "--count", f"{base}..{commit}")))
    if count == 0:
        return {"commits": 0, "commit": commit, "tree": tree, "bytes": 0}
    counted = _Counted(hand_on, limit)
    try:
        said(git(family, "bundle", "create", "--quiet", "-", f"^{base}", "HEAD", stdout=counted))
    except TooLarge:
        family.end()
        return {"too_large": True}
    return {"commits": count, "commit": commit, "tree": tree, "bytes": counted.total}


def _uncommitted(family: Family) -> list[str]:
    index = os.path.join(tempfile.gettempdir(), f"index-{secrets.token_hex(8)}")
    own = {"GIT_INDEX_FILE": index}
    try:
        said(git(family, "read-tree", "HEAD", extra_env=own))
        status = ("-c", "core.fsmonitor=false", "-c", "core.untrackedCache=false", "status", "--porcelain=v1", "-z")
        listing = said(git(family, *status, "--untracked-files=all", "--no-renames", extra_env=own))
    finally:
        for leftover in (index, f"{index}.lock"):
            with contextlib.suppress(OSError):
                os.unlink(leftover)
    return [entry[3:] for entry in listing.split("\0") if entry][:_FILES_LIMIT]
