"""What the parent and the toolbox send each other: frames on the pipe, and a snapshot's records inside raw frames."""

from __future__ import annotations

import json
import os
import struct
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

JSON = b"J"
RAW = b"R"
#: Nothing that either side sends comes near: two streams of 1 MiB, escaped, stay under 16 MiB.
MAX_PAYLOAD = 64 * 1024 * 1024
_HEADER = struct.Struct("!cI")
BLOB = b"B"
#: A blob that no snapshot needs to be put back: what the base holds.
ORIGIN = b"O"
MANIFEST = b"M"
#: One kind byte, eight length bytes.
RECORD_HEADER = struct.Struct("!cQ")


class WireError(Exception):
    """What came over the pipe is no frame."""


def send(fd: int, message: dict[str, object]) -> None:
    """Write one JSON frame, whole."""
    write_all(fd, pack(JSON, json.dumps(message).encode()))


def send_raw(fd: int, data: bytes) -> None:
    """Write one frame of raw bytes, whole."""
    write_all(fd, pack(RAW, data))


def write_all(fd: int, data: bytes) -> None:
    """Write everything to a blocking descriptor."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def pack(kind: bytes, payload: bytes) -> bytes:
    """The bytes of one frame."""
    if len(payload) > MAX_PAYLOAD:
        raise WireError(f"a frame of {len(payload)} bytes is over the limit of {MAX_PAYLOAD}")
    return _HEADER.pack(kind, len(payload)) + payload


def unpack(payload: bytes) -> dict[str, Any]:
    """The object of a JSON frame's payload."""
    try:
        message = json.loads(payload)
    except (ValueError, RecursionError) as exc:
        raise WireError("a frame does not hold JSON") from exc
    if not isinstance(message, dict):
        raise WireError("a frame holds JSON that is no object")
    return message


class Frames:
    """Puts frames together from the pieces that a pipe gives."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        """Add what was read."""
        self._buffer += data

    def take(self) -> tuple[bytes, bytes] | None:
        """The next whole frame as (kind, payload); None when more must be read first."""
        if len(self._buffer) < _HEADER.size:
            return None
        kind, length = _HEADER.unpack_from(self._buffer)
        if kind not in (JSON, RAW) or length > MAX_PAYLOAD:
            raise WireError("the pipe carries something that is no frame")
        end = _HEADER.size + length
        if len(self._buffer) < end:
            return None
        payload = bytes(self._buffer[_HEADER.size : end])
        del self._buffer[:end]
        return kind, payload


class RecordError(Exception):
    """The stream holds something that is no record, or more than was asked for."""


class RecordSink(Protocol):
    """Takes records apart from where they come."""

    def begin(self, kind: bytes, size: int) -> None:
        """A record of so many bytes begins."""
        ...

    def feed(self, data: bytes) -> None:
        """The next bytes of the record that began last."""
        ...


def pack_record(kind: bytes, data: bytes, hand_on: Callable[[bytes], object]) -> None:
    """Hand on the bytes of one record."""
    hand_on(RECORD_HEADER.pack(kind, len(data)))
    hand_on(data)


class Records:
    """Finds the records in a stream that comes in pieces, and takes no more than `limit` bytes of it."""

    def __init__(self, sink: RecordSink, limit: int) -> None:
        self._sink, self._free_bytes = sink, limit
        self._head = b""
        self._left = 0

    def feed(self, data: bytes) -> None:
        """Take the next piece. Raises `RecordError`."""
        self._free_bytes -= len(data)
        if self._free_bytes < 0:
            raise RecordError("the stream is longer than was asked for")
        view = memoryview(data)
        while view:
            view = self._body(view) if self._left else self._header(view)

    def check_end(self) -> None:
        """Raises `RecordError` when the last record is cut off."""
        if self._left or self._head:
            raise RecordError("the stream ends inside a record")

    def _body(self, view: memoryview) -> memoryview:
        piece, rest = view[: self._left], view[self._left :]
        self._left -= len(piece)
        self._sink.feed(bytes(piece))
        return rest

    def _header(self, view: memoryview) -> memoryview:
        missing = RECORD_HEADER.size - len(self._head)
        self._head += bytes(view[:missing])
        if len(self._head) == RECORD_HEADER.size:
            kind, self._left = RECORD_HEADER.unpack(self._head)
            self._head = b""
            if kind not in (BLOB, ORIGIN, MANIFEST):
                raise RecordError("the stream holds something that is no record")
            self._sink.begin(kind, self._left)
        return view[missing:]
