"""What the tools made of the names by which git finds repositories in a checkout: nothing new may act afterwards.

A new git folder keeps its commits and loses whatever can start a program or lead git elsewhere. A new `.git` file or
link can lead anywhere, and is removed.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

from stepflow.sandbox.credentials.files import (
    File,
    clear,
    folder_below,
    kind_of,
    names_in,
    opened_folder,
    put_node,
    take_node,
)
from stepflow.sandbox.tree_walk import ASIDE, walk

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Set

    from stepflow.sandbox.credentials.files import Budget, Node
    from stepflow.sandbox.tree_walk import Aside

_GIT = b".git"
#: What of a new git folder stays, and as what it must stand there.
_EXPECTED = {
    **dict.fromkeys(("HEAD", "index", "packed-refs", "shallow", "description"), stat.S_IFREG),
    **dict.fromkeys(("objects", "refs", "logs"), stat.S_IFDIR),
}
_CONFIGURATION = b"[core]\n\trepositoryformatversion = 0\n\tbare = false\n"
_SHOWN = 5


class GitEntries:
    """The `.git` files and links of a checkout as they were; of folders, each was remembered by itself."""

    def __init__(self, checkout: Path, was: Mapping[bytes, Node]) -> None:
        self._checkout = checkout
        #: Below the checkout, each path with a slash before it.
        self.was = was

    @classmethod
    def take(cls, checkout: Path, entries: Iterable[Path], budget: Budget) -> Self:
        """Those of every `.git` that stand there now."""
        was: dict[bytes, Node] = {}
        for entry in entries:
            if entry.is_relative_to(checkout) and (entry.is_symlink() or not entry.is_dir()):
                with suppress(FileNotFoundError), opened_folder(entry.parent) as folder:
                    if node := take_node(folder, entry.name, entry, budget):
                        was[b"/" + os.fsencode(entry.relative_to(checkout))] = node
        return cls(checkout, was)

    def restore(self, folders: Set[tuple[int, int]], aside: Aside) -> tuple[list[str], list[str]]:
        """Let no `.git` act that is new. `folders` are the restored ones by their numbers. Gives what was removed, and
        what kept us from looking everywhere."""
        removed: list[str] = []
        left: list[str] = []
        with suppress(FileNotFoundError):
            for folder, path in self._git_entries(left):
                try:
                    if self._restore(folder, path, folders, aside):
                        removed.append(os.fsdecode(path[1:]))
                except (OSError, RecursionError) as exc:
                    left.append(f"{os.fsdecode(path[1:])}: {exc.strerror if isinstance(exc, OSError) else exc}")
        return removed, left

    def _git_entries(self, left: list[str]) -> Iterator[tuple[int, bytes]]:
        try:
            for entry in walk(self._checkout, left, closed=frozenset({_GIT})):
                if entry.name == _GIT and entry.path:
                    yield entry.folder, entry.path
        except OSError as exc:
            left.append(f"{self._checkout}: {exc.strerror}")

    def _restore(self, folder: int, path: bytes, folders: Set[tuple[int, int]], aside: Aside) -> bool:
        """Whether it was removed."""
        name = os.fsdecode(_GIT)
        if before := self.was.get(path):
            put_node(folder, name, before, aside)
            return False
        if kind_of(folder, name) != stat.S_IFDIR:
            clear(folder, name, aside)
            return True
        with folder_below(folder, name) as inner:
            info = os.fstat(inner)
            if (info.st_dev, info.st_ino) not in folders:
                _disarm(inner, aside)
        return False


def shown(removed: list[str]) -> str:
    """The first of many paths."""
    more = f" and {len(removed) - _SHOWN} more" if len(removed) > _SHOWN else ""
    return f"{', '.join(removed[:_SHOWN])}{more}"


def _disarm(folder: int, aside: Aside) -> None:
    info = os.fstat(folder)
    configuration = File(data=_CONFIGURATION, mode=0o644, uid=info.st_uid, gid=info.st_gid)
    for name in names_in(folder):
        if name != "config" and not name.startswith(ASIDE) and kind_of(folder, name) != _EXPECTED.get(name, 0):
            clear(folder, name, aside)
    put_node(folder, "config", configuration, aside)
    if kind_of(folder, "objects") == stat.S_IFDIR:
        with folder_below(folder, "objects") as objects:
            # Here stands where else git looks for objects.
            clear(objects, "info", aside)
