"""Puts a snapshot back into the checkout and its repository."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import stat
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, cast

from .git import COMMIT
from .paths import FOLDER_FLAGS, Refusal, below, read_regular
from .snapshot_git import BRANCHES, digest_of, has_repository, list_index, list_tree
from .snapshot_state import LINK, RULES, Known, folders_of, object_id, scan, usual_mode
from .wire import MANIFEST, RECORD_HEADER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .paths import Below
    from .snapshot_git import Git
    from .snapshot_state import Entry, Scan, Tree

#: Larger than any file that a snapshot holds, so that what is there now can be compared.
_COMPARED = 128 * 1024 * 1024
_NOWHERE = {"head": "", "commit": "", "index": None, "index_mtime": 0}


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


class TreeWriter:
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
        for path in sorted({*seen.entries, *seen.special}, reverse=True):
            if path in wanted.entries or path in wanted.folders or _lies_below(path, wanted.left):
                continue
            folder, name = self._tree.holder(path)
            if path in seen.entries and seen.entries[path].kind == "folder":
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


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What is read of it; the names in it are checked where they are used."""

    base: str
    modes: tuple[int, int, int]
    overlay: dict[bytes, Entry]
    standing: Mapping[str, object] | None
    packs: list[str]

    @classmethod
    def of(cls, data: bytes) -> Manifest:
        """Raises `Refusal` for what is none."""
        try:
            fields = json.loads(data)
            plain, runs, folder = (int(mode) & 0o777 for mode in fields["modes"])
            overlay = {path.encode("latin-1"): tuple(entry) for path, entry in fields["set"].items()}
            standing = fields["git"] and {**_NOWHERE, **fields["git"]}
            packs = [str(pack) for pack in fields["packs"]]
            return cls(
                base=str(fields["base"]), modes=(plain, runs, folder), overlay=overlay, standing=standing, packs=packs
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise Refusal("the snapshot's manifest cannot be read") from None


class Blobs:
    """The records of a spooled snapshot by the digest of what is in them, which is made here."""

    def __init__(self, spool: IO[bytes]) -> None:
        self._spool = spool
        self._offsets: dict[str, tuple[int, int]] = {}
        self.manifest: Manifest | None = None
        while header := spool.read(RECORD_HEADER.size):
            if len(header) < RECORD_HEADER.size:
                raise Refusal("the snapshot is cut off")
            kind, size = RECORD_HEADER.unpack(header)
            offset = spool.tell()
            data = spool.read(size)
            if len(data) < size:
                raise Refusal("the snapshot is cut off")
            if kind == MANIFEST:
                self.manifest = Manifest.of(data)
            else:
                self._offsets[digest_of(data)] = (offset, size)

    def __contains__(self, digest: object) -> bool:
        return digest in self._offsets

    def read(self, digest: str) -> bytes:
        """Raises `Refusal` for a blob that did not come."""
        if digest not in self._offsets:
            raise Refusal(f"the snapshot lacks the blob {digest[:12]}")
        offset, size = self._offsets[digest]
        self._spool.seek(offset)
        return self._spool.read(size)


class Restoring:
    """One snapshot on its way back."""

    def __init__(self, root: str, git: Git, request: Mapping[str, object], spool: IO[bytes]) -> None:
        self._root, self._git = root, git
        self._exclude = frozenset(str(path).encode("latin-1") for path in cast("list[object]", request["exclude"]))
        self._spool = spool

    def restore(self) -> dict[str, object]:
        """Everything. What can be refused is refused before anything is changed. Raises `Refusal` or OSError."""
        blobs = Blobs(self._spool)
        manifest = blobs.manifest
        if manifest is None:
            raise Refusal("the snapshot has no manifest")
        base, standing, packs = manifest.base, manifest.standing, manifest.packs
        inside = has_repository(self._root)
        if (standing or base) and not inside:
            raise Refusal("there is no repository in the checkout")
        tree = list_tree(self._git, self._known_commit(base)) if base else {}
        wanted = wanted_of(tree, manifest.overlay, manifest.modes)
        check_paths(wanted, blobs)
        if standing:
            self._restore_git(standing, packs, blobs, base)
        return self._restore_files(wanted, blobs, base, inside=inside)

    def _known_commit(self, base: str) -> str:
        if not COMMIT.fullmatch(base):
            raise Refusal("the snapshot's base is no commit id")
        if not self._git.ask("rev-parse", "--verify", "--quiet", f"{base}^{{commit}}", fine=(0, 1, 128)):
            raise Refusal(f"the checkout does not have the commit {base[:12]} that the snapshot builds on")
        return base

    def _restore_files(self, wanted: Wanted, blobs: Blobs, base: str, *, inside: bool) -> dict[str, object]:
        with below(self._root) as tree:
            writer = TreeWriter(tree, self._git, blobs, base)
            written = writer.put(wanted)
            tracked = list_index(self._git, b"")[0] if inside else frozenset()
            ask = self._git.ignored if inside else lambda _: set()
            removed = 0
            # An ignore file that goes lets others show; each round removes one at least.
            while True:
                gone = writer.remove_others(wanted, scan(self._root, Known(tracked=tracked), ask, self._exclude))
                removed += len(gone)
                if not any(path.rpartition(b"/")[2] == RULES for path in gone):
                    break
            writer.set_folder_modes(wanted)
        return {"written": written, "removed": removed}

    def _restore_git(self, standing: Mapping[str, object], packs: list[str], blobs: Blobs, base: str) -> None:
        head, commit = str(standing["head"]), str(standing["commit"])
        pieces = cast("list[object] | None", standing["index"])
        index = None if pieces is None else b"".join(blobs.read(str(piece)) for piece in pieces)
        self._check_head(head, commit)
        for pack in packs:
            self._git.ask("index-pack", "--stdin", "--fix-thin", given=blobs.read(pack))
        if commit:
            excluded = [f"^{base}"] if base else []
            self._git.ask("rev-list", "--objects", "--quiet", commit, *excluded)
        self._move_head(head, commit)
        self._write_index(index, int(str(standing["index_mtime"])))

    def _check_head(self, head: str, commit: str) -> None:
        if commit and not COMMIT.fullmatch(commit):
            raise Refusal("the snapshot's HEAD is no commit id")
        if not head and not commit:
            raise Refusal("the snapshot's HEAD stands nowhere")
        if head:
            if not head.startswith(BRANCHES):
                raise Refusal("the snapshot's HEAD stands on no branch")
            self._git.ask("check-ref-format", head)

    def _move_head(self, head: str, commit: str) -> None:
        if not head:
            self._git.ask("update-ref", "--no-deref", "HEAD", commit)
            return
        if commit:
            self._git.ask("update-ref", "--no-deref", head, commit)
        else:
            self._git.ask("update-ref", "--no-deref", "-d", head)
        self._git.ask("symbolic-ref", "HEAD", head)

    def _write_index(self, index: bytes | None, mtime: int) -> None:
        """With its time: git takes an entry for clean by whether it is older than the index."""
        with below(self._root) as tree:
            folder = tree.folder(b".git")
            if index is None:
                if "index" in os.listdir(folder):
                    os.unlink("index", dir_fd=folder)
                return
            draft = f"index.{secrets.token_hex(8)}"
            fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644, dir_fd=folder)
            with os.fdopen(fd, "wb") as file:
                file.write(index)
                file.flush()
                os.utime(fd, ns=(mtime, mtime))
            os.rename(draft, "index", src_dir_fd=folder, dst_dir_fd=folder)
