"""Lends the checkout to the tools' user and takes it back as it was (security.md "At the end").

Takes: the checkout, who it is lent to. Gives: a `Loan`.
May touch: owners, groups and modes inside the checkout; contents never. For a root parent only.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepflow.errors import IsolationError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from stepflow.toolbox.identity import Identity

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, kw_only=True)
class _Entry:
    folder: int
    name: bytes
    path: bytes
    info: os.stat_result


class Loan:
    """What is lent. `was` holds owner, group and mode of every path at the start; equal ones share one tuple."""

    def __init__(self, root: Path, identity: Identity) -> None:
        info = root.stat()
        self.root = root
        self.identity = identity
        self.owner = (info.st_uid, info.st_gid)
        self.was: dict[bytes, tuple[int, int, int]] = {}

    def begin(self) -> None:
        """Remember what belongs to whom, and give the checkout to the tools' user if it was root's.

        A file with several hard links is remembered, not given: its other names may lie outside.
        """
        shared: dict[tuple[int, int, int], tuple[int, int, int]] = {}
        uid, gid = self.identity.uid, self.identity.gid
        left: list[str] = []
        for entry in _entries(self.root, left):
            info = entry.info
            facts = (info.st_uid, info.st_gid, info.st_mode)
            self.was[entry.path] = shared.setdefault(facts, facts)
            if self.identity.given and facts[0] == self.owner[0] and (stat.S_ISDIR(facts[2]) or info.st_nlink == 1):
                with _told(entry.path, left):
                    os.chown(entry.name, uid, gid, dir_fd=entry.folder, follow_symlinks=False)
        _demand_nothing_left(left, "lent to the tools' user")

    def take_back(self) -> None:
        """Put owners, groups and modes back; call it when nothing of the tools is alive. May be called again."""
        left: list[str] = []
        for entry in _entries(self.root, left):
            if entry.info.st_uid == self.identity.uid or entry.info.st_gid == self.identity.gid:
                with _told(entry.path, left):
                    self._restore(entry)
        self.was = {}
        _demand_nothing_left(left, "taken back")

    def _restore(self, entry: _Entry) -> None:
        now, before = entry.info, self.was.get(entry.path)
        if before and stat.S_IFMT(before[2]) != stat.S_IFMT(now.st_mode):
            before = None
        uid = self.owner[0] if self.identity.given else now.st_uid
        gid = before[1] if before else self.owner[1]
        moved = (now.st_uid, now.st_gid) != (uid, gid)
        if moved:
            os.chown(entry.name, uid, gid, dir_fd=entry.folder, follow_symlinks=False)
        mode = stat.S_IMODE(before[2]) if before else stat.S_IMODE(now.st_mode) & ~stat.S_IWOTH
        if not stat.S_ISDIR(now.st_mode):
            # The content may be the tools' by now, so no file gets its owner's rights back for whoever runs it.
            mode &= ~(stat.S_ISUID | stat.S_ISGID)
        if not stat.S_ISLNK(now.st_mode) and (moved or mode != stat.S_IMODE(now.st_mode)):
            os.chmod(entry.name, mode, dir_fd=entry.folder)


def _demand_nothing_left(left: list[str], what: str) -> None:
    if left:
        raise IsolationError(
            f"The checkout could not be {what} whole: {'; '.join(left[:5])}.",
            hint="Look at these files, and do not use this checkout in later steps of the job.",
        )


class _Level:
    """One open folder on the way down: its name, what tells it apart from every other, the folders still to visit."""

    def __init__(self, name: bytes, folder: int) -> None:
        info = os.fstat(folder)
        self.name = name
        self.is_it = (info.st_dev, info.st_ino)
        self.waiting: list[bytes] = []


def _entries(root: Path, left: list[str]) -> Iterator[_Entry]:
    """The root itself and everything below, each with the open folder that holds it; no link is followed.

    Goes down and up by descriptor, so that neither depth nor the length of a path is a limit for what tools make.
    """
    top = root.resolve()
    yield from _root_entry(top)
    folder = os.open(top, _FOLDER_FLAGS)
    levels = [_Level(b"", folder)]
    try:
        yield from _visit(folder, levels, left)
        while levels:
            name = levels[-1].waiting.pop() if levels[-1].waiting else b".."
            if name == b"..":
                levels.pop()
            if not levels:
                break
            moved = _move(folder, name, levels, left)
            if moved is None:
                continue
            os.close(folder)
            folder = moved
            if name == b"..":
                _check_return(folder, levels[-1])
            else:
                levels.append(_Level(name, folder))
                yield from _visit(folder, levels, left)
    finally:
        os.close(folder)


def _root_entry(top: Path) -> Iterator[_Entry]:
    above = os.open(top.parent, _FOLDER_FLAGS)
    try:
        name = os.fsencode(top.name)
        yield _Entry(folder=above, name=name, path=b"", info=os.stat(name, dir_fd=above, follow_symlinks=False))
    finally:
        os.close(above)


def _visit(folder: int, levels: list[_Level], left: list[str]) -> Iterator[_Entry]:
    """Every entry of the folder; its own folders are noted for later."""
    prefix = b"/".join(level.name for level in levels)
    for name in sorted(os.fsencode(name) for name in os.listdir(folder)):
        with _told(prefix + b"/" + name, left):
            info = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if stat.S_ISDIR(info.st_mode):
                levels[-1].waiting.append(name)
            yield _Entry(folder=folder, name=name, path=prefix + b"/" + name, info=info)


def _move(folder: int, name: bytes, levels: list[_Level], left: list[str]) -> int | None:
    try:
        return os.open(name, _FOLDER_FLAGS, dir_fd=folder)
    except OSError as exc:
        if name == b"..":
            raise
        left.append(_problem(b"/".join([*(level.name for level in levels), name]), exc))
        return None


def _check_return(folder: int, level: _Level) -> None:
    info = os.fstat(folder)
    if (info.st_dev, info.st_ino) != level.is_it:
        raise OSError(errno.ESTALE, "a folder was moved while it was being walked")


@contextlib.contextmanager
def _told(path: bytes, left: list[str]) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        left.append(_problem(path, exc))


def _problem(path: bytes, exc: OSError) -> str:
    return f"{os.fsdecode(path).lstrip('/') or '.'}: {exc.strerror}"
