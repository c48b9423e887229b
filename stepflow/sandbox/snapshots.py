"""The parent's side of snapshots: asks for one, takes its records apart, and sends one back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepflow.domain.checkout import RestoredInfo
from stepflow.errors import IsolationError, StepflowError
from stepflow.sandbox.child.wire import BLOB, MANIFEST, ORIGIN, RECORD_HEADER, RecordError, Records

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Protocol

    from stepflow.domain.json import JsonObject
    from stepflow.sandbox.channel import ChildChannel

    class BlobSink(Protocol):
        """Takes blobs as they come."""

        def begin_blob(self, size: int, *, needed: bool = True) -> None:
            """A blob of so many bytes begins; the one before is whole. One that is not needed may be left out."""
            ...

        def feed(self, data: bytes) -> None:
            """The next bytes of it."""
            ...


_MIB = 1024 * 1024
#: GitHub takes no file above 100 MiB, so no pull request can hold more than what a snapshot leaves out.
FILE_LIMIT = 100 * _MIB
#: What one snapshot may send: a quarter hour's worth of downloads into the tree should not fill the runner's disk.
SNAPSHOT_LIMIT = 1024 * _MIB
#: The boundary takes bundles up to 64 MiB; staged contents may be larger than what is committed.
PACK_LIMIT = 256 * _MIB
#: 200,000 paths of 300 characters, as JSON.
MANIFEST_LIMIT = 64 * _MIB
_SECONDS = 120.0
_RESTORE_SECONDS = 600.0
_PIECE = _MIB


@dataclass(frozen=True, kw_only=True)
class Came:
    """`manifest` is None when nothing changed since the last one, or when there is a `problem`. `special` counts pipes,
    sockets and devices, which no snapshot holds.
    """

    manifest: bytes | None = None
    special: int = 0
    problem: str = ""


class SnapshotPort:
    """Takes and restores snapshots over a channel. Remembers what the toolbox was told that is stored."""

    def __init__(self, channel: ChildChannel, grace: float) -> None:
        self._channel, self._grace = channel, grace
        self._token = self._pending = -1

    def take(
        self, sink: BlobSink, *, base: str, free_bytes: int, exclude: Sequence[bytes], builds: bool = False
    ) -> Came:
        """What came of it; its blobs went to the sink. `builds`: there is a snapshot before it.

        The caller must say `keep` once everything is stored; without it, the next snapshot is a whole one.
        """
        total = min(SNAPSHOT_LIMIT, free_bytes)
        request: JsonObject = {
            "op": "take_snapshot",
            "token": self._token,
            "base": base,
            "builds": builds,
            "exclude": [path.decode("latin-1") for path in exclude],
            "limits": {"file": FILE_LIMIT, "total": total, "pack": PACK_LIMIT},
            "timeout": _SECONDS,
        }
        came = _Coming(sink)
        records = Records(came, total + MANIFEST_LIMIT + RECORD_HEADER.size)
        try:
            answer = self._channel.ask(request, timeout=_SECONDS + self._grace, sink=records.feed)
            if "problem" in answer:
                return Came(problem=str(answer["problem"]))
            records.check_end()
        except RecordError as exc:
            raise IsolationError(f"The toolbox sent no snapshot: {exc}.", hint=_HINT) from exc
        self._pending = int(str(answer["token"]))
        special = int(str(answer["special"]))
        if answer["same"]:
            self.keep()
            return Came(special=special)
        if came.manifest is None:
            raise IsolationError("The toolbox sent a snapshot without a manifest.", hint=_HINT)
        return Came(manifest=bytes(came.manifest), special=special)

    @property
    def alive(self) -> bool:
        """False when the toolbox cannot be asked any more."""
        return self._channel.usable

    def keep(self) -> None:
        """What came last is stored."""
        self._token = self._pending

    def restore(
        self, manifest: bytes, blobs: Sequence[tuple[int, Iterable[bytes]]], *, exclude: Sequence[bytes]
    ) -> RestoredInfo:
        """Send a snapshot back; everything that still runs is killed first. Raises `StepflowError`."""
        self._token = -1
        size = sum(RECORD_HEADER.size + size for size, _ in blobs)
        request: JsonObject = {
            "op": "restore_snapshot",
            "exclude": [path.decode("latin-1") for path in exclude],
            "bytes": size + RECORD_HEADER.size + len(manifest),
            "timeout": _RESTORE_SECONDS,
        }
        answer = self._channel.ask(request, timeout=_RESTORE_SECONDS + self._grace, payload=_stream(manifest, blobs))
        if "problem" in answer:
            raise StepflowError(
                f"The snapshot of the working tree could not be put back: {answer['problem']}.",
                hint="Check out the commit that the run began with, or start a new run.",
            )
        return RestoredInfo(written=int(str(answer["written"])), removed=int(str(answer["removed"])))


class _Coming:
    """Parts the manifest from the blobs."""

    def __init__(self, sink: BlobSink) -> None:
        self._sink = sink
        self.manifest: bytearray | None = None

    def begin(self, kind: bytes, size: int) -> None:
        if self.manifest is not None:
            raise RecordError("something follows the manifest")
        if kind == MANIFEST:
            if size > MANIFEST_LIMIT:
                raise RecordError(f"the manifest has more than {MANIFEST_LIMIT} bytes")
            self.manifest = bytearray()
        else:
            self._sink.begin_blob(size, needed=kind != ORIGIN)

    def feed(self, data: bytes) -> None:
        if self.manifest is None:
            self._sink.feed(data)
        else:
            self.manifest += data


def _stream(manifest: bytes, blobs: Iterable[tuple[int, Iterable[bytes]]]) -> Iterable[bytes]:
    yield RECORD_HEADER.pack(MANIFEST, len(manifest))
    for start in range(0, len(manifest), _PIECE):
        yield manifest[start : start + _PIECE]
    for size, pieces in blobs:
        yield RECORD_HEADER.pack(BLOB, size)
        yield from pieces


_HINT = "Nothing more is run. Start the run again."
