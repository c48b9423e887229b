"""The return of files, links and folders to what they were, whatever stands in their place by then.

Takes: an open folder, a name in it, a `Node`. Gives: nothing; it stands there byte for byte, with mode and owner.
May touch: what it is named, never what a link there leads to.
"""

from __future__ import annotations

import os
import secrets
import stat
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING

from stepflow.toolbox.credentials.files import File, Folder, Link, file_of, folder_below, names_in, read_file

if TYPE_CHECKING:
    from pathlib import Path

    from stepflow.toolbox.credentials.files import Node


def put_node(folder: int, name: str, path: Path, node: Node | None) -> None:
    """Let exactly this stand at the name. What is so already is not touched."""
    match node:
        case None:
            _remove(folder, name, path)
        case Link():
            _put_link(folder, name, path, node)
        case File():
            put_file(folder, name, path, node)
        case Folder():
            _put_folder(folder, name, path, node)


def put_file(folder: int, name: str, path: Path, node: File) -> None:
    """Write the file anew beside the old one and move it there: no other name, link or open descriptor sees it."""
    if is_file(folder, name, node):
        return
    temporary = f".stepflow-{secrets.token_hex(8)}"
    try:
        _write(folder, temporary, node)
        if _kind(folder, name) == stat.S_IFDIR:
            _remove(folder, name, path)
        os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=folder)


def is_file(folder: int, name: str, node: File) -> bool:
    """Whether this very content stands there, under as many names, with this mode and owner."""
    try:
        info = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if not stat.S_ISREG(info.st_mode) or info.st_size != len(node.data):
            return False
        return file_of(read_file(folder, name), info) == node
    except OSError:
        return False


def _put_link(folder: int, name: str, path: Path, node: Link) -> None:
    if _kind(folder, name) == stat.S_IFLNK and os.fsencode(os.readlink(name, dir_fd=folder)) == node.target:
        return
    _remove(folder, name, path)
    os.symlink(node.target, name, dir_fd=folder)


def _put_folder(folder: int, name: str, path: Path, node: Folder) -> None:
    if _kind(folder, name) != stat.S_IFDIR:
        _remove(folder, name, path)
        os.mkdir(name, 0o700, dir_fd=folder)
    with folder_below(folder, name) as inner:
        for child in (*node.children, *(set(names_in(inner)) - node.children.keys())):
            put_node(inner, child, path / child, node.children.get(child))
        _give(inner, node)


def _remove(folder: int, name: str, path: Path) -> None:
    match _kind(folder, name):
        case None:
            return
        case stat.S_IFDIR:
            # Tools may have left it closed to us, and deeper than any recursion in Python goes; these two cope.
            for program in (("/bin/chmod", "-R", "u+rwx"), ("/bin/rm", "-rf")):
                subprocess.run([*program, "--", str(path)], env={}, check=False, capture_output=True)  # noqa: S603
            if _kind(folder, name) is not None:
                raise OSError(f"{path} cannot be removed")
        case _:
            os.unlink(name, dir_fd=folder)


def _kind(folder: int, name: str) -> int | None:
    try:
        return stat.S_IFMT(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return None


def _write(folder: int, name: str, node: File) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(name, flags, 0o600, dir_fd=folder), "wb") as file:
        file.write(node.data)
        file.flush()
        _give(file.fileno(), node)


def _give(descriptor: int, node: File | Folder) -> None:
    info = os.fstat(descriptor)
    if (info.st_uid, info.st_gid) != (node.uid, node.gid):
        # An ordinary user owns what it writes anyway, and cannot give it a group that it is not in.
        with suppress(PermissionError):
            os.fchown(descriptor, node.uid, node.gid)
    if stat.S_IMODE(info.st_mode) != node.mode:
        os.fchmod(descriptor, node.mode)
