"""Looks for secrets in a git pack, where contents, messages and names are compressed."""

from __future__ import annotations

import zlib
from typing import IO, TYPE_CHECKING

from stepflow.domain.redact import SHORTEST_SECRET

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

#: More than this is not unpacked: a few kilobytes can be made to hold it.
MOST_BYTES = 2 * 1024 * 1024 * 1024
_PIECE = 1024 * 1024
_HEAD = b"PACK\0\0\0\2"
#: Commits, trees, blobs and tags (gitformat-pack); the other types say how an object differs from another one.
_WHOLE = (1, 2, 3, 4)


class UnsearchablePack(Exception):
    """The pack's objects cannot be looked at."""


def secrets_to_find(secrets: Iterable[str]) -> frozenset[bytes]:
    """The secrets as they stand in files."""
    return frozenset(secret.strip().encode() for secret in secrets if len(secret.strip()) >= SHORTEST_SECRET)


def pack_holds_secret(file: IO[bytes], secrets: Collection[bytes]) -> bool:
    """Whether an object of the pack that begins where `file` stands holds one of the secrets: content of a file, a
    message, a person's name, a path. The pack must have been made without deltas. Raises `UnsearchablePack`."""
    pack = _Pack(file)
    if pack.read(len(_HEAD)) != _HEAD:
        raise UnsearchablePack("it is no pack")
    left, longest = MOST_BYTES, max(map(len, secrets), default=0)
    for _ in range(int.from_bytes(pack.read(4), "big")):
        tail = b""
        for piece in pack.content():
            left -= len(piece)
            if left < 0:
                raise UnsearchablePack(f"it unpacks to more than {MOST_BYTES} bytes")
            seen = tail + piece
            if any(secret in seen for secret in secrets):
                return True
            tail = seen[-longest:]
    return False


class _Pack:
    """Reads one object after the other."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._ahead = file, b""

    def read(self, size: int) -> bytes:
        while len(self._ahead) < size:
            self._ahead += self._more()
        found, self._ahead = self._ahead[:size], self._ahead[size:]
        return found

    def content(self) -> Iterator[bytes]:
        """The content of the object that begins here, in pieces."""
        first = byte = self.read(1)[0]
        while byte & 0x80:
            byte = self.read(1)[0]
        if first >> 4 & 7 not in _WHOLE:
            raise UnsearchablePack("it holds an object only as what differs from another one")
        stream = zlib.decompressobj()
        given = self._ahead
        while not stream.eof:
            try:
                piece = stream.decompress(given, _PIECE)
            except zlib.error as exc:
                raise UnsearchablePack("it is damaged") from exc
            yield piece
            given = stream.unconsumed_tail
            if not given and not stream.eof and len(piece) < _PIECE:
                given = self._more()
        self._ahead = stream.unused_data

    def _more(self) -> bytes:
        data = self._file.read(_PIECE)
        if not data:
            raise UnsearchablePack("it ends too early")
        return data
