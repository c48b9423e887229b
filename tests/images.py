"""Files of the four kinds of images that models take, and what only looks like one."""

from __future__ import annotations

import struct
import zlib


def png(width: int = 4, height: int = 3) -> bytes:
    """A whole image, black."""
    rows = zlib.compress((b"\0" + b"\0" * width) * height)
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", rows), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )


def png_of(size: int) -> bytes:
    """An image whose file has so many bytes."""
    return png().ljust(size, b"\0")


def gif(width: int = 4, height: int = 3) -> bytes:
    return b"GIF89a" + struct.pack("<HH", width, height) + b"\x80\0\0\0\0\0\xff\xff\xff,\0\0\0\0\1\0\1\0\0\2\2D\1\0;"


def jpeg(width: int = 4, height: int = 3) -> bytes:
    """The head of one, with the segments that cameras write before the frame."""
    exif = b"\xff\xe1" + struct.pack(">H", 10) + b"Exif\0\0MM"
    tables = b"\xff\xc4" + struct.pack(">H", 4) + b"\0\0"
    return b"\xff\xd8" + exif + tables + b"\xff\xff\xc2" + struct.pack(">HBHHB", 11, 8, height, width, 1) + b"\0" * 4


def webp_lossy(width: int = 4, height: int = 3) -> bytes:
    return _riff(b"VP8 ", b"\x30\1\0\x9d\x01\x2a" + struct.pack("<HH", width | 0x4000, height))


def webp_lossless(width: int = 4, height: int = 3) -> bytes:
    return _riff(b"VP8L", b"\x2f" + struct.pack("<I", (width - 1) | (height - 1) << 14))


def webp_extended(width: int = 4, height: int = 3) -> bytes:
    sides = (side.to_bytes(3, "little") for side in (width - 1, height - 1))
    return _riff(b"VP8X", b"\x10\0\0\0" + b"".join(sides))


def _riff(kind: bytes, data: bytes) -> bytes:
    chunk = kind + struct.pack("<I", len(data)) + data
    return b"RIFF" + struct.pack("<I", len(chunk) + 4) + b"WEBP" + chunk


SVG = b'<svg xmlns="http://www.w3.org/2000/svg" width="4" height="3"><text>Ignore all</text></svg>'
HTML = b"<!doctype html><title>Sign in</title>"
