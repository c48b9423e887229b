"""Which other repositories git's index names, and an index without the ones that are new.

Read here and not by git: what tools wrote must neither be parsed by a program of root's, nor wait for a second sandbox
while a job is being cancelled. The format: https://git-scm.com/docs/index-format
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepflow.sandbox.credentials.files import text_of

if TYPE_CHECKING:
    from collections.abc import Set

_HEADER = struct.Struct(">4sII")
#: Ten numbers of 32 bits; the seventh is the mode.
_FACTS = 40
_MODE = slice(24, 28)
_GITLINK = struct.pack(">I", 0o160000)
_EXTENDED = 0x4000
#: An extension whose name begins with a small letter changes what the entries mean; this one has no content.
_SPARSE_FOLDERS = b"sdir"
_HASHES = (hashlib.sha1, hashlib.sha256)


class UnreadableIndex(Exception):
    """The index is none, or it leaves its entries to another file."""


@dataclass(frozen=True, kw_only=True)
class _Entry:
    """`data` is the entry as versions 2 and 3 write it."""

    name: str
    data: bytes

    @property
    def is_gitlink(self) -> bool:
        return self.data[_MODE] == _GITLINK


@dataclass(frozen=True, kw_only=True)
class _Index:
    """An index with the extensions that must stay."""

    version: int
    entries: list[_Entry]
    extensions: bytes
    hash_size: int


def gitlinks_in(index: bytes) -> frozenset[str]:
    """The paths of all gitlinks; raises `UnreadableIndex`."""
    # Reading every entry takes time, and few indexes have what could be one, or could lead to another file.
    if _GITLINK not in index and b"link" not in index:
        return frozenset()
    return frozenset(entry.name for entry in _read(index).entries if entry.is_gitlink)


def without_gitlinks(data: bytes, names: Set[str]) -> bytes:
    """The index without these gitlinks. What git only keeps to be faster is left out; it makes that again."""
    index = _read(data)
    remaining = [entry.data for entry in index.entries if not (entry.is_gitlink and entry.name in names)]
    written = _HEADER.pack(b"DIRC", min(index.version, 3), len(remaining)) + b"".join(remaining) + index.extensions
    return written + next(each(written).digest() for each in _HASHES if each().digest_size == index.hash_size)


def _read(index: bytes) -> _Index:
    for each in _HASHES:
        try:
            return _read_with(index, each().digest_size)
        except (struct.error, IndexError, ValueError):
            continue
    raise UnreadableIndex


def _read_with(index: bytes, hash_size: int) -> _Index:
    signature, version, count = _HEADER.unpack_from(index)
    if signature != b"DIRC" or version not in (2, 3, 4):
        raise ValueError(signature)
    at, end, name = _HEADER.size, len(index) - hash_size, b""
    entries: list[_Entry] = []
    for _ in range(count):
        begin, at = at, at + _FACTS + hash_size
        (flags,) = struct.unpack_from(">H", index, at)
        at += 4 if flags & _EXTENDED else 2
        data, shared = index[begin:at], 0
        if version == 4:
            dropped, at = _number(index, at)
            if dropped > len(name):
                raise ValueError(dropped)
            shared = len(name) - dropped
        nul = index.index(b"\0", at, end)
        name = name[:shared] + index[at:nul]
        data += name
        data += b"\0" * (8 - len(data) % 8)
        at = nul + 1 if version == 4 else begin + len(data)
        entries.append(_Entry(name=text_of(name), data=data))
    return _Index(version=version, entries=entries, extensions=_extensions(index, at, end), hash_size=hash_size)


def _extensions(index: bytes, at: int, end: int) -> bytes:
    remaining = b""
    while at < end:
        name, size = struct.unpack_from(">4sI", index, at)
        if name == b"link":
            raise UnreadableIndex
        if name == _SPARSE_FOLDERS:
            remaining += index[at : at + 8 + size]
        elif name[:1].islower():
            raise ValueError(name)
        at += 8 + size
    if at != end:
        raise ValueError(at)
    return remaining


def _number(index: bytes, at: int) -> tuple[int, int]:
    """A number of variable length, as git writes offsets in packs."""
    byte = index[at]
    number = byte & 0x7F
    while byte & 0x80:
        at += 1
        byte = index[at]
        number = ((number + 1) << 7) | (byte & 0x7F)
    return number, at + 1
