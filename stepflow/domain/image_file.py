"""Recognize image files, and read their sizes."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from stepflow.domain.run import LONGEST_SIDE, ImageProblem, ImageType


def inspect_image(data: bytes) -> tuple[ImageType, int, int] | ImageProblem:
    """Return the type, width and height of an image, read from its first bytes. Its name and its server's content type
    are ignored."""
    try:
        type_, width, height = next(_read_head(data))
    except (StopIteration, struct.error):
        return ImageProblem.NO_IMAGE
    if not (width and height):
        return ImageProblem.NO_IMAGE
    return ImageProblem.TOO_WIDE if max(width, height) > LONGEST_SIDE else (type_, width, height)


def _read_head(data: bytes) -> Iterator[tuple[ImageType, int, int]]:
    """Yield nothing for any other kind of file; raise `struct.error` if the file is truncated."""
    if data.startswith(b"\x89PNG\r\n\x1a\n") and data[12:16] == b"IHDR":
        yield ImageType.PNG, *struct.unpack_from(">II", data, 16)
    elif data.startswith((b"GIF87a", b"GIF89a")):
        yield ImageType.GIF, *struct.unpack_from("<HH", data, 6)
    elif data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        yield from ((ImageType.WEBP, *sides) for sides in _webp_sides(data))
    elif data.startswith(b"\xff\xd8\xff"):
        yield from ((ImageType.JPEG, *sides) for sides in _jpeg_sides(data))


def _webp_sides(data: bytes) -> Iterator[tuple[int, int]]:
    """Read the width and height from the first chunk, which is lossy, lossless or extended (RFC 9649)."""
    match data[12:16]:
        case b"VP8 " if data[23:26] == b"\x9d\x01\x2a":
            width, height = struct.unpack_from("<HH", data, 26)
            yield width & 0x3FFF, height & 0x3FFF
        case b"VP8L" if data[20:21] == b"\x2f":
            (bits,) = struct.unpack_from("<I", data, 21)
            yield (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8X":
            width, high, height, higher = struct.unpack_from("<4xHBHB", data, 20)
            yield width + (high << 16) + 1, height + (higher << 16) + 1
        case _:
            pass


#: Markers of the segments that start a frame (ITU-T T.81, table B.1). Three markers in this range mean something else.
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


def _jpeg_sides(data: bytes) -> Iterator[tuple[int, int]]:
    """Read the width and height from the first frame."""
    at = 2
    while data[at : at + 1] == b"\xff":
        marker, length = struct.unpack_from(">BH", data, at + 1)
        if marker in _FRAMES:
            height, width = struct.unpack_from(">HH", data, at + 5)
            yield width, height
        # Any number of fill bytes may precede a segment.
        at += 1 if marker == 0xFF else 2 + length
