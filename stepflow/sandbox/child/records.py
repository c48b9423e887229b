"""What a snapshot consists of on the pipe: records of any length, one after the other. Both sides use this module.

Takes: pieces of a stream. Gives: where each record begins, and its bytes as they come.
May touch: nothing.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

BLOB = b"B"
#: A blob that no snapshot needs to be put back: what the base holds.
ORIGIN = b"O"
MANIFEST = b"M"
#: One kind byte, eight length bytes.
HEADER = struct.Struct("!cQ")


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
    hand_on(HEADER.pack(kind, len(data)))
    hand_on(data)


class Records:
    """Finds the records in a stream that comes in pieces, and takes no more than `limit` bytes of it."""

    def __init__(self, sink: RecordSink, limit: int) -> None:
        self._sink, self._room = sink, limit
        self._head = b""
        self._left = 0

    def feed(self, data: bytes) -> None:
        """Take the next piece. Raises `RecordError`."""
        self._room -= len(data)
        if self._room < 0:
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
        missing = HEADER.size - len(self._head)
        self._head += bytes(view[:missing])
        if len(self._head) == HEADER.size:
            kind, self._left = HEADER.unpack(self._head)
            self._head = b""
            if kind not in (BLOB, ORIGIN, MANIFEST):
                raise RecordError("the stream holds something that is no record")
            self._sink.begin(kind, self._left)
        return view[missing:]
