"""Removes what hostile programs have left: by descriptor, at any depth, and where it must be quick, at first only out
of the way."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from typing import TYPE_CHECKING

from stepflow.sandbox.tree_walk import FOLDER_FLAGS

if TYPE_CHECKING:
    from pathlib import Path

#: What waits for its removal, in a folder of this name.
ASIDE = ".stepflow-removed-"


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
    way = [name]
    here = _enter(folder, name)
    try:
        while way:
            if (inner := _empty(here)) is None:
                above = os.open("..", FOLDER_FLAGS, dir_fd=here)
                os.close(here)
                here = above
                os.rmdir(way.pop(), dir_fd=here)
            else:
                below = _enter(here, inner)
                os.close(here)
                here = below
                way.append(inner)
    finally:
        os.close(here)


def _empty(folder: int) -> str | None:
    """Remove every file up to the first folder; its name."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                return entry.name
            os.unlink(entry.name, dir_fd=folder)
    return None


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

    def __init__(self, place: int) -> None:
        self._place = place
        self._into: int | None = None
        self._taken = 0

    def take(self, folder: int, name: str) -> None:
        """Move what stands at the name away; on another file system it is removed at once."""
        if self._into is None:
            own = f"{ASIDE}{secrets.token_hex(8)}"
            os.mkdir(own, stat.S_IRWXU, dir_fd=self._place)
            self._into = os.open(own, FOLDER_FLAGS, dir_fd=self._place)
        self._taken += 1
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
        with os.scandir(self._place) as entries:
            names = [entry.name for entry in entries]
        for name in names:
            if name.startswith(ASIDE):
                with contextlib.suppress(OSError):
                    remove_tree(self._place, name)

    def _move(self, folder: int, name: str, into: int) -> None:
        try:
            os.rename(name, str(self._taken), src_dir_fd=folder, dst_dir_fd=into)
        except PermissionError:
            # A folder that is closed to its owner cannot get another one above it.
            os.chmod(name, stat.S_IRWXU, dir_fd=folder)
            os.rename(name, str(self._taken), src_dir_fd=folder, dst_dir_fd=into)
