"""Files, links and folders as they were, read by descriptor, and their return whatever stands there by then."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepflow.errors import IsolationError
from stepflow.sandbox.tree_walk import FOLDER_FLAGS, walk_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stepflow.sandbox.tree_walk import Aside, Entry

_MIB = 2**20
#: No index and no list of refs is larger.
_LARGEST = 512 * _MIB
#: What is being written, beside the place where it will stand.
_UNFINISHED = ".stepflow-new-"


@dataclass(frozen=True, kw_only=True)
class Node:
    """A file, a link or a folder. `path` begins below what was asked for, with a slash, and is empty for that itself;
    `content` is a link's target for a link; `links` counts the hard links of a file."""

    path: str = ""
    mode: int
    uid: int
    gid: int
    links: int = 1
    content: str = ""

    def with_content(self, content: str) -> Node:
        """The same file with another content."""
        return replace(self, content=content, links=1)


#: What stands at a place with everything below it, each folder before its content; empty for nothing.
Tree = tuple[Node, ...]


def tree_of(record: list[dict[str, Any]]) -> Tree:
    """A tree that was written as JSON."""
    return tuple(Node(**node) for node in record)


class Budget:
    """What may be remembered in all, in bytes and in files."""

    def __init__(self) -> None:
        self._size, self._files = 64 * _MIB, 20_000

    def take(self, size: int, path: Path) -> None:
        """Make use of some. Raises `IsolationError` when there is not so much left."""
        self._size -= size
        self._files -= 1
        if self._size < 0 or self._files < 0:
            raise IsolationError(
                f"{path} cannot be remembered: git's configuration, hooks and logs are too large to be given back.",
                hint="Remove what does not belong into .git, or check the repository out again.",
            )


def text_of(data: bytes) -> str:
    """Bytes as a text of which `bytes_of` makes the same bytes again."""
    return data.decode("utf-8", "surrogateescape")


def bytes_of(text: str) -> bytes:
    """The bytes that the text stands for."""
    return text.encode("utf-8", "surrogateescape")


@contextmanager
def opened_folder(path: Path) -> Iterator[int]:
    """The folder, open. No link may stand on the way to it; raises `NotADirectoryError` where one does."""
    if os.path.realpath(path) != str(path):
        raise NotADirectoryError(errno.ENOTDIR, "a link stands on the way to it")
    folder = os.open(path, FOLDER_FLAGS)
    try:
        yield folder
    finally:
        os.close(folder)


@contextmanager
def folder_below(folder: int, *names: str) -> Iterator[int]:
    """The folder that the names lead to from an open folder, open; no link is followed."""
    with ExitStack() as opened:
        for name in names:
            try:
                inner = os.open(name, FOLDER_FLAGS, dir_fd=folder)
            except PermissionError:
                # Its owner, as whom the tools may have run, may take even the owner's rights away.
                os.chmod(name, stat.S_IRWXU, dir_fd=folder)
                inner = os.open(name, FOLDER_FLAGS, dir_fd=folder)
            except NotADirectoryError as exc:
                raise NotADirectoryError(exc.errno, f"{name} is no folder") from None
            opened.callback(os.close, inner)
            folder = inner
        yield folder


def names_in(folder: int) -> list[str]:
    """What an open folder holds."""
    return os.listdir(folder)


def kind_of(folder: int, name: str) -> int | None:
    """What stands at the name, as the format bits of a mode; None for nothing."""
    try:
        return stat.S_IFMT(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return None


def read_file(folder: int, name: str | bytes) -> bytes:
    """All bytes of a file; a pipe in its place is not waited for. Raises `OSError` for one that fills the memory."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with os.fdopen(os.open(name, flags, dir_fd=folder), "rb") as file:
        if os.fstat(file.fileno()).st_size > _LARGEST:
            raise OSError(errno.EFBIG, f"{os.fsdecode(name)} is too large")
        return file.read()


def read_tree(folder: int, name: str, path: Path, budget: Budget) -> Tree:
    """What stands at the name, which is `path`. Raises `IsolationError` and `OSError`."""
    if kind_of(folder, name) is None:
        return ()
    nodes: list[Node] = []
    left: list[str] = []
    for entry in walk_at(folder, os.fsencode(name), left):
        with suppress(FileNotFoundError):
            nodes.append(_read_node(entry, Path(f"{path}{os.fsdecode(entry.path)}"), budget))
    if left:
        raise OSError(errno.EACCES, left[0])
    return tuple(nodes)


def _read_node(entry: Entry, path: Path, budget: Budget) -> Node:
    info = entry.info()
    is_file = stat.S_ISREG(info.st_mode)
    budget.take(info.st_size if is_file else 0, path)
    if is_file:
        content = text_of(read_file(entry.folder, entry.name))
    elif stat.S_ISLNK(info.st_mode):
        content = text_of(os.readlink(entry.name, dir_fd=entry.folder))
    elif stat.S_ISDIR(info.st_mode):
        content = ""
    else:
        raise IsolationError(f"{path} is neither file nor folder.", hint="Remove it; git itself makes no such thing.")
    return Node(
        path=os.fsdecode(entry.path),
        mode=info.st_mode,
        uid=info.st_uid,
        gid=info.st_gid,
        links=info.st_nlink if is_file else 1,
        content=content,
    )


def put_tree(folder: int, name: str, tree: Tree, aside: Aside) -> None:
    """Let exactly this stand at the name; what is so already is not touched.

    It is made beside the old one and moved there: at every moment the old or the new one stands, and no other name,
    link or open descriptor sees the new one.
    """
    with suppress(OSError, IsolationError):
        # What is closed, endless or no file cannot be ours.
        if read_tree(folder, name, Path(name), Budget()) == tree:
            return
    if not tree:
        clear(folder, name, aside)
        return
    unfinished = f"{_UNFINISHED}{secrets.token_hex(8)}"
    try:
        for node in tree:
            _make(folder, f"{unfinished}{node.path}", node)
        for node in reversed(tree):
            _give(folder, f"{unfinished}{node.path}", node)
        if stat.S_IFDIR in (kind_of(folder, name), stat.S_IFMT(tree[0].mode)):
            clear(folder, name, aside)
        os.replace(unfinished, name, src_dir_fd=folder, dst_dir_fd=folder)
    finally:
        clear(folder, unfinished, aside)


def _make(folder: int, path: str, node: Node) -> None:
    if stat.S_ISDIR(node.mode):
        os.mkdir(path, stat.S_IRWXU, dir_fd=folder)
    elif stat.S_ISLNK(node.mode):
        os.symlink(bytes_of(node.content), path, dir_fd=folder)
    else:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(path, flags, 0o600, dir_fd=folder), "wb") as file:
            file.write(bytes_of(node.content))


def _give(folder: int, path: str, node: Node) -> None:
    # An ordinary user owns what it writes anyway, and cannot give it a group that it is not in.
    with suppress(PermissionError):
        os.chown(path, node.uid, node.gid, dir_fd=folder, follow_symlinks=False)
    if not stat.S_ISLNK(node.mode):
        os.chmod(path, stat.S_IMODE(node.mode), dir_fd=folder)


def clear(folder: int, name: str, aside: Aside) -> None:
    """Let nothing stand at the name."""
    match kind_of(folder, name):
        case None:
            return
        case stat.S_IFDIR:
            aside.take(folder, name)
        case _:
            os.unlink(name, dir_fd=folder)


def remove_unfinished(folder: int, aside: Aside) -> None:
    """Remove what a process that was killed was writing in this folder."""
    for name in names_in(folder):
        if name.startswith(_UNFINISHED):
            clear(folder, name, aside)
