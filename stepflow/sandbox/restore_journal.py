"""What a run must give back, written down before it is taken: a run that is killed leaves it to the next one.

A file per checkout, with a line for each thing, locked by the run that lives. Tools cannot reach it; it holds secrets.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

from stepflow.errors import InputError
from stepflow.sandbox.tree_walk import FOLDER_FLAGS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stepflow.domain.json import JsonValue

_SUFFIX = ".jsonl"
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class RestoreJournal:
    """One journal, open and locked."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._file = os.fdopen(descriptor, "r+b")

    @classmethod
    def begin(cls, folder: Path, checkout: Path) -> Self:
        """A new journal for the checkout. Raises `InputError` when another run works there."""
        path = _path_of(folder, checkout)
        while True:
            try:
                folder.mkdir(mode=stat.S_IRWXU, parents=True, exist_ok=True)
            except OSError as exc:
                raise InputError(
                    f"What this run must give back cannot be written down in {folder}: {exc.strerror}.",
                    hint="Let XDG_STATE_HOME name a folder that you may write to.",
                ) from exc
            # Whoever removes a journal removes an empty folder too.
            if journal := cls._opened(path, os.O_CREAT):
                break
        if journal._file.read(1):
            journal.close()
            raise InputError(
                f"A run that was killed has left the checkout {checkout} as it was then.",
                hint="Start this run again: what that one took is given back first.",
            )
        journal.record("checkout", str(checkout))
        return journal

    @classmethod
    def left_in(cls, folder: Path, checkout: Path) -> Iterator[Self]:
        """The journals that killed runs have left. Raises `InputError` when a run works in this checkout now."""
        own = _path_of(folder, checkout)
        if not folder.parent.is_dir():
            return
        for path in sorted({own, *folder.glob(f"*{_SUFFIX}")}):
            try:
                journal = cls._opened(path)
            except InputError:
                if path == own:
                    raise
                continue
            if journal:
                yield journal

    def record(self, kind: str, facts: JsonValue) -> None:
        """Write one thing down."""
        self._file.write(json.dumps([kind, facts]).encode() + b"\n")
        self._file.flush()

    def records(self) -> list[tuple[str, object]]:
        """Everything in its order. What was not written whole was not begun."""
        self._file.seek(0)
        return [tuple(json.loads(line)) for line in self._file if line.endswith(b"\n")]

    def remove(self) -> None:
        """All was given back."""
        with suppress(FileNotFoundError):
            self.path.unlink()
        with suppress(OSError):
            self.path.parent.rmdir()
        self.close()

    def close(self) -> None:
        """Let it go, for the next run."""
        self._file.close()

    @classmethod
    def _opened(cls, path: Path, create: int = 0) -> Self | None:
        """The journal at the path, locked; None when there is none. Only what nobody else can have written counts."""
        try:
            folder = os.open(path.parent, FOLDER_FLAGS)
        except FileNotFoundError:
            return None
        except OSError as exc:
            raise _untrusted(path.parent) from exc
        try:
            _demand_own(os.fstat(folder), path.parent)
            return cls._locked(path, folder, create)
        finally:
            os.close(folder)

    @classmethod
    def _locked(cls, path: Path, folder: int, create: int) -> Self | None:
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | create
        while True:
            try:
                file = os.open(path.name, flags, 0o600, dir_fd=folder)
            except FileNotFoundError:
                return None
            except OSError as exc:
                raise _untrusted(path) from exc
            journal = cls(path, file)
            try:
                _demand_own(os.fstat(file), path)
                if not stat.S_ISREG(os.fstat(file).st_mode):
                    raise _untrusted(path)
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                with suppress(FileNotFoundError):
                    if os.path.samestat(os.fstat(file), os.stat(path.name, dir_fd=folder, follow_symlinks=False)):
                        return journal
            except BlockingIOError:
                journal.close()
                raise InputError(
                    "Another run of stepflow works in this checkout.",
                    hint="Wait until it has ended, or use another checkout.",
                ) from None
            except InputError:
                journal.close()
                raise
            # Removed by another run between the opening and the lock.
            journal.close()


def _path_of(folder: Path, checkout: Path) -> Path:
    return folder / f"{hashlib.sha256(os.fsencode(checkout.resolve())).hexdigest()[:32]}{_SUFFIX}"


def _demand_own(info: os.stat_result, path: Path) -> None:
    if info.st_uid != os.geteuid() or info.st_mode & _OTHERS:
        raise _untrusted(path)


def _untrusted(path: Path) -> InputError:
    return InputError(
        f"{path} is not stepflow's own: others may write it.", hint="Remove it, and see who has put it there."
    )
