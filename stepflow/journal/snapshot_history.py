"""How the working tree went from one snapshot of a run folder to the next.

What it reads may be forged: it is only ever shown.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from stepflow.domain.checkout import LINK, PLAIN, PROGRAM, FileSide
from stepflow.errors import InputError
from stepflow.journal.snapshot_file import HINT
from stepflow.journal.snapshot_resolved import Resolved
from stepflow.journal.snapshots import SnapshotStore

if TYPE_CHECKING:
    from pathlib import Path

    from stepflow.journal.snapshot_file import EntryValue, Manifest, OriginValue

#: Bytes of a file that are shown at most: the toolbox hands on no more of the base's.
SHOWN_LIMIT = 256 * 1024
REASONS = {
    "binary": "binary",
    "large": "too large to be shown",
    "many": "too much changed at once",
    "missing": "the repository does not have it",
    "secret": "a secret of the run is in it",
}
UNKNOWN = FileSide(why="it is not kept what the base holds there")


class SnapshotHistory:
    """Walks along a run's snapshots. `name` is where it stands, empty before the first."""

    def __init__(self, folder: Path) -> None:
        """Raises `InputError` for a folder that would lead elsewhere: it may have come from anywhere."""
        _demand_plain(folder)
        self._store = SnapshotStore(folder)
        self._tree: Resolved | None = None
        #: Paths of which it was told whether the base has them.
        self._sure: set[str] = set()
        self.name = ""

    def move(self, name: str) -> dict[str, EntryValue | None]:
        """Go to this snapshot; gives what each path that may differ was before, nothing for the first one. Raises
        `InputError` for any damage."""
        chain = self._store.chain(name, after=self.name or None)
        before = self._tree
        was: dict[str, EntryValue | None] = {}
        if before is None:
            now = Resolved(base=chain[0][1].base, modes=chain[0][1].modes)
        elif chain and chain[0][1].parent is None:
            # It does not lead on from here, as where a run went on from an earlier snapshot.
            now = replace(before, entries={}, git=None, packs=())
        else:
            now = before
        self._tree = now
        for one, manifest in chain:
            if before is now:
                for path in _touched(now, manifest):
                    was.setdefault(path, now.entries.get(path))
            self._add(now, one, manifest)
        self.name = name
        if before is not None and before is not now:
            was = {path: before.entries.get(path) for path in before.entries.keys() | now.entries.keys()}
        return was

    def entry(self, path: str) -> EntryValue | None:
        """What the tree says of a path where the walk stands; None when it is as in the base, or in neither."""
        return self._tree.entries.get(path) if self._tree else None

    def side(self, path: str, entry: EntryValue | None) -> FileSide | None:
        """The file at a path that is so; None without one. Raises `InputError` for damage."""
        if entry is None:
            return self._origin(path, None)
        match entry:
            case ("file", mode, digest, size):
                return self._file(mode, digest, size)
            case ("base", mode):
                return self._origin(path, mode)
            case ("link", target):
                return _link(target)
            case ("left out", why):
                return FileSide(why=why)
            case ("gone",) | ("folder", _):
                return None
            case _:
                assert_never(entry)

    def _add(self, now: Resolved, name: str, manifest: Manifest) -> None:
        if manifest.base != now.base:
            self._sure = set()
        known = {path for path, one in (manifest.origins or {}).items() if one[0] != "unsure"}
        if manifest.origins is not None:
            self._sure |= known | {path for path in _named(manifest) if path not in manifest.origins}
        now.add(name, manifest)

    def _origin(self, path: str, mode: int | None) -> FileSide | None:
        """What the base holds there, as a program or none where a mode of its own says so."""
        assert self._tree  # noqa: S101 - nobody asks before the first move
        origin: OriginValue | None = self._tree.origins.get(path)
        if origin is None:
            return None if path in self._sure and mode is None else UNKNOWN
        match origin:
            case ("file", own, digest, size):
                return self._file(own if mode is None else mode, digest, size)
            case ("link", target):
                return _link(target)
            case ("bare", own, size, why):
                return FileSide(mode=_kind(own if mode is None else mode), size=size, why=REASONS[why])
            case _:
                return UNKNOWN

    def _file(self, mode: int, digest: str, size: int) -> FileSide:
        assert self._tree  # noqa: S101 - nobody asks before the first move
        if size > SHOWN_LIMIT:
            return FileSide(mode=_kind(mode), size=size, why=REASONS["large"])
        return FileSide(mode=_kind(mode), size=size, content=self._store.content(digest, size, self._tree.places))


def _demand_plain(folder: Path) -> None:
    """Whoever follows a link ends up somewhere else, and whoever opens a pipe waits."""
    try:
        with os.scandir(folder) as entries:
            strange = [entry.name for entry in entries if not entry.is_file(follow_symlinks=False)]
    except OSError as exc:
        raise InputError(f"The snapshots in {folder} cannot be read: {exc.strerror}.", hint=HINT) from exc
    if strange or folder.is_symlink():
        what = f"`{strange[0][:100]}` in {folder}" if strange else f"{folder}"
        raise InputError(f"The snapshots cannot be read: {what} is a link or no file.", hint=HINT)


def _touched(now: Resolved, manifest: Manifest) -> tuple[str, ...]:
    return (*now.entries, *manifest.set) if manifest.whole else _named(manifest)


def _named(manifest: Manifest) -> tuple[str, ...]:
    return (*manifest.set, *manifest.drop)


def _link(target: str) -> FileSide:
    return FileSide(mode=LINK, size=len(target), content=target.encode("latin-1", "replace"))


def _kind(mode: int) -> int:
    return PROGRAM if mode & 0o100 else PLAIN
