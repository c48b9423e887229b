"""What a snapshot sees in the work tree, what it remembers for the next one, and what differs from the base."""

from __future__ import annotations

import contextlib
import hashlib
import marshal
import os
import stat
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .paths import Key, Refusal, below, key_of, reason
from .snapshot_git import Standing, digest_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .paths import Below
    from .snapshot_git import Git

#: A run's tree beyond this has forgotten an ignore file; walking it after each call would take seconds.
MOST_ENTRIES = 200_000
#: Open folders on the way down; no real tree comes near.
_DEEPEST = 200
#: The files that say what git ignores below them.
RULES = b".gitignore"
_GIT = b".git"
#: ("base", mode): as in the base's tree. ("file", mode, digest, size), ("link", target), ("folder", mode),
#: ("left out", reason), and in an overlay ("gone",). Bytes are written as Latin-1.
Entry = tuple[str | int, ...]
Tree = dict[bytes, tuple[bytes, str]]
LINK = b"120000"
_PLAIN, _RUNS = b"100644", b"100755"
_USUAL = (0o644, 0o755, 0o755)
#: Bytes of a file, and of all that one snapshot brings: nobody reads a longer diff.
FILE_LIMIT = 256 * 1024
TOTAL_LIMIT = 4 * 1024 * 1024
MOST_FILES = 1000
#: git takes what holds a zero among its first bytes for no text.
_LOOKED_AT = 8000


@dataclass(frozen=True)
class ScannedEntry:
    """`kind` is file, link or folder."""

    kind: str
    mode: int
    size: int
    key: Key


@dataclass(kw_only=True)
class Known:
    """What makes it needless to ask git again. Folders end with a slash in `asked` and `ignored`."""

    tracked: frozenset[bytes] = frozenset()
    examined: frozenset[bytes] = frozenset()
    ignored: frozenset[bytes] = frozenset()
    rules: dict[bytes, Key] = field(default_factory=dict)


@dataclass(kw_only=True)
class Scan:
    """`left` are paths that cannot be looked at, with the reason; `special` are pipes, sockets and devices."""

    entries: dict[bytes, ScannedEntry] = field(default_factory=dict)
    left: dict[bytes, str] = field(default_factory=dict)
    special: set[bytes] = field(default_factory=set)
    examined: set[bytes] = field(default_factory=set)
    ignored: set[bytes] = field(default_factory=set)
    rules: dict[bytes, Key] = field(default_factory=dict)


def scan(
    root: str, known: Known, ask: Callable[[list[bytes]], set[bytes]], exclude: frozenset[bytes] = frozenset()
) -> Scan:
    """Look at everything. Raises `Refusal` when there is too much. `exclude` are paths that are nobody's business."""
    seen = _Walk(root, known, ask, exclude).run()
    if known.rules == seen.rules and None not in seen.rules.values():
        return seen
    if not known.examined and not known.ignored:
        return seen
    # An ignore file was changed: what was known of any name may be wrong now.
    return _Walk(root, Known(tracked=known.tracked), ask, exclude).run()


def folders_of(paths: frozenset[bytes]) -> set[bytes]:
    """Every folder on the way to one of the paths."""
    folders: set[bytes] = set()
    for path in paths:
        above = path.rpartition(b"/")[0]
        while above and above not in folders:
            folders.add(above)
            above = above.rpartition(b"/")[0]
    return folders


class _Walk:
    def __init__(
        self, root: str, known: Known, ask: Callable[[list[bytes]], set[bytes]], exclude: frozenset[bytes]
    ) -> None:
        self._root, self._known, self._ask, self._exclude = root, known, ask, exclude
        self._tracked_folders = folders_of(known.tracked)
        self._now = time.time_ns()
        self._scan = Scan()

    def run(self) -> Scan:
        """Level by level, so that git is asked once for all the new names of one."""
        level: list[tuple[bytes, bool]] = [(b"", False)]
        with below(self._root) as tree:
            while level:
                level = self._below(tree, level)
        return self._scan

    def _below(self, tree: Below, level: list[tuple[bytes, bool]]) -> list[tuple[bytes, bool]]:
        listed: list[tuple[bytes, os.stat_result, bool]] = []
        for path, nested in level:
            listed += self._listing(tree, path, nested)
        ignored = self._ignored([path + _slash(info) for path, info, nested in listed if not nested])
        deeper = []
        for path, info, nested in listed:
            if path + _slash(info) in ignored or not self._take(path, info):
                continue
            if stat.S_ISDIR(info.st_mode):
                deeper.append((path, nested))
        if len(self._scan.entries) > MOST_ENTRIES:
            raise Refusal(f"there are more than {MOST_ENTRIES} files that git does not ignore")
        return deeper

    def _listing(self, tree: Below, path: bytes, nested: bool) -> list[tuple[bytes, os.stat_result, bool]]:
        listed: list[tuple[bytes, os.stat_result, bool]] = []
        prefix = path + b"/" if path else b""
        if prefix.count(b"/") > _DEEPEST:
            self._scan.left[path] = f"lies more than {_DEEPEST} folders deep"
            return listed
        try:
            with os.scandir(tree.folder(path)) as entries:
                for entry in entries:
                    name = os.fsencode(entry.name)
                    if (name == _GIT and not path) or prefix + name in self._exclude:
                        continue
                    if len(listed) > MOST_ENTRIES:
                        raise Refusal(f"a folder holds more than {MOST_ENTRIES} files")
                    with contextlib.suppress(FileNotFoundError):
                        listed.append((prefix + name, entry.stat(follow_symlinks=False), nested))
        except FileNotFoundError:
            return []
        except OSError as exc:
            self._scan.left[path] = reason(exc)
            return []
        if path and any(name == prefix + _GIT for name, _, _ in listed):
            # git itself stops at a repository inside the repository; all that is in it belongs together.
            return [(name, info, True) for name, info, _ in listed]
        for name, info, _ in listed:
            if name == prefix + RULES:
                self._scan.rules[name] = key_of(info, self._now)
        return listed

    def _ignored(self, names: list[bytes]) -> set[bytes]:
        known = self._known
        untracked = [name for name in names if not self._is_tracked(name)]
        unknown = [name for name in untracked if name not in known.examined and name not in known.ignored]
        ignored = {name for name in untracked if name in known.ignored}
        if unknown:
            answer = self._ask([name.rstrip(b"/") for name in unknown])
            ignored |= {name for name in unknown if name.rstrip(b"/") in answer}
        self._scan.ignored |= ignored
        self._scan.examined.update(name for name in untracked if name not in ignored)
        return ignored

    def _is_tracked(self, name: bytes) -> bool:
        return (path := name.rstrip(b"/")) in self._known.tracked or path in self._tracked_folders

    def _take(self, path: bytes, info: os.stat_result) -> bool:
        mode = stat.S_IMODE(info.st_mode) & 0o777
        match stat.S_IFMT(info.st_mode):
            case stat.S_IFREG:
                kind = "file"
            case stat.S_IFLNK:
                kind = "link"
            case stat.S_IFDIR:
                kind = "folder"
            case _:
                self._scan.special.add(path)
                return False
        self._scan.entries[path] = ScannedEntry(kind, mode, info.st_size, key_of(info, self._now))
        return True


def _slash(info: os.stat_result) -> bytes:
    return b"/" if stat.S_ISDIR(info.st_mode) else b""


@dataclass(kw_only=True)
class Memory:
    """What makes the next snapshot cheap. `modes` are the usual ones of plain files, programs and folders; `overlay`
    is what differs from the base's tree in these; `sent` are the digests of the blobs that were handed on,
    `origins_sent` the paths whose content in the base was sent.
    """

    base: str = ""
    tree: Tree = field(default_factory=dict)
    modes: tuple[int, int, int] = _USUAL
    entries: dict[bytes, tuple[Key, Entry]] = field(default_factory=dict)
    overlay: dict[bytes, Entry] = field(default_factory=dict)
    sent: set[str] = field(default_factory=set)
    origins_sent: set[bytes] = field(default_factory=set)
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
    remaining = {path for path, (_, entry) in now.entries.items() if entry[0] != "folder" or path not in holding}
    on_the_way = folders_of(frozenset(remaining))
    entries: dict[bytes, Entry] = {path: ("gone",) for path in now.tree if path not in now.entries}
    for path, (_, entry) in now.entries.items():
        if entry[0] == "folder":
            if path in remaining or (path in on_the_way and entry[1] != now.modes[2]):
                entries[path] = entry
        elif entry[0] != "base" or entry[1] != usual_mode(now.tree[path][0], now.modes):
            entries[path] = entry
    return entries


def unsent_origins(tree: Tree, sent: set[bytes], old: dict[bytes, Entry], new: dict[bytes, Entry]) -> list[bytes]:
    """The paths that were as in the base before, or are now, and of which the base's content was not sent yet."""
    changed = (path for path in old.keys() | new.keys() if old.get(path) != new.get(path))
    return sorted(
        path for path in changed if path in tree and path not in sent and (_is_base(old, path) or _is_base(new, path))
    )


def send_origins(
    git: Git, tree: Tree, paths: list[bytes], send: Callable[[str, bytes], bool]
) -> dict[str, tuple[str | int, ...]]:
    """Of each path ("file", mode, digest, size), ("link", target), or ("bare", mode, size, why) without its content."""
    origins: dict[str, tuple[str | int, ...]] = {}
    short: list[bytes] = []
    free_bytes = TOTAL_LIMIT
    for path, size in zip(paths, _sizes(git, [tree[path][1] for path in paths]), strict=True):
        if size is None or size > FILE_LIMIT or size > free_bytes or len(short) >= MOST_FILES:
            why = "missing" if size is None else "large" if size > FILE_LIMIT else "many"
            origins[path.decode("latin-1")] = ("bare", _mode(tree, path), size or 0, why)
        else:
            free_bytes -= size
            short.append(path)
    for path, data in zip(short, git.contents(tree[path][1] for path in short) if short else (), strict=True):
        origins[path.decode("latin-1")] = _origin(tree, path, data, send)
    return origins


def _origin(tree: Tree, path: bytes, data: bytes, send: Callable[[str, bytes], bool]) -> tuple[str | int, ...]:
    if tree[path][0] == LINK:
        return ("link", data.decode("latin-1"))
    if b"\0" in data[:_LOOKED_AT]:
        return ("bare", _mode(tree, path), len(data), "binary")
    digest = digest_of(data)
    if not send(digest, data):
        return ("bare", _mode(tree, path), len(data), "many")
    return ("file", _mode(tree, path), digest, len(data))


def _is_base(overlay: dict[bytes, Entry], path: bytes) -> bool:
    return path not in overlay or overlay[path][0] == "base"


def _mode(tree: Tree, path: bytes) -> int:
    return int(tree[path][0], 8) & 0o777


def _sizes(git: Git, objects: list[str]) -> Iterable[int | None]:
    """The size of each object; None for one that is not there."""
    query = "".join(f"{name}\n" for name in objects).encode()
    said = git.ask("cat-file", "--batch-check=%(objectsize)", given=query) if objects else b""
    return [int(line) if line.isdigit() else None for line in said.splitlines()]
