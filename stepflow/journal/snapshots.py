"""The snapshots of a run folder: stored as they come, read back only when they are what their names say.

No path of a manifest is ever used as a path here.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepflow.errors import InputError
from stepflow.journal.snapshot_file import HINT, name_of, read_manifest, read_sent_manifest, write_manifest
from stepflow.journal.snapshot_incoming import Incoming, unwritable, write_whole
from stepflow.journal.snapshot_resolved import Resolved, left_out, since, without_missing

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from pathlib import Path

    from stepflow.journal.snapshot_file import Manifest
    from stepflow.journal.snapshot_resolved import BlobLocation

#: A run's snapshots together: what an artifact or a cache of GitHub takes without becoming the slowest part of a job.
STORE_LIMIT = 4 * 1024 * 1024 * 1024
_MANIFEST_LIMIT = 128 * 1024 * 1024
_LONGEST_CHAIN = 100_000
_PIECE = 1024 * 1024
_NAME = re.compile(r"[0-9a-f]{64}")
_INCOMING = "incoming"


@dataclass(frozen=True, kw_only=True)
class Stored:
    """`files` are the paths that changed, `bytes` what the folder grew by."""

    name: str
    files: int
    bytes: int
    left_out: tuple[str, ...]


class SnapshotStore:
    """The store. `last` is the snapshot that the next one builds on, empty before there is one."""

    def __init__(self, folder: Path, *, limit: int = STORE_LIMIT, secrets: Collection[bytes] = ()) -> None:
        self._folder, self._secrets = folder, secrets
        self.last = ""
        self._resolved: Resolved | None = None
        self._free = limit - _size_of(folder)

    @property
    def free_bytes(self) -> int:
        """How many bytes the store may still grow by."""
        return max(self._free, 0)

    @contextlib.contextmanager
    def incoming(self) -> Iterator[Incoming]:
        """Takes the blobs of one snapshot; what is not stored by `store` is gone afterwards."""
        known = self._resolved.places if self._resolved else {}
        coming = Incoming(self._folder / _INCOMING, known, self._secrets)
        try:
            yield coming
        finally:
            coming.close()

    def store(self, coming: Incoming, data: bytes) -> Stored:
        """Make a snapshot of what came, complete or not at all. Raises `StepflowError`, `InputError` for nonsense."""
        sent = read_sent_manifest(data)
        now = self._resolved
        if not sent.whole and not now:
            raise InputError("A snapshot builds on one that is not there.", hint=HINT)
        if sent.whole and now:
            sent = since(now, sent)
        files = len(sent.set) + len(sent.drop)
        if now and not files and "git" not in sent.model_fields_set:
            return Stored(name=self.last, files=0, bytes=0, left_out=left_out(now))
        blobs = coming.finish()
        coming.check_packs(sent.packs)
        sent = without_missing(sent, (dict(blobs), now.places if now else {}))
        content = write_manifest(sent, parent=self.last or None, blobs=blobs)
        coming.check_names(content)
        name = name_of(content)
        whole = now or Resolved(base=sent.base, modes=sent.modes)
        whole.add(name, read_manifest(content, name=name, location="The new snapshot"))
        if missing := [digest for digest in whole.digests() if digest not in whole.places]:
            self._resolved = None
            raise InputError(f"The toolbox's manifest names a blob that did not come: {missing[0][:12]}.", hint=HINT)
        try:
            coming.keep(self._folder / f"{name}.blobs")
            write_whole(self._folder / f"{name}.json", content)
        except OSError as exc:
            self.forget()
            raise unwritable(self._folder, exc) from exc
        self.last, self._resolved = name, whole
        size = len(content) + sum(size for _, size in blobs)
        self._free -= size
        return Stored(name=name, files=files, bytes=size, left_out=left_out(whole))

    def forget(self) -> None:
        """Let the next snapshot build on none."""
        self.last, self._resolved = "", None

    def resolve(self, name: str) -> Resolved:
        """The snapshot with all that it builds on, read from the folder. Raises `InputError` for any damage."""
        chain = self.chain(name)
        first = chain[0][1]
        whole = Resolved(base=first.base, modes=first.modes)
        for one, manifest in chain:
            whole.add(one, manifest)
        for digest in whole.digests():
            if digest not in whole.places:
                raise InputError(f"The snapshot {name[:12]} lacks the blob {digest[:12]}.", hint=HINT)
            self._verify(digest, whole.places[digest])
        return whole

    def build_on(self, name: str, whole: Resolved) -> None:
        """The next snapshot builds on this one, which is how the tree stands."""
        self.last, self._resolved = name, whole

    def blobs(self, whole: Resolved) -> tuple[tuple[int, Iterator[bytes]], ...]:
        """Every blob of the snapshot: its size, and its bytes in pieces that are read when they are asked for."""
        places = (whole.places[digest] for digest in whole.digests())
        return tuple((location.size, self._pieces(location)) for location in places)

    def chain(self, name: str, *, after: str | None = None) -> list[tuple[str, Manifest]]:
        """From the whole snapshot at the beginning to this one, or from the one `after` that, where this one builds on
        it. A name is a digest of what names the one before, so there can be no ring. Raises `InputError`."""
        chain: list[tuple[str, Manifest]] = []
        wanted: str | None = name
        while wanted is not None and wanted != after:
            if not _NAME.fullmatch(wanted) or len(chain) > _LONGEST_CHAIN:
                raise InputError(f"There is no snapshot {wanted!r}.", hint=HINT)
            manifest = self._read(wanted)
            chain.append((wanted, manifest))
            wanted = manifest.parent
        return chain[::-1]

    def content(self, digest: str, size: int, places: Mapping[str, BlobLocation]) -> bytes:
        """The bytes of one blob. Raises `InputError` when they are not what the digest and the size say."""
        location = places.get(digest)
        if location is None:
            raise InputError(f"The snapshots in {self._folder} lack the blob {digest[:12]}.", hint=HINT)
        data = b"".join(self._pieces(location)) if location.size == size else b""
        if len(data) != size or hashlib.sha256(data).hexdigest() != digest:
            raise self._damaged(location)
        return data

    def _read(self, name: str) -> Manifest:
        path = self._folder / f"{name}.json"
        try:
            if path.stat().st_size > _MANIFEST_LIMIT:
                raise InputError(f"The snapshot {path} is damaged: it is too large.", hint=HINT)
            data = path.read_bytes()
        except OSError as exc:
            raise InputError(f"The snapshot {path} cannot be read: {exc.strerror}.", hint=HINT) from exc
        return read_manifest(data, name=name, location=f"The snapshot {path}")

    def _verify(self, digest: str, location: BlobLocation) -> None:
        seen, total = hashlib.sha256(), 0
        for piece in self._pieces(location):
            seen.update(piece)
            total += len(piece)
        if total != location.size or seen.hexdigest() != digest:
            raise self._damaged(location)

    def _damaged(self, location: BlobLocation) -> InputError:
        path = self._folder / f"{location.file}.blobs"
        return InputError(f"The snapshot's file {path} is damaged at byte {location.offset}.", hint=HINT)

    def _pieces(self, location: BlobLocation) -> Iterator[bytes]:
        path = self._folder / f"{location.file}.blobs"
        left = location.size
        if not left:
            return
        try:
            with path.open("rb") as file:
                file.seek(location.offset)
                while left and (piece := file.read(min(left, _PIECE))):
                    left -= len(piece)
                    yield piece
        except OSError as exc:
            raise InputError(f"The snapshot's file {path} cannot be read: {exc.strerror}.", hint=HINT) from exc


def _size_of(folder: Path) -> int:
    try:
        with os.scandir(folder) as entries:
            return sum(entry.stat(follow_symlinks=False).st_size for entry in entries)
    except OSError:
        return 0
