"""Where a checkout keeps git's own files: every git folder in it, and the ones that a `.git` file leads to."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from stepflow.errors import IsolationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

#: Each is held open while the tools run.
_MOST_FOLDERS = 400
#: A `.git` file or a `commondir` is one line with a path.
_LONGEST_POINTER = 8192
#: Git's own binary files: objects, and indexes whose checksum would break.
_OPAQUE_FOLDERS = frozenset({"objects", "lfs"})
_OPAQUE_FILES = frozenset({"index"})


def entry_of(checkout: Path) -> Path:
    """The `.git` that git finds in the checkout or above it; in the checkout where there is none."""
    candidates = (folder / ".git" for folder in (checkout, *checkout.parents))
    return next((entry for entry in candidates if os.path.lexists(entry)), checkout / ".git")


def git_entries(checkout: Path) -> tuple[Path, ...]:
    """Every `.git`, the checkout's own first."""
    return tuple(dict.fromkeys((entry_of(checkout), *_nested(checkout))))


def git_folders(checkout: Path, entries: Iterable[Path]) -> tuple[Path, ...]:
    """Every git folder behind the entries, the checkout's own first, with those of submodules and worktrees."""
    found: dict[Path, None] = {}
    for entry in entries:
        for folder in _led_to(entry):
            found.update(dict.fromkeys((folder, *_inside(folder))))
            if len(found) > _MOST_FOLDERS:
                raise IsolationError(
                    f"{checkout} holds more than {_MOST_FOLDERS} git folders; not all of them can be watched.",
                    hint="Check out without submodules, or name one repository in `working-directory`.",
                )
    return tuple(found)


def files_of(folder: Path) -> Iterator[Path]:
    """Every regular file of a git folder that git or people write as text, nested git folders' left out."""
    for place, folders, files in os.walk(folder):
        nested = Path(place) == folder
        folders[:] = sorted(name for name in folders if name not in _OPAQUE_FOLDERS)
        if nested:
            folders[:] = [name for name in folders if name != "modules"]
        for path in (Path(place) / name for name in sorted(files) if name not in _OPAQUE_FILES):
            if stat.S_ISREG(path.lstat().st_mode):
                yield path


def _nested(checkout: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(checkout):
        if ".git" in folders or ".git" in files:
            yield Path(place) / ".git"
        folders[:] = sorted(name for name in folders if name != ".git")


def _led_to(entry: Path) -> Iterator[Path]:
    """The git folder behind a `.git`, and the one that a worktree shares with others."""
    folder = _pointed(entry, "gitdir: ") if entry.is_file() else entry
    if folder is None or not folder.is_dir():
        return
    yield folder.resolve()
    shared = _pointed(folder / "commondir", "")
    if shared and shared.is_dir():
        yield shared.resolve()


def _pointed(file: Path, prefix: str) -> Path | None:
    try:
        text = os.fsdecode(file.read_bytes()[:_LONGEST_POINTER]).rstrip("\r\n")
    except OSError:
        return None
    return file.parent / text.removeprefix(prefix) if text.startswith(prefix) else None


def _inside(folder: Path) -> Iterator[Path]:
    """The git folders of submodules, whose names may have slashes, and of worktrees."""
    for place, folders, files in os.walk(folder / "modules"):
        folders[:] = sorted(name for name in folders if name not in _OPAQUE_FOLDERS)
        if "HEAD" in files:
            yield Path(place)
    for worktree in sorted((folder / "worktrees").glob("*/")):
        if not worktree.is_symlink():
            yield worktree.resolve()
