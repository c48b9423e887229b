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
        for entry in _entries(self.root, []):
            info = entry.info
            facts = (info.st_uid, info.st_gid, info.st_mode)
            self.was[entry.path] = shared.setdefault(facts, facts)
            if self.identity.given and facts[0] == self.owner[0] and (stat.S_ISDIR(facts[2]) or info.st_nlink == 1):
                os.chown(entry.name, uid, gid, dir_fd=entry.folder, follow_symlinks=False)

    def take_back(self) -> tuple[str, ...]:
        """Put owners, groups and modes back; call it when nothing of the tools is alive. Gives what could not be."""
        left: list[str] = []
        for entry in _entries(self.root, left):
            if entry.info.st_uid == self.identity.uid or entry.info.st_gid == self.identity.gid:
                with _told(entry.path, left):
                    self._restore(entry)
        self.was = {}
        return tuple(left)

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


def _entries(root: Path, left: list[str]) -> Iterator[_Entry]:
    """The root itself and everything below, each with the open folder that holds it; no link is followed."""
    top = os.fsencode(root.resolve())
    parent = os.open(os.path.dirname(top), _FOLDER_FLAGS)  # noqa: PTH120 - bytes, as names may be no text
    try:
        name = os.path.basename(top)  # noqa: PTH119 - as above
        yield _Entry(folder=parent, name=name, path=b"", info=os.stat(name, dir_fd=parent, follow_symlinks=False))
    finally:
        os.close(parent)
    waiting = [b""]
    while waiting:
        path = waiting.pop()
        with _told(path, left), _opened(top, path) as folder:
            for name in sorted(os.fsencode(name) for name in os.listdir(folder)):  # noqa: PTH208 - a descriptor
                info = os.stat(name, dir_fd=folder, follow_symlinks=False)
                below = path + b"/" + name
                if stat.S_ISDIR(info.st_mode):
                    waiting.append(below)
                yield _Entry(folder=folder, name=name, path=below, info=info)


@contextlib.contextmanager
def _opened(top: bytes, path: bytes) -> Iterator[int]:
    folder = os.open(top + path, _FOLDER_FLAGS)
    try:
        # O_NOFOLLOW looks at the last name only; this catches a link put in place of a folder further up.
        if os.readlink(b"/proc/self/fd/%d" % folder) != top + path:  # noqa: PTH115 - bytes
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        yield folder
    finally:
        os.close(folder)


@contextlib.contextmanager
def _told(path: bytes, left: list[str]) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        left.append(f"{os.fsdecode(path) or '.'}: {exc.strerror}")
