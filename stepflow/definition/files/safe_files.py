"""Files that somebody else may have put there, read without following a link on any component and without waiting.

A room above names the trusted folder; everything below it is reached by descriptors, so that a name which is exchanged
meanwhile is refused, not followed.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum, auto
from pathlib import Path, PurePath, PurePosixPath

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: Not blocking: a named pipe could take the place of the file that was looked at.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Why(Enum):
    """Why a file is not read."""

    MISSING = auto()
    OUTSIDE = auto()
    LINK = auto()
    IRREGULAR = auto()
    LARGE = auto()
    NOT_TEXT = auto()
    UNREADABLE = auto()


class FileRefused(Exception):
    """A file that is not read; the message completes `the file "x" …`."""

    def __init__(self, why: Why, message: str) -> None:
        super().__init__(message)
        self.why = why
        self.message = message

    @property
    def unsafe(self) -> bool:
        """True when reading the file would lead out of its folder."""
        return self.why in (Why.LINK, Why.OUTSIDE)

    @property
    def fix(self) -> str:
        """What to do about a file of an agent."""
        return _FIXES.get(self.why, "Name a file inside the agent folder.")


_FIXES = {
    Why.MISSING: "Create the file, or correct its name.",
    Why.IRREGULAR: "Make it a regular file that can be read.",
    Why.UNREADABLE: "Make it a regular file that can be read.",
    Why.LARGE: "Make it smaller.",
    Why.NOT_TEXT: "Save it as UTF-8.",
}


def read_below(folder: Path, path: str | PurePath, *, limit: int) -> bytes:
    """The content of a regular file below a folder that is trusted. Raises `FileRefused`, also above `limit` bytes."""
    with _opened(folder, path) as fd:
        data = _read(fd, limit + 1)
    if len(data) > limit:
        raise FileRefused(Why.LARGE, f"is larger than {limit // 1024 // 1024} MiB")
    return data


def text_of(content: bytes) -> str:
    """The text of a file, without the mark that some editors begin UTF-8 with. Raises `FileRefused` for other bytes."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise FileRefused(Why.NOT_TEXT, f"is not UTF-8 (byte {exc.start})") from exc


def read_start_below(folder: Path, path: str | PurePath, *, most: int) -> tuple[bytes, int]:
    """The first bytes of such a file, at most so many, and how many it has."""
    with _opened(folder, path) as fd:
        return _read(fd, most), os.fstat(fd).st_size


def read_end_below(folder: Path, path: str | PurePath, *, most: int) -> bytes:
    """The last bytes of such a file, at most so many."""
    with _opened(folder, path) as fd:
        os.lseek(fd, max(0, os.fstat(fd).st_size - most), os.SEEK_SET)
        return _read(fd, most)


def first_link(folder: Path, path: PurePath) -> str:
    """The beginning of a path below the folder at which a symbolic link stands; empty where none does."""
    for number in range(1, len(path.parts) + 1):
        begun = PurePosixPath(*path.parts[:number])
        try:
            mode = (folder / begun).lstat().st_mode
        except OSError:
            return ""
        if stat.S_ISLNK(mode):
            return str(begun)
    return ""


@contextmanager
def _opened(folder: Path, path: str | PurePath) -> Iterator[int]:
    names = PurePosixPath(path).parts
    if not names or ".." in names or names[0].startswith("/"):
        raise FileRefused(Why.OUTSIDE, "lies outside the folder that it must be in")
    fds: list[int] = []
    try:
        fds.append(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        for number, name in enumerate(names, 1):
            _check_kind(fds[-1], names[:number], last=number == len(names))
            fds.append(os.open(name, _FILE if number == len(names) else _FOLDER, dir_fd=fds[-1]))
        if not stat.S_ISREG(os.fstat(fds[-1]).st_mode):
            raise FileRefused(Why.IRREGULAR, "is not a regular file")
        yield fds[-1]
    except (FileNotFoundError, NotADirectoryError) as exc:
        raise FileRefused(Why.MISSING, "does not exist") from exc
    except (OSError, ValueError) as exc:
        if isinstance(exc, OSError) and exc.errno == errno.ELOOP:
            raise FileRefused(Why.LINK, "is reached through a symbolic link") from exc
        said = exc.strerror if isinstance(exc, OSError) else "its name cannot be written"
        raise FileRefused(Why.UNREADABLE, f"cannot be read: {said}") from exc
    finally:
        for fd in fds:
            os.close(fd)


def _check_kind(fd: int, names: tuple[str, ...], *, last: bool) -> None:
    """Looked at before it is opened, because opening a device can already do something, and to say which part it is."""
    mode = os.stat(names[-1], dir_fd=fd, follow_symlinks=False).st_mode
    if stat.S_ISLNK(mode):
        shown = "/".join(names)
        raise FileRefused(Why.LINK, "is a symbolic link" if last else f'is reached through the symbolic link "{shown}"')
    if last and not stat.S_ISREG(mode):
        raise FileRefused(Why.IRREGULAR, "is not a regular file")


def _read(fd: int, most: int) -> bytes:
    pieces: list[bytes] = []
    while most > 0 and (piece := os.read(fd, min(most, 1024 * 1024))):
        pieces.append(piece)
        most -= len(piece)
    return b"".join(pieces)


def walk_files(top: Path) -> Iterator[str]:
    """The files below a folder by their paths in it; no link to a folder is followed, and what cannot be read is left
    out. Folders may be nested as deep as a file system lets them: `os.walk` calls itself for each level."""
    waiting = [""]
    while waiting:
        inside = waiting.pop()
        try:
            entries = sorted(os.scandir(top / inside), key=lambda entry: entry.name)
        except OSError:
            continue
        folders = [entry for entry in entries if entry.is_dir()]
        yield from (f"{inside}{entry.name}" for entry in entries if entry not in folders)
        waiting += (f"{inside}{entry.name}/" for entry in reversed(folders) if not entry.is_symlink())
