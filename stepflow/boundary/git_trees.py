"""What the trees and blobs of a private repository hold."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from stepflow.boundary.commit_policy import MOST_BYTES, Change
from stepflow.boundary.git import Git, GitFailed, TooMuch

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

#: Far beyond what the policy lets through.
MOST_ENTRIES, DEEPEST = 20_000, 100
#: The mode of a path that is no longer there.
REMOVED = "000000"
#: A tree that names itself over and over is a few bytes, and `git diff-tree` lists it in memory first.
_DIFF_MEMORY = 512 * 1024 * 1024


def compare_trees(git: Git, base: str, trees: Iterable[str]) -> tuple[Change, ...]:
    """Every file, symlink and submodule that differs from the base in any of the trees. Raises `TooMuch`."""
    changes: set[Change] = set()
    for tree in sorted(set(trees)):
        try:
            output = git.run(
                "diff-tree", "-r", "-z", "--raw", "--no-abbrev", "--no-renames", "--no-ext-diff", "--no-textconv",
                "--ignore-submodules=none", base, tree, memory=_DIFF_MEMORY,
            )  # fmt: skip
        except GitFailed as exc:
            raise TooMuch(str(exc)) from exc
        words = output.decode(errors="surrogateescape").removesuffix("\0").split("\0") if output else []
        for head, path in zip(words[::2], words[1::2], strict=True):
            mode_before, mode, before, oid, _ = head.removeprefix(":").split(" ")
            changes.add(Change(path=path, mode=mode, oid=oid, before=before, mode_before=mode_before))
        if len(changes) > MOST_ENTRIES:
            raise TooMuch(f"they change more than {MOST_ENTRIES} paths")
    if any(change.path.count("/") > DEEPEST for change in changes):
        raise TooMuch(f"their folders are nested more than {DEEPEST} deep")
    return tuple(sorted(changes, key=lambda change: (change.path, change.mode, change.oid)))


def sizes_of(git: Git, blobs: Collection[str]) -> dict[str, int]:
    """The sizes in bytes of those of these blobs that are there."""
    lines = git.run("cat-file", "--batch-check=%(objectname) %(objectsize)", stdin="\n".join(sorted(blobs)).encode())
    pairs = (line.split() for line in lines.decode().splitlines() if not line.endswith(" missing"))
    return {oid: int(size) for oid, size in pairs}


def blobs_of(git: Git, oids: Collection[str]) -> dict[str, bytes]:
    """The contents of those of these blobs that are there and no larger than what may be pushed."""
    present = {oid: size for oid, size in sizes_of(git, oids).items() if size <= MOST_BYTES}
    output = io.BytesIO(git.run("cat-file", "--batch", stdin="\n".join(present).encode(), memory=_DIFF_MEMORY))
    contents: dict[str, bytes] = {}
    while head := output.readline():
        oid, _, size = head.split()
        contents[oid.decode()] = output.read(int(size))
        output.read(1)
    return contents


def lines_of(git: Git, blobs: Collection[str]) -> dict[str, list[str]]:
    """The lines of such blobs. A null byte is left out: UTF-16 has one beside each letter."""
    return {
        oid: content.replace(b"\0", b"").decode(errors="replace").split("\n")
        for oid, content in blobs_of(git, blobs).items()
    }


def tree_of(git: Git, commit: str) -> str:
    """The id of a commit's tree."""
    return git.run("rev-parse", "--verify", f"{commit}^{{tree}}").decode().strip()
