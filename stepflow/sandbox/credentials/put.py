"""The return of files, links and folders to what they were, whatever stands in their place by then."""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

from stepflow.sandbox.credentials.files import File, Folder, Link, file_of, folder_below, names_in, read_file

if TYPE_CHECKING:
    from stepflow.sandbox.credentials.files import Node
    from stepflow.sandbox.tree_walk import Aside

#: What is being written, beside the place where it will stand.
_UNFINISHED = ".stepflow-new-"


def put_node(folder: int, name: str, node: Node | None, aside: Aside) -> None:
    """Let exactly this stand at the name. What is so already is not touched."""
    if _is_node(folder, name, node):
        return
    match node:
        case None:
            clear(folder, name, aside)
        case Link() | Folder():
            _replace(folder, name, node, aside)
        case File():
            put_file(folder, name, node, aside)


def put_file(folder: int, name: str, node: File, aside: Aside) -> None:
    """Write the file anew beside the old one and move it there: no other name, link or open descriptor sees it."""
    if not is_file(folder, name, node):
        _replace(folder, name, node, aside)


def is_file(folder: int, name: str, node: File) -> bool:
    """Whether this very content stands there, under as many names, with this mode and owner."""
    try:
        info = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if not stat.S_ISREG(info.st_mode) or info.st_size != len(node.data):
            return False
        return file_of(read_file(folder, name), info) == node
    except OSError:
        return False


def clear(folder: int, name: str, aside: Aside) -> None:
    """Let nothing stand at the name."""
    match kind_of(folder, name):
        case None:
            return
        case stat.S_IFDIR:
            aside.take(folder, name)
        case _:
            os.unlink(name, dir_fd=folder)


def kind_of(folder: int, name: str) -> int | None:
    """What stands at the name, as the format bits of a mode; None for nothing."""
    try:
        return stat.S_IFMT(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return None


def remove_unfinished(folder: int, aside: Aside) -> None:
    """Remove what a process that was killed was writing in this folder."""
    for name in names_in(folder):
        if name.startswith(_UNFINISHED):
            clear(folder, name, aside)


def _is_node(folder: int, name: str, node: Node | None) -> bool:
    """Whether exactly this stands there."""
    kind = kind_of(folder, name)
    match node:
        case None:
            return kind is None
        case File():
            return is_file(folder, name, node)
        case Link():
            return kind == stat.S_IFLNK and os.fsencode(os.readlink(name, dir_fd=folder)) == node.target
        case Folder():
            return kind == stat.S_IFDIR and _is_folder(folder, name, node)


def _is_folder(folder: int, name: str, node: Folder) -> bool:
    info = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if (stat.S_IMODE(info.st_mode), info.st_uid, info.st_gid) != (node.mode, node.uid, node.gid):
        return False
    with folder_below(folder, name) as inner:
        if set(names_in(inner)) != node.children.keys():
            return False
        return all(_is_node(inner, child, node.children[child]) for child in node.children)


def _replace(folder: int, name: str, node: Node, aside: Aside) -> None:
    """Make it beside the old one and move it there, so that at every moment the old or the new one stands."""
    unfinished = f"{_UNFINISHED}{secrets.token_hex(8)}"
    try:
        _make(folder, unfinished, node)
        if kind_of(folder, name) == stat.S_IFDIR:
            aside.take(folder, name)
        elif isinstance(node, Folder):
            clear(folder, name, aside)
        os.replace(unfinished, name, src_dir_fd=folder, dst_dir_fd=folder)
    finally:
        with suppress(FileNotFoundError):
            clear(folder, unfinished, aside)


def _make(folder: int, name: str, node: Node) -> None:
    match node:
        case File():
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(name, flags, 0o600, dir_fd=folder), "wb") as file:
                file.write(node.data)
                file.flush()
                _give(file.fileno(), node)
        case Link():
            os.symlink(node.target, name, dir_fd=folder)
        case Folder():
            os.mkdir(name, 0o700, dir_fd=folder)
            with folder_below(folder, name) as inner:
                for child, below in node.children.items():
                    _make(inner, child, below)
                _give(inner, node)


def _give(descriptor: int, node: File | Folder) -> None:
    info = os.fstat(descriptor)
    if (info.st_uid, info.st_gid) != (node.uid, node.gid):
        # An ordinary user owns what it writes anyway, and cannot give it a group that it is not in.
        with suppress(PermissionError):
            os.fchown(descriptor, node.uid, node.gid)
    if stat.S_IMODE(info.st_mode) != node.mode:
        os.fchmod(descriptor, node.mode)
