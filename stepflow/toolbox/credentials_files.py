"""Files, links and folders as they were, and their return to that: by descriptor, whatever stands there by then.

Takes: an open folder and a name in it. Gives: a `Node`; puts one back byte for byte, with mode and owner.
May touch: what it is named, never what a link there leads to.
"""

from __future__ import annotations

import os
import secrets
import stat
import subprocess
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepflow.errors import IsolationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MIB = 2**20


@dataclass(frozen=True, kw_only=True)
class File:
    """A regular file."""

    data: bytes
    mode: int
    uid: int
    gid: int
    names: int = 1


@dataclass(frozen=True, kw_only=True)
class Link:
    """A symbolic link; where it leads does not matter."""

    target: bytes


@dataclass(frozen=True, kw_only=True)
class Folder:
    """A folder with everything in it."""

    mode: int
    uid: int
    gid: int
    children: Mapping[str, Node]


Node = File | Link | Folder


class Room:
    """What may be remembered in all, in bytes and in files."""

    def __init__(self, *, size: int = 64 * _MIB, files: int = 20_000) -> None:
        self._size, self._files = size, files

    def take(self, size: int, path: Path) -> None:
        """Make use of some. Raises `IsolationError` when there is not so much left."""
        self._size -= size
        self._files -= 1
        if self._size < 0 or self._files < 0:
            raise IsolationError(
                f"{path} cannot be remembered: git's configuration, hooks and logs are too large to be given back.",
                hint="Remove what does not belong into .git, or check the repository out anew.",
            )


@contextmanager
def opened_folder(path: Path) -> Iterator[int]:
    """The folder, open; it must be one itself and no link to one."""
    folder = os.open(path, FOLDER_FLAGS)
    try:
        yield folder
    finally:
        os.close(folder)


def take_node(folder: int, name: str, path: Path, room: Room) -> Node | None:
    """What stands at the name, None for nothing."""
    try:
        info = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(info.st_mode):
        return Link(target=os.fsencode(os.readlink(name, dir_fd=folder)))
    if stat.S_ISDIR(info.st_mode):
        return _take_folder(folder, name, path, room)
    if not stat.S_ISREG(info.st_mode):
        raise IsolationError(f"{path} is neither file nor folder.", hint="Remove it; git itself makes no such thing.")
    room.take(info.st_size, path)
    return _file(_read(folder, name), info)


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
        return _file(_read(folder, name), info) == node
    except OSError:
        return False


def names_in(folder: int) -> list[str]:
    """What an open folder holds."""
    return os.listdir(folder)


def _file(data: bytes, info: os.stat_result) -> File:
    return File(data=data, mode=stat.S_IMODE(info.st_mode), uid=info.st_uid, gid=info.st_gid, names=info.st_nlink)


def _take_folder(folder: int, name: str, path: Path, room: Room) -> Folder:
    with _below(folder, name) as inner:
        info = os.fstat(inner)
        room.take(0, path)
        children = {child: take_node(inner, child, path / child, room) for child in sorted(names_in(inner))}
        return Folder(
            mode=stat.S_IMODE(info.st_mode),
            uid=info.st_uid,
            gid=info.st_gid,
            children={child: node for child, node in children.items() if node is not None},
        )


def _put_link(folder: int, name: str, path: Path, node: Link) -> None:
    if _kind(folder, name) == stat.S_IFLNK and os.fsencode(os.readlink(name, dir_fd=folder)) == node.target:
        return
    _remove(folder, name, path)
    os.symlink(node.target, name, dir_fd=folder)


def _put_folder(folder: int, name: str, path: Path, node: Folder) -> None:
    if _kind(folder, name) != stat.S_IFDIR:
        _remove(folder, name, path)
        os.mkdir(name, 0o700, dir_fd=folder)
    with _below(folder, name) as inner:
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


@contextmanager
def _below(folder: int, name: str) -> Iterator[int]:
    try:
        inner = os.open(name, FOLDER_FLAGS, dir_fd=folder)
    except PermissionError:
        # Its owner, as whom the tools may have run, may take even the owner's rights away.
        os.chmod(name, 0o700, dir_fd=folder)
        inner = os.open(name, FOLDER_FLAGS, dir_fd=folder)
    try:
        yield inner
    finally:
        os.close(inner)


def _read(folder: int, name: str) -> bytes:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with os.fdopen(os.open(name, flags, dir_fd=folder), "rb") as file:
        return file.read()


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
