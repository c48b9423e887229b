"""The files of the checkout as the private index of snapshots knows them, and what is left out of it."""

from __future__ import annotations

import os
import re
import stat
from typing import TYPE_CHECKING, cast

from .git import MOST_CHANGED
from .paths import Refusal, reason

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .snapshot_git import SnapshotGit

_CLOSED_FOLDER = re.compile(rb"^warning: could not open directory '(.*?)/?': (.*)$", re.MULTILINE)
_UNREADABLE = re.compile(rb"^fatal: Unable to process path (.*)$", re.MULTILINE)
_MOST_UNREADABLE = 20
#: What a pattern of ignored paths may read a meaning into.
_SIGNS = re.compile(rb"[*?\[\\ !#]")
_NESTED = "is a repository of its own"


class WorkTree:
    """The files of the checkout, beside what the private index says of them. `exclude` are paths that are nobody's
    business."""

    def __init__(self, git: SnapshotGit, request: Mapping[str, object]) -> None:
        self._git = git
        excluded = [str(path).encode("latin-1") for path in cast("list[object]", request["exclude"])]
        self._patterns = [b"--exclude=/" + _SIGNS.sub(rb"\\\g<0>", path) for path in excluded]
        self._file_limit = int(str(request["file_limit"]))

    def changed(self) -> tuple[list[bytes], dict[bytes, str]]:
        """The paths that are not as the private index says, without those that git ignores; and why folders that
        cannot be looked into, and repositories in the repository, are left out."""
        complaints = bytearray()
        words = ("ls-files", "-z", "--modified", "--deleted", "--others", "--exclude-standard")
        said = self._git.ask(*words, *map(os.fsdecode, self._patterns), complaints=complaints)
        left = {path: why.decode().lower() for path, why in _CLOSED_FOLDER.findall(complaints)}
        paths = set(said.split(b"\0")) - {b""}
        nested = {path for path in paths if path.endswith(b"/")}
        if len(paths) > MOST_CHANGED:
            raise Refusal(f"there are more than {MOST_CHANGED} files that changed and that git does not ignore")
        return sorted(paths - nested), {**left, **{path.rstrip(b"/"): _NESTED for path in nested}}

    def add(self, paths: list[bytes], total: int) -> dict[bytes, str]:
        """Let the private index say of these paths what is there. Gives why others are left out: those that are too
        large or cannot be read, or for which there is no room in so many bytes."""
        left: dict[bytes, str] = {}
        sizes: dict[bytes, int] = {}
        for path in paths:
            sizes[path], why = self._examine(path)
            if why:
                left[path] = why
        room = total
        # The small ones first: when there is no room for all, one large file is left out, not many small ones.
        for path in sorted(sizes.keys() - left.keys(), key=lambda path: sizes[path]):
            room -= sizes[path]
            if room < 0 and sizes[path]:
                left[path] = f"the snapshot would have more than {total} bytes"
        left |= self._update([path for path in paths if path not in left])
        return left

    def drop(self, paths: list[bytes]) -> None:
        """Let the private index know nothing of these paths."""
        if paths:
            self._git.ask("update-index", "--force-remove", "-z", "--stdin", given=joined(paths))

    def _update(self, paths: list[bytes]) -> dict[bytes, str]:
        """Gives those that turned out to be unreadable: a file may change while it is read."""
        left: dict[bytes, str] = {}
        words = ("update-index", "-q", "--refresh", "--add", "--remove", "--replace", "-z", "--stdin")
        while paths:
            complaints = bytearray()
            self._git.ask(*words, given=joined(paths), fine=(0, 1, 128), complaints=complaints)
            if not complaints.startswith(b"fatal: ") and b"\nfatal: " not in complaints:
                break
            failed = _UNREADABLE.findall(complaints)
            readable = [path for path in paths if path not in failed]
            if readable == paths or len(left) >= _MOST_UNREADABLE:
                raise Refusal(f"git update-index failed: {complaints.decode('utf-8', 'replace').strip()[-500:]}")
            left |= dict.fromkeys(failed, "could not be read")
            paths = readable
        return left

    def _examine(self, path: bytes) -> tuple[int, str]:
        """The size of a file, and why it cannot be kept."""
        full = os.path.join(os.fsencode(self._git.checkout), path)
        try:
            info = os.lstat(full)
        except (FileNotFoundError, NotADirectoryError):
            return 0, ""
        except OSError as exc:
            return 0, reason(exc)
        if stat.S_IFMT(info.st_mode) in (stat.S_IFLNK, stat.S_IFDIR):
            return 0, ""
        if not stat.S_ISREG(info.st_mode):
            return 0, "is no regular file"
        if info.st_size > self._file_limit:
            return 0, f"has more than {self._file_limit} bytes"
        readable = os.access(full, os.R_OK, effective_ids=os.access in os.supports_effective_ids)
        return info.st_size, "" if readable else "permission denied"


def joined(paths: list[bytes]) -> bytes:
    """Paths as git reads them."""
    return b"".join(path + b"\0" for path in paths)
