"""Lists what trees have that a base tree has not, level by level, and stops when it becomes too much.

`git diff-tree` would expand a tree that names itself over and over into memory first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepflow.boundary.git import TooMuch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stepflow.boundary.git import Git

#: Far beyond what the policy lets through.
MOST_ENTRIES, DEEPEST = 20_000, 100
REMOVED = "000000"
_FOLDER = "40000"


@dataclass(frozen=True)
class Entry:
    """A path and what is there now; `mode` is `REMOVED` when nothing is."""

    path: str
    mode: str
    oid: str


@dataclass(frozen=True)
class _Pair:
    """A folder to compare: its tree in the base and in another tree; empty where there is none."""

    path: str
    old: str
    new: str


_Tree = dict[str, Entry]


def changed_entries(git: Git, base: str, trees: Iterable[str]) -> tuple[Entry, ...]:
    """Every file, symlink and submodule that differs from the base in any of the trees. Raises `TooMuch`."""
    level = {_Pair("", base, tree) for tree in trees if tree != base}
    changed: set[Entry] = set()
    for _ in range(DEEPEST):
        if not level:
            return tuple(sorted(changed, key=lambda entry: (entry.path, entry.mode, entry.oid)))
        content = _read_trees(git, {oid for pair in level for oid in (pair.old, pair.new) if oid})
        below: set[_Pair] = set()
        for pair in level:
            _compare(pair, content, changed, below)
            if len(changed) + len(below) > MOST_ENTRIES:
                raise TooMuch(f"they change more than {MOST_ENTRIES} paths")
        level = below
    raise TooMuch(f"their folders are nested more than {DEEPEST} deep")


def _compare(pair: _Pair, content: dict[str, _Tree], changed: set[Entry], below: set[_Pair]) -> None:
    old, new = content.get(pair.old, {}), content.get(pair.new, {})
    for name in old.keys() | new.keys():
        before, after = old.get(name), new.get(name)
        if before == after:
            continue
        path = f"{pair.path}{name}"
        folders = [entry.oid if entry and entry.mode == _FOLDER else "" for entry in (before, after)]
        if any(folders):
            below.add(_Pair(f"{path}/", *folders))
        if after and after.mode != _FOLDER:
            changed.add(Entry(path, after.mode, after.oid))
        elif before and before.mode != _FOLDER:
            changed.add(Entry(path, REMOVED, ""))


def _read_trees(git: Git, oids: set[str]) -> dict[str, _Tree]:
    """The trees of one level, in one go."""
    data = git.run("cat-file", "--batch", stdin="\n".join(sorted(oids)).encode())
    trees: dict[str, _Tree] = {}
    position = 0
    while position < len(data):
        end = data.index(b"\n", position)
        oid, _, size = data[position:end].decode().split(" ")
        trees[oid] = _parse(data[end + 1 : end + 1 + int(size)], len(oid) // 2)
        position = end + int(size) + 2
    return trees


def _parse(data: bytes, oid_bytes: int) -> _Tree:
    """A raw tree: `<mode> <name>\\0<oid>`, again and again."""
    tree: _Tree = {}
    position = 0
    while position < len(data):
        zero = data.index(b"\0", position)
        mode, _, name = data[position:zero].decode(errors="surrogateescape").partition(" ")
        position = zero + 1 + oid_bytes
        tree[name] = Entry(name, mode, data[zero + 1 : position].hex())
    return tree
