"""Which other repositories git's index names, and an index without the ones that are new.

Read here and not by git: what tools wrote must neither be parsed by a program of root's, nor wait for a second sandbox
while a job is being cancelled. The format: https://git-scm.com/docs/index-format
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Set

_HEADER = struct.Struct(">4sII")
_GITLINK = 0o160000
#: Ten numbers of 32 bits; the seventh is the mode.
_FACTS = 40
_MODE = struct.Struct(">24xI")
_EXTENDED, _NAME_LENGTH = 0x4000, 0x0FFF
#: An extension whose name begins with a small letter changes what the entries mean; this one has no content.
_SPARSE_FOLDERS = b"sdir"
_HASHES = (hashlib.sha1, hashlib.sha256)
_MODE_BYTES = struct.pack(">I", _GITLINK)


class UnreadableIndex(Exception):
    """The index is none, or it leaves its entries to another file."""


@dataclass(frozen=True, kw_only=True)
class _Entry:
    name: bytes
    facts: bytes
    flags: int
    more_flags: bytes

    @property
    def is_gitlink(self) -> bool:
        return bool(_MODE.unpack_from(self.facts)[0] == _GITLINK)


def gitlinks_in(index: bytes) -> frozenset[bytes]:
    """The paths of all gitlinks; raises `UnreadableIndex`."""
    # Reading every entry takes time, and few indexes have what could be one, or could lead to another file.
    if _MODE_BYTES not in index and b"link" not in index:
        return frozenset()
    return frozenset(entry.name for entry in _read(index)[0] if entry.is_gitlink)


def without_gitlinks(index: bytes, names: Set[bytes]) -> bytes:
    """The index without these gitlinks. What git only keeps to be faster is left out; it makes that again."""
    entries, hash_size, extensions = _read(index)
    remaining = [entry for entry in entries if not (entry.is_gitlink and entry.name in names)]
    version = 3 if any(entry.more_flags for entry in remaining) else 2
    data = _HEADER.pack(b"DIRC", version, len(remaining)) + b"".join(map(_written, remaining)) + extensions
    return data + next(each(data).digest() for each in _HASHES if each().digest_size == hash_size)


def _read(index: bytes) -> tuple[list[_Entry], int, bytes]:
    """Entries, the length of a hash, and the extensions that must stay."""
    for each in _HASHES:
        try:
            return _read_with(index, each().digest_size)
        except (struct.error, IndexError, ValueError):
            continue
    raise UnreadableIndex


def _read_with(index: bytes, hash_size: int) -> tuple[list[_Entry], int, bytes]:
    signature, version, count = _HEADER.unpack_from(index)
    if signature != b"DIRC" or version not in (2, 3, 4):
        raise ValueError(signature)
    at, end, previous = _HEADER.size, len(index) - hash_size, b""
    entries: list[_Entry] = []
    for _ in range(count):
        begin = at
        facts, at = index[at : at + _FACTS + hash_size], at + _FACTS + hash_size
        (flags,) = struct.unpack_from(">H", index, at)
        more = index[at + 2 : at + 4] if flags & _EXTENDED else b""
        at += 2 + len(more)
        if version == 4:
            shared, at = _number(index, at)
            if shared > len(previous):
                raise ValueError(shared)
            previous = previous[: len(previous) - shared]
        nul = index.index(b"\0", at, end)
        name = (previous if version == 4 else b"") + index[at:nul]
        previous, at = name, nul + 1
        if version != 4:
            at = begin + (nul - begin + 8) // 8 * 8
        entries.append(_Entry(name=name, facts=facts, flags=flags, more_flags=more))
    return entries, hash_size, _extensions(index, at, end)


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


def _written(entry: _Entry) -> bytes:
    length = min(len(entry.name), _NAME_LENGTH)
    flags = struct.pack(">H", entry.flags & ~_NAME_LENGTH | length) + entry.more_flags
    data = entry.facts + flags + entry.name
    return data + b"\0" * (8 - len(data) % 8)


def _number(index: bytes, at: int) -> tuple[int, int]:
    """A number of variable length, as git writes offsets in packs."""
    byte = index[at]
    number = byte & 0x7F
    while byte & 0x80:
        at += 1
        byte = index[at]
        number = ((number + 1) << 7) | (byte & 0x7F)
    return number, at + 1
