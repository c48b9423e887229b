"""HOME and TMPDIR as `setup` left them, put back before each validator (security.md case 37).

The copy is a file without a name that no tool can open.
"""

from __future__ import annotations

import contextlib
import os
import stat
import subprocess
import tarfile
import time
from dataclasses import dataclass
from functools import cached_property
from typing import IO, TYPE_CHECKING

from .paths import Key, Refusal, key_of, remove

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - whose content is looked at
_MOST_ENTRIES = 1_000_000
_PIECE = 1024 * 1024
_WIPE_SECONDS = 300.0
#: So many changed paths are listed; their number is always complete.
_MOST_NAMED = 100


@dataclass(frozen=True, kw_only=True)
class Fact:
    """What stands at a path: its kind and mode, and what tells that it was not touched. Of a folder only its mode
    counts: what is in it has facts of its own."""

    mode: int
    key: Key


class Baseline:
    """The two folders, which lie side by side, as they were when this was made and `kept`. Raises `Refusal` for what
    cannot be kept."""

    def __init__(self, home: str, tmp: str, kept: IO[bytes]) -> None:
        self._root = os.path.dirname(home)
        #: The folders' names, and how people read them.
        self._folders = {os.path.basename(home): "~", os.path.basename(tmp): "$TMPDIR"}
        kept.seek(0)
        kept.truncate()
        try:
            with tarfile.open(fileobj=kept, mode="w") as archive:
                for folder in self._folders:
                    archive.add(self._path(folder), arcname=folder)
            self._facts = dict(self._scan())
        except (OSError, RecursionError, tarfile.TarError) as exc:
            raise Refusal(f"HOME and TMPDIR cannot be kept as setup left them: {exc}") from exc

    def restore(self, kept: IO[bytes]) -> list[str]:
        """Put the folders back; gives what was added, changed or removed, as `~/path (added)`. Raises `Refusal`."""
        copy = _Copy(kept, self._root)
        try:
            return self._restored(copy)
        except (OSError, RecursionError, tarfile.TarError):
            # Tools can leave trees that only programs made for it get rid of.
            return self._made_anew(copy)

    def _restored(self, copy: _Copy) -> list[str]:
        now = dict(self._scan())
        added = [name for name in sorted(now.keys() - self._facts.keys()) if os.path.dirname(name) in self._facts]
        removed = self._facts.keys() - now.keys()
        changed = {name for name in now.keys() & self._facts.keys() if self._differs(name, now[name], copy)}
        if not (added or removed or changed):
            self._facts = now
            return []
        for name in added:
            remove(self._path(name))
        for name in changed:
            if not (stat.S_ISDIR(now[name].mode) and copy.members[name].isdir()):
                remove(self._path(name))
        for name in copy.members:
            if name in removed or name in changed:
                copy.put(name)
        self._facts = dict(self._scan())
        topmost = (name for name in removed if os.path.dirname(name) not in removed)
        return self._named(
            {**dict.fromkeys(added, "added"), **dict.fromkeys(changed, "changed"), **dict.fromkeys(topmost, "removed")}
        )

    def _made_anew(self, copy: _Copy) -> list[str]:
        try:
            for folder in map(self._path, self._folders):
                for program in (
                    ("/bin/chmod", "-R", "u+rwx", folder),
                    ("/usr/bin/find", folder, "-mindepth", "1", "-delete"),
                ):
                    subprocess.run(program, env={}, check=False, capture_output=True, timeout=_WIPE_SECONDS)  # noqa: S603
            for name in copy.members:
                copy.put(name)
            self._facts = dict(self._scan())
        except (OSError, RecursionError, tarfile.TarError, subprocess.TimeoutExpired) as exc:
            raise Refusal(f"HOME and TMPDIR cannot be put back as setup left them: {exc}") from exc
        return ["everything in HOME and TMPDIR (made anew)"]

    def _scan(self) -> Iterator[tuple[str, Fact]]:
        """Every path with its fact, by the names that it has in the copy."""
        now_ns = time.time_ns()
        waiting = list(self._folders)
        yield from ((name, _fact(os.lstat(self._path(name)), now_ns)) for name in waiting)
        seen = 0
        while waiting:
            above = waiting.pop()
            with os.scandir(self._path(above)) as entries:
                for entry in entries:
                    seen += 1
                    if seen > _MOST_ENTRIES:
                        raise OSError(0, f"there are more than {_MOST_ENTRIES} files")
                    name = f"{above}/{entry.name}"
                    yield name, _fact(entry.stat(follow_symlinks=False), now_ns)
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(name)

    def _differs(self, name: str, now: Fact, copy: _Copy) -> bool:
        then = self._facts[name]
        if now == then and now.key is not None:
            return False
        if now.mode != then.mode:
            return True
        member = copy.members.get(name)
        if member is None or member.isdir():
            return False
        if member.issym():
            return os.readlink(self._path(name)) != member.linkname
        if member.islnk():
            member = copy.members[member.linkname]
        return member.isfile() and not copy.is_same(self._path(name), member)

    def _path(self, name: str) -> str:
        return os.path.join(self._root, name)

    def _named(self, states: Mapping[str, str]) -> list[str]:
        parts = ((name.partition("/"), states[name]) for name in sorted(states))
        named = [f"{self._folders[folder]}/{below} ({state})" for (folder, _, below), state in parts]
        more = len(named) - _MOST_NAMED
        return [*named[:_MOST_NAMED], *([f"and {more} more"] if more > 0 else [])]


class _Copy:
    """What is kept of the two folders, whose place is `root`."""

    def __init__(self, kept: IO[bytes], root: str) -> None:
        self._kept, self._root = kept, root

    @cached_property
    def members(self) -> dict[str, tarfile.TarInfo]:
        """All of it by the names, in the order in which it can be written."""
        return {member.name: member for member in self._archive.getmembers()}

    def is_same(self, path: str, member: tarfile.TarInfo) -> bool:
        """Whether a file has the bytes of this one."""
        saved = self._archive.extractfile(member)
        with open(path, "rb") as file:
            while saved and (piece := saved.read(_PIECE)):
                if file.read(len(piece)) != piece:
                    return False
            return not file.read(1)

    def put(self, name: str) -> None:
        """Write one member as it was. A second name of a file leads to the first one, which is written before it."""
        self._archive.extract(self.members[name], self._root)

    @cached_property
    def _archive(self) -> tarfile.TarFile:
        self._kept.seek(0)
        archive = tarfile.open(fileobj=self._kept, mode="r:")  # noqa: SIM115 - as the file below it
        # Links may lead where they like: what is put back is what stood there, by its own user's hand.
        archive.extraction_filter = lambda member, _: member
        return archive


class SharedMemory:
    """What stands in /dev/shm as it was when this was made. For a user whom nobody else is."""

    def __init__(self) -> None:
        self._known = self._names()

    def restore(self) -> None:
        """Remove what is new and this user's."""
        for name in self._names() - self._known:
            with contextlib.suppress(OSError):
                remove(os.path.join(_SHARED_MEMORY, name))

    def _names(self) -> frozenset[str]:
        with contextlib.suppress(OSError):
            return frozenset(os.listdir(_SHARED_MEMORY))
        return frozenset()


def _fact(info: os.stat_result, now_ns: int) -> Fact:
    return Fact(mode=info.st_mode, key=None if stat.S_ISDIR(info.st_mode) else key_of(info, now_ns))
