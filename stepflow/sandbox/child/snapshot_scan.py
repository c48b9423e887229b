"""Walks the checkout for a snapshot: everything in it that git does not ignore, nested repositories whole.

Takes: the root, what was known before, a way to ask git what it ignores. Gives: kind, mode and a key of each path.
May touch: reads the checkout; follows no link.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .paths import Key, Refusal, below, key_of, reason

if TYPE_CHECKING:
    from collections.abc import Callable

    from .paths import Below

#: A run's tree beyond this has forgotten an ignore file; walking it after each call would take seconds.
MOST_ENTRIES = 200_000
#: Open folders on the way down; no real tree comes near.
_DEEPEST = 200
#: The files that say what git ignores below them.
RULES = b".gitignore"
_GIT = b".git"


@dataclass(frozen=True)
class Found:
    """`kind` is file, link or folder."""

    kind: str
    mode: int
    size: int
    key: Key


@dataclass(kw_only=True)
class Known:
    """What makes it needless to ask git again. Folders end with a slash in `asked` and `ignored`."""

    tracked: frozenset[bytes] = frozenset()
    asked: frozenset[bytes] = frozenset()
    ignored: frozenset[bytes] = frozenset()
    rules: dict[bytes, Key] = field(default_factory=dict)


@dataclass(kw_only=True)
class Scan:
    """`left` are paths that cannot be looked at, with the reason; `special` are pipes, sockets and devices."""

    found: dict[bytes, Found] = field(default_factory=dict)
    left: dict[bytes, str] = field(default_factory=dict)
    special: set[bytes] = field(default_factory=set)
    asked: set[bytes] = field(default_factory=set)
    ignored: set[bytes] = field(default_factory=set)
    rules: dict[bytes, Key] = field(default_factory=dict)


def scan(
    root: str, known: Known, ask: Callable[[list[bytes]], set[bytes]], leave: frozenset[bytes] = frozenset()
) -> Scan:
    """Look at everything. Raises `Refusal` when there is too much. `leave` are paths that are nobody's business."""
    seen = _Walk(root, known, ask, leave).run()
    if known.rules == seen.rules and None not in seen.rules.values():
        return seen
    if not known.asked and not known.ignored:
        return seen
    # An ignore file was changed: what was known of any name may be wrong now.
    return _Walk(root, Known(tracked=known.tracked), ask, leave).run()


def folders_of(paths: frozenset[bytes]) -> set[bytes]:
    """Every folder on the way to one of the paths."""
    found: set[bytes] = set()
    for path in paths:
        above = path.rpartition(b"/")[0]
        while above and above not in found:
            found.add(above)
            above = above.rpartition(b"/")[0]
    return found


class _Walk:
    def __init__(
        self, root: str, known: Known, ask: Callable[[list[bytes]], set[bytes]], leave: frozenset[bytes]
    ) -> None:
        self._root, self._known, self._ask, self._leave = root, known, ask, leave
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
        if len(self._scan.found) > MOST_ENTRIES:
            raise Refusal(f"there are more than {MOST_ENTRIES} files that git does not ignore")
        return deeper

    def _listing(self, tree: Below, path: bytes, nested: bool) -> list[tuple[bytes, os.stat_result, bool]]:
        found: list[tuple[bytes, os.stat_result, bool]] = []
        prefix = path + b"/" if path else b""
        if prefix.count(b"/") > _DEEPEST:
            self._scan.left[path] = f"lies more than {_DEEPEST} folders deep"
            return found
        try:
            with os.scandir(tree.folder(path)) as entries:
                for entry in entries:
                    name = os.fsencode(entry.name)
                    if (name == _GIT and not path) or prefix + name in self._leave:
                        continue
                    if len(found) > MOST_ENTRIES:
                        raise Refusal(f"a folder holds more than {MOST_ENTRIES} files")
                    with contextlib.suppress(FileNotFoundError):
                        found.append((prefix + name, entry.stat(follow_symlinks=False), nested))
        except FileNotFoundError:
            return []
        except OSError as exc:
            self._scan.left[path] = reason(exc)
            return []
        if path and any(name == prefix + _GIT for name, _, _ in found):
            # git itself stops at a repository inside the repository; all that is in it belongs together.
            return [(name, info, True) for name, info, _ in found]
        for name, info, _ in found:
            if name == prefix + RULES:
                self._scan.rules[name] = key_of(info, self._now)
        return found

    def _ignored(self, names: list[bytes]) -> set[bytes]:
        known = self._known
        untracked = [name for name in names if not self._is_tracked(name)]
        unknown = [name for name in untracked if name not in known.asked and name not in known.ignored]
        ignored = {name for name in untracked if name in known.ignored}
        if unknown:
            answer = self._ask([name.rstrip(b"/") for name in unknown])
            ignored |= {name for name in unknown if name.rstrip(b"/") in answer}
        self._scan.ignored |= ignored
        self._scan.asked.update(name for name in untracked if name not in ignored)
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
        self._scan.found[path] = Found(kind, mode, info.st_size, key_of(info, self._now))
        return True


def _slash(info: os.stat_result) -> bytes:
    return b"/" if stat.S_ISDIR(info.st_mode) else b""
