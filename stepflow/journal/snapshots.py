"""The snapshots of a run folder: a git pack for each, and what had changed by then as text.

No git is ever started in the run folder, which may have come from anywhere. Whether a pack holds what its name says is
checked by git when the snapshot is restored.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from pydantic import TypeAdapter, ValidationError

from stepflow.domain.checkout import SnapshotDiffs
from stepflow.errors import InputError, StepflowError

#: A run's snapshots together: what an artifact or a cache of GitHub takes without becoming the slowest part of a job.
STORE_LIMIT = 4 * 1024 * 1024 * 1024
#: Bytes of a text that is read; those that a run writes stay far below.
_TEXT_LIMIT = 4 * 1024 * 1024
_PIECE = 1024 * 1024
_NAME = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_HINT = "The run folder was changed or damaged; start a new run, or restore the folder from its artifact."
_DIFFS = TypeAdapter(SnapshotDiffs)


class SnapshotStore:
    """The snapshots of one run folder, which together take at most `limit` bytes."""

    def __init__(self, folder: Path, *, limit: int = STORE_LIMIT) -> None:
        self._folder = folder
        self._free = limit - _size_of(folder)

    @property
    def free_bytes(self) -> int:
        """How many bytes the store may still grow by."""
        return max(self._free, 0)

    def add(self, name: str, pack: IO[bytes], diffs: SnapshotDiffs) -> int:
        """Keep a snapshot, whole or not at all; gives what the store grew by. Raises `StepflowError`."""
        pack.seek(0)
        text = _DIFFS.dump_json(diffs)
        try:
            _write_whole(self._folder / f"{name}.json", [text])
            _write_whole(self._folder / f"{name}.pack", iter(lambda: pack.read(_PIECE), b""))
        except OSError as exc:
            raise StepflowError(
                f"A snapshot cannot be written to {self._folder}: {exc.strerror}.",
                hint="Free space on the disk of the run folder, or choose another one with the input run-folder.",
            ) from exc
        size = len(text) + pack.tell()
        self._free -= size
        return size

    def packs(self) -> list[Path]:
        """Every pack, of snapshots that build on one another."""
        return sorted(self._folder.glob("*.pack"))

    def check(self, names: Iterable[str]) -> None:
        """Raises `InputError` when these snapshots cannot be put back, as far as can be told without git."""
        for name in names:
            self._check(name, self._folder / f"{name}.pack")

    def diffs(self, name: str) -> SnapshotDiffs:
        """What had changed at a snapshot. Raises `InputError`."""
        path = self._folder / f"{name}.json"
        try:
            # Whoever follows a link ends up somewhere else, and whoever opens a pipe waits.
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(fd, "rb") as file:
                text = file.read(_TEXT_LIMIT)
        except OSError as exc:
            raise InputError(f"{path} cannot be read: {exc.strerror}.", hint=_HINT) from exc
        try:
            return _DIFFS.validate_json(text)
        except ValidationError as exc:
            raise InputError(f"{path} is damaged.", hint=_HINT) from exc

    def _check(self, name: str, path: Path) -> None:
        """A pack ends with the digest of what comes before."""
        if not _NAME.fullmatch(name):
            raise InputError(f"There is no snapshot {name!r}.", hint=_HINT)
        digest = hashlib.new("sha256" if len(name) == 64 else "sha1", usedforsecurity=False)
        try:
            with path.open("rb") as file:
                left = os.fstat(file.fileno()).st_size - digest.digest_size
                while left > 0 and (piece := file.read(min(left, _PIECE))):
                    digest.update(piece)
                    left -= len(piece)
                end = file.read()
        except OSError as exc:
            raise InputError(f"The snapshot {path} cannot be read: {exc.strerror}.", hint=_HINT) from exc
        if end != digest.digest():
            raise InputError(f"The snapshot {path} is damaged.", hint=_HINT)


def _write_whole(path: Path, pieces: Iterable[bytes]) -> None:
    """There with all of its bytes or not at all, also when the machine dies."""
    draft = path.with_name(f"{path.name}.part")
    draft.parent.mkdir(parents=True, exist_ok=True)
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    with os.fdopen(fd, "wb") as file:
        file.writelines(pieces)
        file.flush()
        os.fsync(fd)
    draft.rename(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _size_of(folder: Path) -> int:
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        return sum(entry.stat(follow_symlinks=False).st_size for entry in entries)
    return 0
