"""Reaches what lies in the checkout by descriptors, so that no link on the way is ever followed (security.md case 11).

Takes: paths below the root, as bytes with slashes. Gives: open folders, file contents, link targets.
May touch: reads the checkout; opens nothing but folders and regular files.
"""

from __future__ import annotations

import contextlib
import os
import stat
from typing import TYPE_CHECKING

from .places import FILE_FLAGS

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: What tells that a file was not touched: size, mtime, ctime, inode, mode. None: touched too lately to tell.
Key = tuple[int, int, int, int, int] | None
#: The kernel's clock for file times moves in steps of up to 10 ms; a change within one step shows no other time.
_STEP_NS = 50_000_000


class Below:
    """The tree below a folder. Open folders are kept only for as long as the next path goes through them."""

    def __init__(self, root: str) -> None:
        self._fds = [os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)]
        self._names: list[bytes] = []

    def folder(self, path: bytes) -> int:
        """An open folder, valid until the next call. Raises OSError, also when a link stands on the way."""
        names = path.split(b"/") if path else []
        shared = 0
        while shared < min(len(names), len(self._names)) and names[shared] == self._names[shared]:
            shared += 1
        self.forget(shared)
        for name in names[shared:]:
            self._fds.append(os.open(name, FOLDER_FLAGS, dir_fd=self._fds[-1]))
            self._names.append(name)
        return self._fds[-1]

    def holder(self, path: bytes) -> tuple[int, bytes]:
        """The open folder that holds the path, and the path's last name."""
        above, _, name = path.rpartition(b"/")
        return self.folder(above), name

    def forget(self, depth: int = 0) -> None:
        """Close the folders below this depth; needed after one of them was removed or replaced."""
        while len(self._names) > depth:
            os.close(self._fds.pop())
            self._names.pop()

    def close(self) -> None:
        """Close everything."""
        self.forget()
        os.close(self._fds.pop())


@contextlib.contextmanager
def below(root: str) -> Iterator[Below]:
    """A tree that is closed at the end."""
    opened = Below(root)
    try:
        yield opened
    finally:
        opened.close()


def read_regular(tree: Below, path: bytes, limit: int) -> tuple[bytes, os.stat_result] | None:
    """Content and facts of a regular file, None when it has more bytes than the limit. Raises OSError."""
    folder, name = tree.holder(path)
    fd = os.open(name, FILE_FLAGS, dir_fd=folder)
    with os.fdopen(fd, "rb") as file:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode):
            raise FileNotFoundError("no regular file any more")
        data = file.read(limit + 1)
    return (data, info) if len(data) <= limit else None


def key_of(info: os.stat_result, now_ns: int) -> Key:
    """What tells later that the file is as it was when `now_ns` was read off the clock, before it was looked at."""
    # The time of change alone: any program may set the other one, and setting it counts as a change.
    if info.st_ctime_ns > now_ns - _STEP_NS:
        return None
    return (info.st_size, info.st_mtime_ns, info.st_ctime_ns, info.st_ino, info.st_mode)
