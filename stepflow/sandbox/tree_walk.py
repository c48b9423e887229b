"""Walks and removes folders that hostile programs have written, by descriptor and without following a link."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Set
    from pathlib import Path

FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: What waits for its removal, in a folder of this name.
ASIDE = ".stepflow-removed-"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A name in an open folder. `path` begins at the root of the walk with a slash, and is empty for the root."""

    folder: int
    name: bytes
    path: bytes

    def info(self) -> os.stat_result:
        """Its own facts, never those of what a link leads to."""
        return os.stat(self.name, dir_fd=self.folder, follow_symlinks=False)


class _Level:
    """One open folder on the way down: its name, what tells it apart from every other, the length of its path, the
    folders still to visit."""

    def __init__(self, name: bytes, folder: int, length: int) -> None:
        info = os.fstat(folder)
        self.name, self.length = name, length
        self._number = (info.st_dev, info.st_ino)
        self.waiting: list[bytes] = []

    def is_at(self, folder: int) -> bool:
        """Whether this open folder is it."""
        info = os.fstat(folder)
        return (info.st_dev, info.st_ino) == self._number


def walk(root: Path, left: list[str], *, closed: Set[bytes] = frozenset()) -> Iterator[Entry]:
    """The folder itself and everything below, each with the open folder that holds it; what cannot be reached is added
    to `left`. Folders with one of the `closed` names are yielded and not entered.

    Goes down and up by descriptor, so that neither depth nor the length of a path is a limit for what tools make. What
    vanishes meanwhile is left out: somebody else may work there.
    """
    top = root.resolve()
    above = os.open(top.parent, FOLDER_FLAGS)
    try:
        yield from walk_at(above, os.fsencode(top.name), left, closed=closed)
    finally:
        os.close(above)


def walk_at(above: int, top: bytes, left: list[str], *, closed: Set[bytes] = frozenset()) -> Iterator[Entry]:
    """The same for what stands at a name in an open folder, which need not be a folder."""
    root = Entry(folder=above, name=top, path=b"")
    yield root
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISDIR(root.info().st_mode):
            yield from _walk_folder(above, top, left, closed)


def _walk_folder(above: int, top: bytes, left: list[str], closed: Set[bytes]) -> Iterator[Entry]:
    folder, path = os.open(top, FOLDER_FLAGS, dir_fd=above), b""
    levels = [_Level(b"", folder, 0)]
    try:
        yield from _visit(folder, path, levels[-1].waiting, left, closed)
        while levels:
            if levels[-1].waiting:
                name = levels[-1].waiting.pop()
                inner = _enter_level(folder, name, path + b"/" + name, left)
                if inner is None:
                    continue
                os.close(folder)
                folder, path = inner, path + b"/" + name
                levels.append(_Level(name, folder, len(path)))
                yield from _visit(folder, path, levels[-1].waiting, left, closed)
                continue
            levels.pop()
            if levels:
                outer = _leave(folder, above, top, levels)
                os.close(folder)
                folder, path = outer, path[: levels[-1].length]
    finally:
        os.close(folder)


@contextlib.contextmanager
def noted(path: bytes, left: list[str]) -> Iterator[None]:
    """What goes wrong with this path is added to `left`, and the walk goes on; nothing does where it has vanished."""
    try:
        yield
    except FileNotFoundError:
        pass
    except OSError as exc:
        left.append(_problem(path, exc))


def _visit(folder: int, path: bytes, waiting: list[bytes], left: list[str], closed: Set[bytes]) -> Iterator[Entry]:
    """Every entry of the folder; its own folders are noted for later."""
    entries: list[tuple[bytes, bool]] = []
    with noted(path, left), os.scandir(folder) as scanned:
        entries = sorted((os.fsencode(entry.name), entry.is_dir(follow_symlinks=False)) for entry in scanned)
    for name, is_folder in entries:
        if is_folder and name not in closed:
            waiting.append(name)
        yield Entry(folder=folder, name=name, path=path + b"/" + name)


def _enter_level(folder: int, name: bytes, path: bytes, left: list[str]) -> int | None:
    inner = None
    with noted(path, left):
        inner = os.open(name, FOLDER_FLAGS, dir_fd=folder)
    return inner  # noqa: RET504 - None where that failed


def _leave(folder: int, above: int, top: bytes, levels: list[_Level]) -> int:
    """The folder of the last level, open: the one above `folder`, or down from the top where that was moved or removed.
    Levels that are no longer there are left out."""
    with contextlib.suppress(FileNotFoundError):
        outer = os.open("..", FOLDER_FLAGS, dir_fd=folder)
        if levels[-1].is_at(outer):
            return outer
        os.close(outer)
    here = os.open(top, FOLDER_FLAGS, dir_fd=above)
    if not levels[0].is_at(here):
        os.close(here)
        raise OSError(errno.ESTALE, "the folder was replaced while it was being walked")
    for depth, level in enumerate(levels[1:], start=1):
        inner = _enter_level(here, level.name, level.name, [])
        if inner is None or not level.is_at(inner):
            if inner is not None:
                os.close(inner)
            del levels[depth:]
            break
        os.close(here)
        here = inner
    return here


def _problem(path: bytes, exc: OSError) -> str:
    return f"{os.fsdecode(path).lstrip('/') or '.'}: {exc.strerror}"


def remove_path(path: Path) -> None:
    """Remove what stands there with everything in it; what cannot be removed stays."""
    with contextlib.suppress(OSError):
        above = os.open(path.parent, FOLDER_FLAGS)
        try:
            remove_tree(above, path.name)
        finally:
            os.close(above)


def remove_tree(folder: int, name: str) -> None:
    """Remove what stands at the name in an open folder; raises `OSError` when that cannot be done whole.

    One open descriptor is enough for any depth: down by name, up by `..`.
    """
    if not stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
        os.unlink(name, dir_fd=folder)
        return
    here = _enter(folder, name)
    opened, waiting = [name], [_remove_files(here)]
    try:
        while opened:
            if not waiting[-1]:
                waiting.pop()
                above = os.open("..", FOLDER_FLAGS, dir_fd=here)
                os.close(here)
                here = above
                with contextlib.suppress(FileNotFoundError):
                    os.rmdir(opened.pop(), dir_fd=here)
                continue
            inner = waiting[-1].pop()
            with contextlib.suppress(FileNotFoundError):
                below = _enter(here, inner)
                os.close(here)
                here = below
                opened.append(inner)
                waiting.append(_remove_files(here))
    finally:
        os.close(here)


def _remove_files(folder: int) -> list[str]:
    """Remove every file; the names of the folders."""
    folders = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.name)
                continue
            with contextlib.suppress(FileNotFoundError):
                os.unlink(entry.name, dir_fd=folder)
    return folders


def _enter(folder: int, name: str) -> int:
    """Open a folder that its owner, as whom the tools may have run, may have closed."""
    try:
        inner = os.open(name, FOLDER_FLAGS, dir_fd=folder)
    except PermissionError:
        os.chmod(name, stat.S_IRWXU, dir_fd=folder)
        inner = os.open(name, FOLDER_FLAGS, dir_fd=folder)
    if os.fstat(inner).st_mode & stat.S_IRWXU != stat.S_IRWXU:
        os.fchmod(inner, stat.S_IRWXU)
    return inner


class Aside:
    """Takes folders out of their place at once, however much is in them, and removes them when there is time.

    `place` is an open folder of the same file system, which the caller keeps open.
    """

    def __init__(self, parent: int) -> None:
        self._parent = parent
        self._into: int | None = None
        self._moved = 0

    def take(self, folder: int, name: str) -> None:
        """Move what stands at the name away; on another file system it is removed at once."""
        if self._into is None:
            own = f"{ASIDE}{secrets.token_hex(8)}"
            os.mkdir(own, stat.S_IRWXU, dir_fd=self._parent)
            self._into = os.open(own, FOLDER_FLAGS, dir_fd=self._parent)
        self._moved += 1
        try:
            self._move(folder, name, self._into)
        except OSError as exc:
            if exc.errno != errno.EXDEV:
                raise
            remove_tree(folder, name)

    def close(self) -> None:
        """Move nothing more away."""
        if self._into is not None:
            os.close(self._into)
            self._into = None

    def remove(self) -> None:
        """Remove what was moved away, now or by a run that was killed; what cannot be removed stays."""
        self.close()
        with os.scandir(self._parent) as entries:
            names = [entry.name for entry in entries]
        for name in names:
            if name.startswith(ASIDE):
                with contextlib.suppress(OSError):
                    remove_tree(self._parent, name)

    def _move(self, folder: int, name: str, into: int) -> None:
        try:
            os.rename(name, str(self._moved), src_dir_fd=folder, dst_dir_fd=into)
        except PermissionError:
            # A folder that is closed to its owner cannot get another one above it.
            os.chmod(name, stat.S_IRWXU, dir_fd=folder)
            os.rename(name, str(self._moved), src_dir_fd=folder, dst_dir_fd=into)
