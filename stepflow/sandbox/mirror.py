"""A folder that is made like another one again and again, and of which only what was touched meanwhile is copied."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from stepflow.programs import run_program
from stepflow.sandbox.child.paths import remove
from stepflow.sandbox.copying import copy_files

#: What tells that something was not touched: its mode, and unless it is a folder its size, inode and time of change,
#: which no program can set.
_Fact = tuple[int, ...]
#: So many names are given to one program.
_AT_ONCE = 1000


class Mirror:
    """The copy of a folder. Nothing may run in it during a call."""

    def __init__(
        self,
        original: Path,
        copy: Callable[[], Path],
        *,
        without: Collection[str] = (),
        stays: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """`copy` says where the copy stands now. `without` names entries of both folders that are somebody else's
        business. What `stays` of the copy is not made like the original again."""
        self._original, self._find, self._without, self._stays = original, copy, without, stays
        self._facts: dict[str, _Fact] | None = None

    @property
    def _copy(self) -> Path:
        return self._find()

    def restore(self, owner: tuple[int, int] | None = None, *, anew: bool = False) -> None:
        """Make the copy like the original again, given to the owner: at first and `anew` all of it, else what differs
        from what was remembered."""
        if self._copy.is_symlink() or not self._copy.is_dir():
            remove(str(self._copy))
            self._copy.mkdir()
            self._facts = None
        paths = self._everything() if anew or self._facts is None else self._touched()
        for path in paths:
            remove(str(self._copy / path))
        there = [path for path in paths if os.path.lexists(self._original / path)]
        copy_files(there, self._copy, folder=self._original)
        if owner and there:
            _give(there, owner, self._copy)

    def remember(self) -> None:
        """From now on what is in the copy counts as untouched. Nothing in it was changed for `STEP_SECONDS`: a change
        within the same step of the clock would show no other time."""
        self._facts = dict(self._look())

    def _everything(self) -> list[str]:
        names = {entry.name for folder in (self._original, self._copy) for entry in folder.iterdir()}
        return sorted(names - {*self._without})

    def _touched(self) -> list[str]:
        """Return what has to be copied again, of a folder and its content only the folder."""
        before, now = self._facts or {}, dict(self._look())
        differing = {
            path
            for path in before.keys() | now.keys()
            if before.get(path) != now.get(path) and not (path in now and self._stays(path))
        }
        return sorted(path for path in differing if not any(above in differing for above in _folders_above(path)))

    def _look(self) -> Iterator[tuple[str, _Fact]]:
        waiting = [""]
        while waiting:
            folder = waiting.pop()
            with os.scandir(self._copy / folder) as entries:
                for entry in entries:
                    if not folder and entry.name in self._without:
                        continue
                    path, info = f"{folder}/{entry.name}" if folder else entry.name, entry.stat(follow_symlinks=False)
                    if entry.is_dir(follow_symlinks=False):
                        # What is in a folder has facts of its own.
                        yield path, (info.st_mode,)
                        waiting.append(path)
                    else:
                        yield path, (info.st_mode, info.st_size, info.st_ino, info.st_ctime_ns)


def _folders_above(path: str) -> Iterator[str]:
    while path := path.rpartition("/")[0]:
        yield path


def _give(paths: list[str], owner: tuple[int, int], folder: Path) -> None:
    for begin in range(0, len(paths), _AT_ONCE):
        words = ("chown", "-Rh", f"{owner[0]}:{owner[1]}", "--")
        run_program(*words, *paths[begin : begin + _AT_ONCE], folder=folder)
