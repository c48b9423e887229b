"""What the tools made of the names by which git finds repositories in a checkout: nothing new may act afterwards.

A new git folder keeps its commits and loses whatever can start a program or lead git elsewhere. A new `.git` file or
link can lead anywhere, and is removed.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from stepflow.sandbox.credentials.files import Node, clear, folder_below, kind_of, names_in, put_tree
from stepflow.sandbox.credentials.git_folder import number_of
from stepflow.sandbox.tree_walk import ASIDE, noted, walk

if TYPE_CHECKING:
    from collections.abc import Mapping, Set
    from pathlib import Path

    from stepflow.sandbox.credentials.files import Tree
    from stepflow.sandbox.tree_walk import Aside

_GIT = ".git"
#: What of a new git folder stays, and as what it must stand there.
_EXPECTED = {
    **dict.fromkeys(("HEAD", "index", "packed-refs", "shallow", "description"), stat.S_IFREG),
    **dict.fromkeys(("objects", "refs", "logs"), stat.S_IFDIR),
}
_CONFIGURATION = "[core]\n\trepositoryformatversion = 0\n\tbare = false\n"


def disarm_new_git(
    checkout: Path, pointers: Mapping[str, Tree], folders: Set[str], aside: Aside
) -> tuple[list[str], list[str]]:
    """Let no `.git` act that is new. `pointers` are the `.git` files and links of the start, `folders` its git folders
    by their numbers. Gives what was removed, and what kept us from looking everywhere."""
    removed: list[str] = []
    left: list[str] = []
    with noted(b"", left):
        for entry in walk(checkout, left, closed=frozenset({os.fsencode(_GIT)})):
            if os.fsdecode(entry.name) != _GIT or not entry.path:
                continue
            path = checkout / os.fsdecode(entry.path[1:])
            with noted(entry.path, left):
                if str(path) in pointers:
                    put_tree(entry.folder, _GIT, pointers[str(path)], aside)
                elif kind_of(entry.folder, _GIT) != stat.S_IFDIR:
                    clear(entry.folder, _GIT, aside)
                    removed.append(str(path.relative_to(checkout)))
                else:
                    with folder_below(entry.folder, _GIT) as folder:
                        if number_of(folder) not in folders:
                            _disarm(folder, aside)
    return sorted(removed), left


def _disarm(folder: int, aside: Aside) -> None:
    for name in names_in(folder):
        if name != "config" and not name.startswith(ASIDE) and kind_of(folder, name) != _EXPECTED.get(name, 0):
            clear(folder, name, aside)
    info = os.fstat(folder)
    config = Node(mode=stat.S_IFREG | 0o644, uid=info.st_uid, gid=info.st_gid, content=_CONFIGURATION)
    put_tree(folder, "config", (config,), aside)
    if kind_of(folder, "objects") == stat.S_IFDIR:
        with folder_below(folder, "objects") as objects:
            # Here stands where else git looks for objects.
            clear(objects, "info", aside)
