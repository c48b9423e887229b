"""Where the file tools may go: regular files inside the checkout, and nowhere else (security.md case 11).

Takes: a path as the model wrote it. Gives: an open descriptor reached without following any link.
May touch: the checkout. Every folder on the way is opened by its parent, so a swapped link is refused, not followed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class Refusal(Exception):
    """A tool call that is answered with an error; the message is for the model."""


def locate(root: str, given: str) -> tuple[str, ...]:
    """The names that lead from the root to the place, links resolved. Refuses what lies outside the repository."""
    if not given or "\0" in given:
        raise Refusal("the path is empty or holds a NUL character")
    if not given.isprintable() and given.encode("utf-8", "replace").decode() != given:
        raise Refusal("the path holds half of a surrogate pair, which no file name can have")
    real_root = os.path.realpath(root)
    real = os.path.realpath(os.path.join(real_root, given))
    if real != real_root and not real.startswith(real_root.rstrip("/") + "/"):
        raise Refusal(f"{given}: leads outside the repository; the file tools stay inside it")
    return tuple(part for part in os.path.relpath(real, real_root).split("/") if part != ".")


@contextlib.contextmanager
def open_folder(root: str, parts: tuple[str, ...], *, make: bool = False) -> Iterator[int]:
    """A descriptor of the folder; with `make`, missing folders on the way are created."""
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts:
            inner = _step_into(fd, part, make=make)
            os.close(fd)
            fd = inner
        yield fd
    finally:
        os.close(fd)


def open_regular(folder: int, name: str, shown: str, *, limit: int | None) -> tuple[int, os.stat_result]:
    """A regular file with one name, at most `limit` bytes long, open for reading."""
    try:
        # Looked at before it is opened: opening a device can already do something.
        check_regular(os.stat(name, dir_fd=folder, follow_symlinks=False), shown)
        fd = os.open(name, FILE_FLAGS, dir_fd=folder)
    except OSError as exc:
        raise Refusal(f"{shown}: {reason(exc)}") from None
    info = os.fstat(fd)
    try:
        check_regular(info, shown)
        if limit is not None and info.st_size > limit:
            raise Refusal(f"{shown}: has {info.st_size} bytes, more than the {limit} that this tool takes")
    except Refusal:
        os.close(fd)
        raise
    return fd, info


def check_regular(info: os.stat_result, shown: str) -> None:
    """Refuses everything but a regular file that has no second name somewhere else."""
    for is_kind, kind in _KINDS:
        if is_kind(info.st_mode):
            raise Refusal(f"{shown}: is {kind}, not a regular file")
    if info.st_nlink > 1:
        raise Refusal(f"{shown}: has {info.st_nlink} hard links, so it may also be a file outside the repository")


def write_file(root: str, parts: tuple[str, ...], data: bytes, shown: str) -> bool:
    """Put the content there at once, by a new file that takes the name; the mode stays. True when the file is new."""
    if not parts:
        raise Refusal(f"{shown}: is the repository root, not a file")
    if any(part.casefold() == ".git" for part in parts):
        raise Refusal(f"{shown}: lies in .git, which only git itself may change")
    try:
        with open_folder(root, parts[:-1], make=True) as folder:
            mode = _mode_there(folder, parts[-1], shown)
            _replace(folder, parts[-1], data, mode)
            return mode is None
    except OSError as exc:
        raise Refusal(f"{shown}: {reason(exc)}") from None


def _step_into(fd: int, part: str, *, make: bool) -> int:
    if make:
        with contextlib.suppress(FileExistsError):
            os.mkdir(part, 0o777, dir_fd=fd)
    return os.open(part, _FOLDER_FLAGS, dir_fd=fd)


def _mode_there(folder: int, name: str, shown: str) -> int | None:
    try:
        info = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    check_regular(info, shown)
    return stat.S_IMODE(info.st_mode) & 0o777


def _replace(folder: int, name: str, data: bytes, mode: int | None) -> None:
    draft = f".stepflow-{secrets.token_hex(8)}"
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
