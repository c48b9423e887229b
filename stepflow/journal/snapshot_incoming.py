"""What comes of a snapshot, on its way into files of the run folder."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from typing import TYPE_CHECKING

from stepflow.domain.secrets import UnsearchablePack, pack_holds_secret
from stepflow.errors import StepflowError

if TYPE_CHECKING:
    from collections.abc import Collection, Container
    from pathlib import Path


class Incoming:
    """Blobs on their way into a file of the store; the digests are made here, and what is `known` is not kept twice.

    What goes wrong on the disk is told by `finish`: it must not strike the toolbox's answer, which is to be read whole.
    """

    def __init__(self, path: Path, known: Container[str], secrets: Collection[bytes] = ()) -> None:
        self._path, self._known, self._secrets = path, known, secrets
        self._tail, self._has_secret = b"", False
        self._needed, self._withheld = True, False
        self._blobs: dict[str, int] = {}
        self._fd = -1
        self._problem: OSError | None = None
        self._hash = hashlib.sha256()
        self._size = -1
        self._written = 0

    def begin_blob(self, size: int, *, needed: bool = True) -> None:
        """A blob of so many bytes begins; the one before is whole. One that is not needed is left out when it holds a
        secret."""
        self._end_blob()
        self._hash, self._size, self._tail = hashlib.sha256(), size, b""
        self._needed, self._withheld, self._written = needed, False, 0

    def feed(self, data: bytes) -> None:
        """The next bytes of it."""
        self._hash.update(data)
        self._look_for_secrets(data)
        if self._problem or self._has_secret or self._withheld:
            return
        try:
            view = memoryview(data)
            while view:
                written = os.write(self._opened(), view)
                self._written += written
                view = view[written:]
        except OSError as exc:
            self._problem = exc

    def finish(self) -> tuple[tuple[str, int], ...]:
        """What came, by digest and size, in the order of the file. Raises `StepflowError` when it could not be kept."""
        self._end_blob()
        if self._has_secret:
            raise _holds_secret("A file of the working tree")
        if self._problem:
            raise unwritable(self._path.parent, self._problem) from self._problem
        return tuple(self._blobs.items())

    def check_packs(self, packs: Container[str]) -> None:
        """Look into those blobs that are packs. Raises `StepflowError` for a secret in one, and for an odd pack."""
        offset = 0
        for digest, size in self._blobs.items():
            if digest in packs and self._secrets:
                try:
                    with self._path.open("rb") as file:
                        file.seek(offset)
                        if pack_holds_secret(file, self._secrets):
                            raise _holds_secret("A commit, or what is staged for one,")
                except UnsearchablePack as exc:
                    raise StepflowError(f"The toolbox sent a pack that cannot be searched for secrets: {exc}.") from exc
                except OSError as exc:
                    raise unwritable(self._path.parent, exc) from exc
            offset += size

    def check_names(self, manifest: bytes) -> None:
        """Look at the names in what is to be stored beside the blobs. Raises `StepflowError` for a secret in one."""
        if any(json.dumps(secret.decode("latin-1"))[1:-1].encode() in manifest for secret in self._secrets):
            raise _holds_secret("A name in the working tree")

    def keep(self, path: Path) -> None:
        """Give it the name that it stays under, for good. Raises OSError."""
        if self._fd < 0:
            return
        os.fsync(self._fd)
        os.close(self._fd)
        self._fd = -1
        self._path.rename(path)

    def close(self) -> None:
        """Remove what was not kept."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            with contextlib.suppress(OSError):
                self._path.unlink()

    def _look_for_secrets(self, data: bytes) -> None:
        """Run folders are uploaded as artifacts, which more people may read than secrets."""
        if self._secrets:
            seen = self._tail + data
            if any(secret in seen for secret in self._secrets):
                self._has_secret, self._withheld = self._has_secret or self._needed, True
            self._tail = seen[-max(map(len, self._secrets)) :]

    def _opened(self) -> int:
        if self._fd < 0:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        return self._fd

    def _end_blob(self) -> None:
        size, self._size = self._size, -1
        if size < 0:
            return
        digest = self._hash.hexdigest()
        if digest not in self._known and digest not in self._blobs and not self._withheld:
            self._blobs[digest] = size
        elif self._written and not (self._problem or self._has_secret):
            end = os.lseek(self._fd, -self._written, os.SEEK_CUR)
            os.ftruncate(self._fd, end)


def write_whole(path: Path, data: bytes) -> None:
    """There with all of its bytes or not at all, also when the machine dies."""
    draft = path.with_name(f"{path.name}.part")
    draft.parent.mkdir(parents=True, exist_ok=True)
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    with os.fdopen(fd, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(fd)
    draft.rename(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _holds_secret(what: str) -> StepflowError:
    return StepflowError(
        f"{what} holds a secret of this run, so no snapshot of it is kept.",
        hint="Keep secrets out of the checkout, or name such files in .gitignore; else the run cannot be resumed.",
    )


def unwritable(folder: Path, exc: OSError) -> StepflowError:
    """What a person can do about it."""
    return StepflowError(
        f"A snapshot cannot be written to {folder}: {exc.strerror}.",
        hint="Free space on the disk of the run folder, or choose another one with the input run-folder.",
    )
