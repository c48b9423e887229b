"""Puts a snapshot back into the checkout it came from, or into a fresh clone of the same base (action.md "Resume").

Takes: a manifest and blobs as records, which anybody may have written. Gives: how much was changed.
May touch: the checkout, never through a link and never outside; of `.git` only HEAD, its branch, the index, objects.
"""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, cast

from .paths import Refusal, below
from .snapshot_git import BRANCHES, COMMIT, digest_of, has_repository, list_index, list_tree
from .snapshot_place import Placing, check_paths, wanted_of
from .snapshot_state import RULES, Known, scan
from .wire import MANIFEST, RECORD_HEADER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .snapshot_git import Git
    from .snapshot_place import Wanted
    from .snapshot_state import Entry


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


_NOWHERE = {"head": "", "commit": "", "index": None, "index_mtime": 0}


class Blobs:
    """The records of a spooled snapshot by the digest of what is in them, which is made here."""

    def __init__(self, spool: IO[bytes]) -> None:
        self._spool = spool
        self._places: dict[str, tuple[int, int]] = {}
        self.manifest: Manifest | None = None
        while header := spool.read(RECORD_HEADER.size):
            if len(header) < RECORD_HEADER.size:
                raise Refusal("the snapshot is cut off")
            kind, size = RECORD_HEADER.unpack(header)
            place = spool.tell()
            data = spool.read(size)
            if len(data) < size:
                raise Refusal("the snapshot is cut off")
            if kind == MANIFEST:
                self.manifest = Manifest.of(data)
            else:
                self._places[digest_of(data)] = (place, size)

    def __contains__(self, digest: object) -> bool:
        return digest in self._places

    def read(self, digest: str) -> bytes:
        """Raises `Refusal` for a blob that did not come."""
        if digest not in self._places:
            raise Refusal(f"the snapshot lacks the blob {digest[:12]}")
        place, size = self._places[digest]
        self._spool.seek(place)
        return self._spool.read(size)


class Restoring:
    """One snapshot on its way back."""

    def __init__(self, root: str, git: Git, request: Mapping[str, object], spool: IO[bytes]) -> None:
        self._root, self._git = root, git
        self._leave = frozenset(str(path).encode("latin-1") for path in cast("list[object]", request["leave"]))
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
            placing = Placing(tree, self._git, blobs, base)
            written = placing.put(wanted)
            tracked = list_index(self._git, b"")[0] if inside else frozenset()
            ask = self._ask_ignored if inside else lambda _: set()
            removed = 0
            # An ignore file that goes lets others show; each round removes one at least.
            while True:
                gone = placing.remove_others(wanted, scan(self._root, Known(tracked=tracked), ask, self._leave))
                removed += len(gone)
                if not any(path.rpartition(b"/")[2] == RULES for path in gone):
                    break
            placing.set_folder_modes(wanted)
        return {"written": written, "removed": removed}

    def _ask_ignored(self, paths: list[bytes]) -> set[bytes]:
        given = b"".join(b"./" + path + b"\0" for path in paths)
        said = self._git.ask("check-ignore", "--no-index", "-z", "--stdin", given=given, fine=(0, 1))
        return {path[2:] for path in said.split(b"\0") if path}

    def _restore_git(self, standing: Mapping[str, object], packs: list[str], blobs: Blobs, base: str) -> None:
        head, commit = str(standing["head"]), str(standing["commit"])
        pieces = cast("list[object] | None", standing["index"])
        index = None if pieces is None else b"".join(blobs.read(str(piece)) for piece in pieces)
        self._check_head(head, commit)
        for pack in packs:
            self._git.ask("index-pack", "--stdin", "--fix-thin", given=blobs.read(pack))
        if commit:
            without = [f"^{base}"] if base else []
            self._git.ask("rev-list", "--objects", "--quiet", commit, *without)
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
