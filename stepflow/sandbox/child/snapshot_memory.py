"""What a snapshot remembers for the next one, and what of it differs from the base's tree.

Takes: what was seen. Gives: the overlay over the base, in few words where the modes are the usual ones.
May touch: nothing.
"""

from __future__ import annotations

import hashlib
import marshal
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .snapshot_git import Standing
from .snapshot_scan import Known, folders_of

if TYPE_CHECKING:
    from .paths import Key

#: ("base", mode): as in the base's tree. ("file", mode, digest, size), ("link", target), ("folder", mode),
#: ("left out", reason), and in an overlay ("gone",). Bytes are written as Latin-1.
Entry = tuple[str | int, ...]
Tree = dict[bytes, tuple[bytes, str]]
LINK = b"120000"
_PLAIN, _RUNS = b"100644", b"100755"
_USUAL = (0o644, 0o755, 0o755)


@dataclass(kw_only=True)
class Memory:
    """What makes the next snapshot cheap. `modes` are the usual ones of plain files, programs and folders; `overlay`
    is what differs from the base's tree in these; `sent` are the digests of the blobs that were handed on, `told` the
    paths of which it was told what the base holds.
    """

    base: str = ""
    tree: Tree = field(default_factory=dict)
    modes: tuple[int, int, int] = _USUAL
    entries: dict[bytes, tuple[Key, Entry]] = field(default_factory=dict)
    overlay: dict[bytes, Entry] = field(default_factory=dict)
    sent: set[str] = field(default_factory=set)
    told: set[bytes] = field(default_factory=set)
    known: Known = field(default_factory=Known)
    rules: tuple[Key, ...] = ()
    excludes: bytes = b""
    standing: Standing = field(default_factory=Standing)

    def pack(self) -> bytes:
        """As bytes."""
        return marshal.dumps({**vars(self), "known": vars(self.known), "standing": vars(self.standing)})

    @classmethod
    def of(cls, data: bytes) -> Memory:
        """From bytes."""
        fields = marshal.loads(data)  # noqa: S302 - our own worker's, kept by the supervisor
        return cls(**{**fields, "known": Known(**fields["known"]), "standing": Standing(**fields["standing"])})


def object_id(base: str, data: bytes) -> str:
    """What git would call it, without any filter."""
    header = b"blob %d\0" % len(data)
    made = hashlib.sha256(header) if len(base) == 64 else hashlib.sha1(header, usedforsecurity=False)
    made.update(data)
    return made.hexdigest()


def usual_mode(kind: bytes, modes: tuple[int, int, int]) -> int:
    """The mode of a file of the base that nothing else is known of; links have none."""
    return {_PLAIN: modes[0], _RUNS: modes[1]}.get(kind, 0)


def usual_modes(now: Memory) -> tuple[int, int, int]:
    """A clone has the modes that its umask gave it; naming the common ones keeps them out of the manifest."""
    seen: tuple[Counter[int], Counter[int], Counter[int]] = (Counter(), Counter(), Counter())
    places = {_PLAIN: 0, _RUNS: 1}
    for path, (_, entry) in now.entries.items():
        if entry[0] == "folder":
            seen[2][int(entry[1])] += 1
        elif entry[0] == "base" and now.tree[path][0] in places:
            seen[places[now.tree[path][0]]][int(entry[1])] += 1
    plain, runs, folder = (
        counted.most_common(1)[0][0] if counted else usual for counted, usual in zip(seen, _USUAL, strict=True)
    )
    return plain, runs, folder


def overlay_of(now: Memory) -> dict[bytes, Entry]:
    """What differs from the base's tree in the usual modes. A folder that holds something needs no word of its own,
    and one that holds only what git ignores is as little kept as that.
    """
    holding = {path.rstrip(b"/").rpartition(b"/")[0] for path in (*now.entries, *now.known.ignored)}
    kept = {path for path, (_, entry) in now.entries.items() if entry[0] != "folder" or path not in holding}
    on_the_way = folders_of(frozenset(kept))
    found: dict[bytes, Entry] = {path: ("gone",) for path in now.tree if path not in now.entries}
    for path, (_, entry) in now.entries.items():
        if entry[0] == "folder":
            if path in kept or (path in on_the_way and entry[1] != now.modes[2]):
                found[path] = entry
        elif entry[0] != "base" or entry[1] != usual_mode(now.tree[path][0], now.modes):
            found[path] = entry
    return found
