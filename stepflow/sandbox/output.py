"""Bounded output of programs: the head and the tail of a stream, and the lines of two streams in the order written."""

from __future__ import annotations

import re

#: Bytes reserved for the marker, so that text and marker together stay within the limit.
_MARKER_BYTES = 128
#: Lines up to this many bytes are kept or dropped as a whole.
_LONG_LINE = 4096
#: Breaks between lines, between words, and between names or values. Characters of keys and tokens are not breaks.
_BREAKS = (re.compile(rb"\n"), re.compile(rb"\s"), re.compile(rb"[^\w.~+/=%\x80-\xff-]"))
STREAM_LIMIT = 1024 * 1024
OUTPUT_LIMIT = 100 * 1024
#: Words in lines that may name a failure, and the number of bytes to keep: in total, and on each side of the word.
_FAILURE_WORD = re.compile(rb"fail|error|panic|exception|not ok", re.IGNORECASE)
_FAILURES_LIMIT = 64 * 1024
_FAILURE_LINE = 500
_PIECE = 65536


class HeadTail:
    """At most `limit` bytes of a stream, half from its start and half from its end. Cuts fall between lines or, in a
    very long line, between words if possible, so that no part of a secret remains."""

    def __init__(self, limit: int) -> None:
        self.half = max((limit - _MARKER_BYTES) // 2, 1)
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0

    def feed(self, data: bytes) -> None:
        """Add the next piece."""
        self._total += len(data)
        missing = max(self.half - len(self._head), 0)
        self._head += data[:missing]
        self._tail += data[missing:]
        if len(self._tail) > 2 * self.half:
            del self._tail[: -self.half]

    @property
    def dropped(self) -> range:
        """Return the range of bytes in the stream that were dropped."""
        start, end = len(self._head), max(self._total - self.half, len(self._head))
        if start == end:
            return range(start, end)
        # The last `half` bytes of the tail are the newest bytes of the stream.
        newest = max(len(self._tail) - self.half, 0)
        near = min(self.half, _LONG_LINE) - 1
        return range(start - _after_last_break(self._head[-near:]), end + _to_break(self._tail[newest : newest + near]))

    @property
    def left_out(self) -> int:
        """Return the number of bytes that were dropped."""
        return len(self.dropped)

    def text(self, between: bytes = b"") -> str:
        """Return head and tail as text, with `between` in place of the dropped bytes. Invalid UTF-8 is replaced."""
        dropped = self.dropped
        if not dropped:
            return _decode(self._head + self._tail)
        head, tail = self._head[: dropped.start], self._tail[len(self._tail) - self._total + dropped.stop :]
        line_break = "" if head.endswith(b"\n") else "\n"
        mark = f"{line_break}[… {len(dropped)} bytes left out here …]\n"
        return f"{_decode(head)}{mark}{_decode(between)}{_decode(tail)}"


def _to_break(data: bytes | bytearray) -> int:
    """Return the number of bytes up to the first break between lines, or else words, or else values; 0 without a
    break."""
    found = (pattern.search(data) for pattern in _BREAKS)
    return next((match.end() for match in found if match), 0)


def _after_last_break(data: bytes | bytearray) -> int:
    """Return the number of bytes after the last such break."""
    return max(_to_break(data[::-1]) - 1, 0)


class Interleaved:
    """The lines of several streams in the order they are read. Keeps the first and the last half of `limit` bytes and,
    of the lines between, the first that may name a failure."""

    def __init__(self, limit: int) -> None:
        self._ends = HeadTail(limit)
        self._unfinished: dict[str, bytes] = {}
        self._failures: list[tuple[int, bytes]] = []
        self._failure_bytes = 0
        self._position = 0

    def feed(self, stream: str, data: bytes) -> None:
        """Add the next piece of a stream. An unfinished line is held until the rest of it arrives."""
        data = self._unfinished.pop(stream, b"") + data
        end = data.rfind(b"\n") + 1 or (len(data) if len(data) > _PIECE else 0)
        if end < len(data):
            self._unfinished[stream] = data[end:]
        self._take(data[:end])

    def text(self) -> str:
        """Return everything that was kept."""
        for rest in self._unfinished.values():
            self._take(rest + b"\n")
        self._unfinished.clear()
        dropped = self._ends.dropped
        return self._ends.text(b"".join(line for at, line in self._failures if at in dropped))

    def _take(self, data: bytes) -> None:
        start = 0
        for match in _FAILURE_WORD.finditer(data) if self._failure_bytes < _FAILURES_LIMIT else ():
            if match.start() < start:
                continue
            begin = data.rfind(b"\n", 0, match.start()) + 1
            start = data.find(b"\n", match.end()) + 1 or len(data)
            if self._position + start > self._ends.half:
                before, after = data[begin : match.start()], data[match.end() : start]
                if len(before) > _FAILURE_LINE:
                    before = before[-_FAILURE_LINE:][_to_break(before[-_FAILURE_LINE:]) :]
                if len(after) > _FAILURE_LINE:
                    after = after[: _FAILURE_LINE - _after_last_break(after[:_FAILURE_LINE])]
                line = before + match[0] + after
                self._failures.append((self._position + begin, line.rstrip(b"\n") + b"\n"))
                self._failure_bytes += len(line)
        self._ends.feed(data)
        self._position += len(data)


def _decode(data: bytes | bytearray) -> str:
    return data.decode("utf-8", "replace")
