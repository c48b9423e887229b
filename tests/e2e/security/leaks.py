"""Finds secrets in what is left of a run, however they are written down. Knows nothing of the engine's own redactor."""

from __future__ import annotations

import base64
import binascii
import codecs
import json
import re
import urllib.parse
import zlib
from collections.abc import Iterator, Mapping

#: What encoders put between the characters that count: line breaks, also escaped ones, blanks, colons, commas.
_BETWEEN = re.compile(rb"\\[nrt]|[\s:,]")
#: Too short a run of base64 could not hold any secret.
_BASE64 = re.compile(rb"[A-Za-z0-9+/_-]{24,}")
_HEX = re.compile(rb"(?:[0-9A-Fa-f]{2}){8,}")
_ESCAPED = re.compile(rb"\\(?:u00([0-9A-Fa-f]{2})|x([0-9A-Fa-f]{2})|(.))")


def leaks(content: str | bytes, secrets: Mapping[str, str]) -> list[tuple[str, str]]:
    """The secrets that are in it: as they are, reversed, rotated (rot13), escaped as in JSON once and twice, in
    percent signs, as hexadecimal digits in both cases, as base64 and base64url at any offset, compressed in base64.
    """
    data = content.encode("utf-8", "replace") if isinstance(content, str) else content
    return sorted(
        {(name, form) for form, text in _readings(data) for name, secret in secrets.items() if secret.encode() in text}
    )


def _readings(data: bytes) -> Iterator[tuple[str, bytes]]:
    """The text itself, and what it becomes when it is taken for each of the encodings."""
    yield "as it is", data
    yield "reversed", data[::-1]
    yield "rot13", codecs.encode(data.decode("latin-1"), "rot13").encode("latin-1")
    once = _ESCAPED.sub(_unescape, data)
    yield "escaped", once
    yield "escaped twice", _ESCAPED.sub(_unescape, once)
    yield "percent signs", urllib.parse.unquote_to_bytes(data)
    yield "plus signs", urllib.parse.unquote_to_bytes(data.replace(b"+", b" "))
    packed = _BETWEEN.sub(b"", data)
    for text in (data, packed):
        yield "hexadecimal", b"\n".join(_digits(text))
        yield "base64", b"\n".join(_sixties(text))
    yield "compressed", b"\n".join(_expanded(packed))


def _unescape(match: re.Match[bytes]) -> bytes:
    digits = match[1] or match[2]
    if digits:
        return bytes([int(digits, 16)])
    return {b"n": b"\n", b"t": b"\t", b"r": b"\r"}.get(match[3], match[3])


def _digits(text: bytes) -> Iterator[bytes]:
    for match in _HEX.finditer(text):
        yield binascii.unhexlify(match[0])
        # An odd digit before the first one would shift them all.
        yield binascii.unhexlify(match[0][1:-1])


def _sixties(text: bytes) -> Iterator[bytes]:
    for match in _BASE64.finditer(text):
        run = match[0].replace(b"-", b"+").replace(b"_", b"/")
        for shift in range(4):
            part = run[shift:]
            yield base64.b64decode(part[: len(part) // 4 * 4])


def _expanded(text: bytes) -> Iterator[bytes]:
    for raw in _sixties(text):
        for start in re.finditer(rb"\x1f\x8b\x08|\x78[\x01\x9c\xda]", raw):
            try:
                # 32 and more: gzip's frame or zlib's. What follows the frame is left aside.
                yield zlib.decompressobj(32 + zlib.MAX_WBITS).decompress(raw[start.start() :])
            except zlib.error:
                continue


def as_text(value: object) -> str:
    """A structure as one text, with every string in it as it is."""
    return json.dumps(value, ensure_ascii=False)
