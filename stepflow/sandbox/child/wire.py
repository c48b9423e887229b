"""What the parent and the toolbox send each other: frames on the pipe."""

from __future__ import annotations

import json
import os
import struct
from typing import Any

JSON = b"J"
RAW = b"R"
#: Nothing that either side sends comes near: two streams of 1 MiB, escaped, stay under 16 MiB.
MAX_PAYLOAD = 64 * 1024 * 1024
_HEADER = struct.Struct("!cI")


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
