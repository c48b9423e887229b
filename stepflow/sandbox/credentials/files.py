"""Files, links and folders as they were, read by descriptor, and their return whatever stands there by then."""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from stepflow.errors import IsolationError
from stepflow.sandbox.tree_walk import FOLDER_FLAGS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from stepflow.sandbox.tree_walk import Aside

_MIB = 2**20
#: What is being written, beside the place where it will stand.
_UNFINISHED = ".stepflow-new-"


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


class Budget:
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


def take_node(folder: int, name: str, path: Path, budget: Budget) -> Node | None:
    """What stands at the name, None for nothing."""
    try:
        info = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(info.st_mode):
        return Link(target=os.fsencode(os.readlink(name, dir_fd=folder)))
    if stat.S_ISDIR(info.st_mode):
        return _take_folder(folder, name, path, budget)
    if not stat.S_ISREG(info.st_mode):
        raise IsolationError(f"{path} is neither file nor folder.", hint="Remove it; git itself makes no such thing.")
    budget.take(info.st_size, path)
    return file_of(read_file(folder, name), info)


def names_in(folder: int) -> list[str]:
    """What an open folder holds."""
    return os.listdir(folder)


def file_of(data: bytes, info: os.stat_result) -> File:
    """A file with this content and these facts."""
    return File(data=data, mode=stat.S_IMODE(info.st_mode), uid=info.st_uid, gid=info.st_gid, names=info.st_nlink)


def _take_folder(folder: int, name: str, path: Path, budget: Budget) -> Folder:
    with folder_below(folder, name) as inner:
        info = os.fstat(inner)
        budget.take(0, path)
        children = {child: take_node(inner, child, path / child, budget) for child in sorted(names_in(inner))}
        return Folder(
            mode=stat.S_IMODE(info.st_mode),
            uid=info.st_uid,
            gid=info.st_gid,
            children={child: node for child, node in children.items() if node is not None},
        )


@contextmanager
def folder_below(folder: int, name: str) -> Iterator[int]:
    """A folder in an open folder, open."""
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


def read_file(folder: int, name: str) -> bytes:
    """All bytes of a file; a pipe in its place is not waited for."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with os.fdopen(os.open(name, flags, dir_fd=folder), "rb") as file:
        return file.read()


def put_node(folder: int, name: str, node: Node | None, aside: Aside) -> None:
    """Let exactly this stand at the name; what is so already is not touched.

    It is written anew beside the old one and moved there: no other name, link or open descriptor sees it.
    """
    if is_node(folder, name, node):
        return
    if node is None:
        clear(folder, name, aside)
    else:
        _replace(folder, name, node, aside)


def is_node(folder: int, name: str, node: Node | None) -> bool:
    """Whether this very thing stands there, whole, with this mode and owner and under as many names."""
    try:
        return take_node(folder, name, Path(name), Budget()) == node
    except (OSError, IsolationError, RecursionError):
        # What is closed, endless or no file cannot be ours.
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
