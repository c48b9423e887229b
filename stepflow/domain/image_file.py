"""What is believed to be an image, and of which size."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from stepflow.domain.run import LONGEST_SIDE, ImageProblem, ImageType


def inspect_image(data: bytes) -> tuple[ImageType, int, int] | ImageProblem:
    """What a file is by its first bytes, whatever its name or its server says: its type, width and height."""
    try:
        type_, width, height = next(_read_head(data))
    except (StopIteration, struct.error):
        return ImageProblem.NO_IMAGE
    if not (width and height):
        return ImageProblem.NO_IMAGE
    return ImageProblem.TOO_WIDE if max(width, height) > LONGEST_SIDE else (type_, width, height)


def _read_head(data: bytes) -> Iterator[tuple[ImageType, int, int]]:
    """Nothing for another file; raises `struct.error` for one that ends too early."""
    if data.startswith(b"\x89PNG\r\n\x1a\n") and data[12:16] == b"IHDR":
        yield ImageType.PNG, *struct.unpack_from(">II", data, 16)
    elif data.startswith((b"GIF87a", b"GIF89a")):
        yield ImageType.GIF, *struct.unpack_from("<HH", data, 6)
    elif data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        yield from ((ImageType.WEBP, *sides) for sides in _webp_sides(data))
    elif data.startswith(b"\xff\xd8\xff"):
        yield from ((ImageType.JPEG, *sides) for sides in _jpeg_sides(data))


def _webp_sides(data: bytes) -> Iterator[tuple[int, int]]:
    """RFC 9649: of the first chunk, which is lossy, lossless or extended."""
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


#: The segments in which a frame begins (ITU-T T.81, table B.1): three of this range are others.
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


def _jpeg_sides(data: bytes) -> Iterator[tuple[int, int]]:
    """Of the first frame."""
    at = 2
    while data[at : at + 1] == b"\xff":
        marker, length = struct.unpack_from(">BH", data, at + 1)
        if marker in _FRAMES:
            height, width = struct.unpack_from(">HH", data, at + 5)
            yield width, height
        # Any number of bytes may fill the room before a segment.
        at += 1 if marker == 0xFF else 2 + length
