"""Opens, reads, writes and digests files of the checkout by descriptor, and follows no link
(docs/threat-model.md, case 11)."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence

FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)
#: What tells that a file was not touched: size, mtime, ctime, inode, mode. None: touched too lately to tell.
Key = tuple[int, int, int, int, int] | None
#: The kernel's clock for file times moves in steps of up to 10 ms; a change within one step shows no other time.
STEP_SECONDS = 0.05
MOST_FILES = 20_000
_MOST_ENTRIES = 1_000_000
_PIECE = 1024 * 1024


class OperationRefused(Exception):
    """A tool call that is answered with an error; the message is for the model."""


def locate(root: str, given: str) -> tuple[str, ...]:
    """The names that lead from the root to the place, links resolved. Refuses what lies outside the repository."""
    if not given or "\0" in given:
        raise OperationRefused("the path is empty or contains a NUL character")
    if not given.isprintable() and given.encode("utf-8", "replace").decode() != given:
        raise OperationRefused("the path contains half of a surrogate pair, which no file name can have")
    real_root = os.path.realpath(root)
    real = os.path.realpath(os.path.join(real_root, given))
    if real != real_root and not real.startswith(real_root.rstrip("/") + "/"):
        raise OperationRefused(f"{given}: leads outside the repository; the file tools stay inside it")
    return tuple(part for part in os.path.relpath(real, real_root).split("/") if part != ".")


@contextlib.contextmanager
def open_folder(root: str, parts: tuple[str, ...], *, make: bool = False) -> Iterator[int]:
    """A descriptor of the folder; with `make`, missing folders on the way are created."""
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, 0o777, dir_fd=fd)
            inner = os.open(part, FOLDER_FLAGS, dir_fd=fd)
            os.close(fd)
            fd = inner
        yield fd
    finally:
        os.close(fd)


def open_regular(folder: int, name: str, shown: str, *, limit: int | None) -> int:
    """A descriptor of a regular file with one name, at most `limit` bytes long, open for reading."""
    try:
        # Looked at before it is opened: opening a device can already do something.
        check_regular(os.stat(name, dir_fd=folder, follow_symlinks=False), shown)
        fd = os.open(name, FILE_FLAGS, dir_fd=folder)
    except OSError as exc:
        raise OperationRefused(f"{shown}: {reason(exc)}") from None
    info = os.fstat(fd)
    try:
        check_regular(info, shown)
        if limit is not None and info.st_size > limit:
            raise OperationRefused(f"{shown}: has {info.st_size} bytes, more than the {limit} that this tool takes")
    except OperationRefused:
        os.close(fd)
        raise
    return fd


def check_regular(info: os.stat_result, shown: str) -> None:
    """Refuses everything but a regular file that has no second name somewhere else."""
    for is_kind, kind in _KINDS:
        if is_kind(info.st_mode):
            raise OperationRefused(f"{shown}: is {kind}, not a regular file")
    if info.st_nlink > 1:
        raise OperationRefused(
            f"{shown}: has {info.st_nlink} hard links, so it may also be a file outside the repository"
        )


def write_file(root: str, parts: tuple[str, ...], data: bytes, shown: str) -> bool:
    """Put the content there at once, by a new file that takes the name; the mode stays. True when the file is new."""
    if not parts:
        raise OperationRefused(f"{shown}: is the repository root, not a file")
    if any(part.casefold() == ".git" for part in parts):
        raise OperationRefused(f"{shown}: lies in .git, which only git itself may change")
    try:
        with open_folder(root, parts[:-1], make=True) as folder:
            mode = _mode_there(folder, parts[-1], shown)
            _replace(folder, parts[-1], data, mode)
            return mode is None
    except OSError as exc:
        raise OperationRefused(f"{shown}: {reason(exc)}") from None


def _mode_there(folder: int, name: str, shown: str) -> int | None:
    try:
        info = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    check_regular(info, shown)
    return stat.S_IMODE(info.st_mode) & 0o777


def _replace(folder: int, name: str, data: bytes, mode: int | None) -> None:
    draft = f".stepflow-{os.urandom(8).hex()}"
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666, dir_fd=folder)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            if mode is not None:
                os.fchmod(file.fileno(), mode)
        os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(draft, dir_fd=folder)
        raise


def reason(exc: OSError) -> str:
    """What went wrong, in the same words on every system."""
    match exc.errno:
        case errno.ENOENT:
            return "does not exist"
        case errno.ELOOP | errno.ENOTDIR:
            return "a part of the path is not a folder"
        case errno.EACCES | errno.EPERM:
            return "permission denied"
        case _:
            return exc.strerror or str(exc)


def read_regular(path: str, limit: int, folder: int | None = None) -> tuple[bytes, int]:
    """Content and mode of a regular file, by its path from an open folder; nothing of anything else, and of a file with
    more bytes than the limit."""
    with contextlib.suppress(OSError), os.fdopen(os.open(path, FILE_FLAGS, dir_fd=folder), "rb") as file:
        info = os.fstat(file.fileno())
        if stat.S_ISREG(info.st_mode) and len(data := file.read(limit + 1)) <= limit:
            return data, info.st_mode
    return b"", 0


def size_of(path: bytes) -> tuple[int, str]:
    """The bytes of a file, none of a link, a folder or nothing at all; and why it cannot be read, empty if it can."""
    try:
        info = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return 0, ""
    except OSError as exc:
        return 0, reason(exc)
    if stat.S_ISLNK(info.st_mode) or stat.S_ISDIR(info.st_mode):
        return 0, ""
    if not stat.S_ISREG(info.st_mode):
        return 0, "is no regular file"
    is_readable = os.access(path, os.R_OK, effective_ids=os.access in os.supports_effective_ids)
    return info.st_size, "" if is_readable else "permission denied"


def key_of(info: os.stat_result, now_ns: int) -> Key:
    """What tells later that the file is as it was when `now_ns` was read off the clock, before it was looked at."""
    # The time of change alone: any program may set the other one, and setting it counts as a change.
    if info.st_ctime_ns > now_ns - int(STEP_SECONDS * 1e9):
        return None
    return (info.st_size, info.st_mtime_ns, info.st_ctime_ns, info.st_ino, info.st_mode)


def digests(root: str, expressions: Sequence[str], folders: Sequence[list[str]]) -> dict[str, str]:
    """The digest, by its path, of everything but folders that fits one of the expressions; a folder that is not there
    holds nothing. Only what is below one of the `folders`, each a list of names, can fit."""
    fits = [re.compile(expression, re.DOTALL) for expression in expressions]
    by_path: dict[str, str] = {}
    for seen, (path, entry) in enumerate(walk(root, "", lambda path: _leads(path, folders))):
        if seen == _MOST_ENTRIES:
            raise OperationRefused(f"there are more than {_MOST_ENTRIES} files")
        if not entry.is_dir(follow_symlinks=False) and any(one.fullmatch(path) for one in fits):
            by_path[path] = digest(os.path.join(root, path))
            if len(by_path) > MOST_FILES:
                raise OperationRefused(f"more than {MOST_FILES} files fit; narrow the patterns")
    return by_path


def digest(full: str) -> str:
    """What is there, in a word that changes with it: content and the right to run it, a link's target, or a kind."""
    try:
        info = os.stat(full, follow_symlinks=False)
        if stat.S_ISLNK(info.st_mode):
            return f"link to {os.readlink(full)}"
        if not stat.S_ISREG(info.st_mode):
            return f"no regular file ({stat.S_IFMT(info.st_mode):o})"
        runs = " x" if info.st_mode & stat.S_IXUSR else ""
        return f"sha256 {_sha256(full)}{runs}"
    except OSError as exc:
        return reason(exc)


def _sha256(full: str) -> str:
    seen = hashlib.sha256()
    with os.fdopen(os.open(full, FILE_FLAGS), "rb") as file:
        while piece := file.read(_PIECE):
            seen.update(piece)
    return seen.hexdigest()


def _leads(path: str, prefixes: Sequence[list[str]]) -> bool:
    """Whether something below the folder can fit; git's own folder is left out."""
    names = path.split("/")
    return path != ".git" and any(
        all(name == step for name, step in zip(names, prefix, strict=False)) for prefix in prefixes
    )


def walk(root: str, start: str, enters: Callable[[str], bool]) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Everything below `start` by its path from the root, folder by folder in the order of names; what is in a folder
    only where `enters` says so. No link is followed."""
    waiting = [start]
    while waiting:
        folder = waiting.pop()
        below: list[str] = []
        for entry in _sorted_entries(os.path.join(root, folder)):
            path = f"{folder}/{entry.name}" if folder else entry.name
            if entry.is_dir(follow_symlinks=False) and enters(path):
                below.append(path)
            yield path, entry
        waiting += reversed(below)


def _sorted_entries(folder: str) -> list[os.DirEntry[str]]:
    """What is in a folder, by name; nothing where it is gone or closed."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return []


def remove(path: str) -> None:
    """Remove what stands there, a folder with all that is in it; nothing where nothing is."""
    if not os.path.lexists(path):
        return
    if stat.S_ISDIR(os.lstat(path).st_mode):
        shutil.rmtree(path)
    else:
        os.unlink(path)
