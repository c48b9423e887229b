"""Keeps the head and the tail of what a process writes, in bounded memory (security.md case 27).

Takes: pieces of output. Gives: text with a marker where the middle was left out.
May touch: nothing.
"""

from __future__ import annotations

#: Room for the marker, so that text and marker together stay within the limit.
_MARKER_ROOM = 128


class HeadTail:
    """At most `limit` bytes of a stream: the first half of the limit and the last."""

    def __init__(self, limit: int) -> None:
        self._half = max((limit - _MARKER_ROOM) // 2, 1)
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0

    def feed(self, data: bytes) -> None:
        """Take the next piece."""
        self._total += len(data)
        room = self._half - len(self._head)
        self._head += data[:room] if room > 0 else b""
        self._tail += data[max(room, 0) :]
        if len(self._tail) > 2 * self._half:
            del self._tail[: -self._half]

    @property
    def left_out(self) -> int:
        """How many bytes were dropped."""
        return max(self._total - len(self._head) - self._half, 0)

    def text(self) -> str:
        """Everything kept, as text; bytes that are no UTF-8 are replaced."""
        tail = self._tail[-self._half :]
        if not self.left_out:
            return _decode(self._head + tail)
        return f"{_decode(self._head)}\n[… {self.left_out} bytes left out here …]\n{_decode(tail)}"


def _decode(data: bytearray) -> str:
    return data.decode("utf-8", "replace")
