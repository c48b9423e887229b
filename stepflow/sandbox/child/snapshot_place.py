"""Brings files, links and folders of the checkout to what a snapshot says, and removes what it does not know.

Takes: the wanted state of each path. Gives: how many paths were written and removed.
May touch: the checkout, by descriptors from its root; no link is followed, no file is written in place.
"""

from __future__ import annotations

import contextlib
import os
import stat
from typing import TYPE_CHECKING

from .paths import FOLDER_FLAGS, Refusal, read_regular
from .snapshot_state import LINK, folders_of, object_id, usual_mode

if TYPE_CHECKING:
    from .paths import Below
    from .snapshot_git import Git
    from .snapshot_restore import Blobs
    from .snapshot_state import Entry, Scan, Tree

#: Larger than any file that a snapshot holds, so that what is there now can be compared.
_COMPARED = 128 * 1024 * 1024


class Wanted:
    """`entries`: what each path shall be; `folder_mode` is that of folders which have no entry of their own."""

    def __init__(self, entries: dict[bytes, Entry], tree: Tree, modes: tuple[int, int, int]) -> None:
        self.entries = entries
        self.tree = tree
        self.folder_mode = modes[2]
        self.left = {path for path, entry in entries.items() if entry[0] == "left out"}
        self.folders = folders_of(frozenset(entries)) | {
            path for path, entry in entries.items() if entry[0] == "folder"
        }


def wanted_of(tree: Tree, overlay: dict[bytes, Entry], modes: tuple[int, int, int]) -> Wanted:
    """The base's tree with the overlay on it."""
    entries: dict[bytes, Entry] = {
        path: ("base", usual_mode(kind, modes)) for path, (kind, _) in tree.items() if path not in overlay
    }
    entries.update({path: entry for path, entry in overlay.items() if entry[0] != "gone"})
    return Wanted(entries, tree, modes)


def check_paths(wanted: Wanted, blobs: Blobs) -> None:
    """Raises `Refusal` for a path that leads elsewhere, an entry of no kind, and a blob that is missing."""
    for path, entry in wanted.entries.items():
        names = path.split(b"/")
        if b"\0" in path or any(name in (b"", b".", b"..") for name in names) or names[0] == b".git":
            raise Refusal(f"the snapshot names the path {path!r}, which no snapshot holds")
        match entry:
            case ("file", int(), str() as digest, int()):
                if digest not in blobs:
                    raise Refusal(f"the snapshot lacks the blob {digest[:12]} of {path!r}")
            case ("base", int()):
                if path not in wanted.tree:
                    raise Refusal(f"{path!r} is not in the base")
            case ("link", str()) | ("folder", int()) | ("left out", str()):
                pass
            case _:
                raise Refusal(f"the snapshot says nothing sound of {path!r}")
    for path in folders_of(frozenset(wanted.entries)):
        if path in wanted.entries and wanted.entries[path][0] not in ("folder", "left out"):
            raise Refusal(f"the snapshot has something below {path!r}, which is no folder")


class Placing:
    """Puts things where they belong."""

    def __init__(self, tree: Below, git: Git, blobs: Blobs, base: str) -> None:
        self._tree, self._git, self._blobs, self._base = tree, git, blobs, base

    def put(self, wanted: Wanted) -> int:
        """Write every path that is not as it shall be; gives how many."""
        for path in sorted(wanted.folders - wanted.left):
            self._make_folder(path)
        self._tree.forget()
        lacking: list[tuple[bytes, int]] = []
        written = 0
        for path, entry in sorted(wanted.entries.items()):
            match entry:
                case ("file", int(mode), str(digest), int()):
                    written += self._put_file(path, mode, digest)
                case ("link", str(target)):
                    written += self._put_link(path, target.encode("latin-1"))
                case ("base", int(mode)):
                    if not self._is_base(path, mode, wanted.tree[path]):
                        lacking.append((path, mode))
                case _:
                    pass
        self._put_base(wanted, lacking)
        return written + len(lacking)

    def remove_others(self, wanted: Wanted, seen: Scan) -> list[bytes]:
        """Remove what git does not ignore and the snapshot does not know, folders when nothing is left in them."""
        removed: list[bytes] = []
        for path in sorted({*seen.found, *seen.special}, reverse=True):
            if path in wanted.entries or path in wanted.folders or _lies_below(path, wanted.left):
                continue
            folder, name = self._tree.holder(path)
            if path in seen.found and seen.found[path].kind == "folder":
                self._tree.forget()
                folder, name = self._tree.holder(path)
                with contextlib.suppress(OSError):
                    if path in seen.left:
                        _remove_folder(folder, name)
                    else:
                        os.rmdir(name, dir_fd=folder)
                    removed.append(path)
            else:
                os.unlink(name, dir_fd=folder)
                removed.append(path)
        return removed

    def set_folder_modes(self, wanted: Wanted) -> None:
        """At the very end, and the deepest first: a folder may be closed even to its owner."""
        self._tree.forget()
        for path in sorted(wanted.folders - wanted.left, reverse=True):
            entry = wanted.entries.get(path)
            mode = int(entry[1]) if entry and entry[0] == "folder" else wanted.folder_mode
            folder, name = self._tree.holder(path)
            info = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if stat.S_IMODE(info.st_mode) & 0o777 != mode & 0o777:
                os.chmod(name, mode & 0o777 | stat.S_IMODE(info.st_mode) & 0o7000, dir_fd=folder)

    def _make_folder(self, path: bytes) -> None:
        """A folder that its owner can work in, whatever stood there."""
        folder, name = self._tree.holder(path)
        try:
            info = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            os.mkdir(name, 0o755, dir_fd=folder)
            return
        if not stat.S_ISDIR(info.st_mode):
            os.unlink(name, dir_fd=folder)
            os.mkdir(name, 0o755, dir_fd=folder)
        elif info.st_mode & 0o700 != 0o700:
            os.chmod(name, stat.S_IMODE(info.st_mode) | 0o700, dir_fd=folder)

    def _put_file(self, path: bytes, mode: int, digest: str) -> bool:
        data = self._blobs.read(digest)
        return not self._is_file(path, mode, data) and self._write(path, mode, data)

    def _put_link(self, path: bytes, target: bytes) -> bool:
        folder, name = self._tree.holder(path)
        with contextlib.suppress(OSError):
            if os.readlink(name, dir_fd=folder) == target:
                return False
        self._clear(path)
        folder, name = self._tree.holder(path)
        os.symlink(target, name, dir_fd=folder)
        return True

    def _is_file(self, path: bytes, mode: int, data: bytes) -> bool:
        """Whether it is there as it shall be; a mode of its own is set where only that is wrong."""
        try:
            read = read_regular(self._tree, path, len(data))
        except OSError:
            return False
        if read is None or read[0] != data:
            return False
        return self._has_mode(path, read[1], mode)

    def _has_mode(self, path: bytes, info: os.stat_result, mode: int) -> bool:
        if info.st_mode & 0o777 == mode & 0o777:
            return True
        if info.st_nlink > 1:
            return False
        folder, name = self._tree.holder(path)
        os.chmod(name, mode & 0o777, dir_fd=folder)
        return True

    def _is_base(self, path: bytes, mode: int, known: tuple[bytes, str]) -> bool:
        folder, name = self._tree.holder(path)
        try:
            if known[0] == LINK:
                return object_id(self._base, os.readlink(name, dir_fd=folder)) == known[1]
            read = read_regular(self._tree, path, _COMPARED)
        except OSError:
            return False
        return read is not None and object_id(self._base, read[0]) == known[1] and self._has_mode(path, read[1], mode)

    def _put_base(self, wanted: Wanted, lacking: list[tuple[bytes, int]]) -> None:
        """Contents as they were committed, without any filter."""
        contents = self._git.contents(wanted.tree[path][1] for path, _ in lacking)
        for (path, mode), data in zip(lacking, contents, strict=True):
            if wanted.tree[path][0] == LINK:
                self._put_link(path, data)
            else:
                self._write(path, mode, data)

    def _write(self, path: bytes, mode: int, data: bytes) -> bool:
        self._clear(path)
        folder, name = self._tree.holder(path)
        fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            os.fchmod(fd, mode & 0o777)
        return True

    def _clear(self, path: bytes) -> None:
        """Make room for something that is no folder."""
        folder, name = self._tree.holder(path)
        try:
            info = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return
        if stat.S_ISDIR(info.st_mode):
            self._tree.forget()
            folder, name = self._tree.holder(path)
            _remove_folder(folder, name)
        else:
            os.unlink(name, dir_fd=folder)


def _remove_folder(above: int, name: bytes) -> None:
    """With everything in it; its owner is given back the rights to do so."""
    os.chmod(name, 0o700, dir_fd=above)
    folder = os.open(name, FOLDER_FLAGS, dir_fd=above)
    try:
        for inner in os.listdir(folder):
            info = os.stat(inner, dir_fd=folder, follow_symlinks=False)
            if stat.S_ISDIR(info.st_mode):
                _remove_folder(folder, os.fsencode(inner))
            else:
                os.unlink(inner, dir_fd=folder)
    finally:
        os.close(folder)
    os.rmdir(name, dir_fd=above)


def _lies_below(path: bytes, folders: set[bytes]) -> bool:
    while path:
        if path in folders:
            return True
        path = path.rpartition(b"/")[0]
    return False
