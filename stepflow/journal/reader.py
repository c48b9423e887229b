"""Reads a journal back, whole or as it grows.

Takes: the path of a `journal.jsonl`. Gives: its entries in order, checked.
May touch: reads that one file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepflow.domain.event import Entry
from stepflow.errors import InputError
from stepflow.journal.line import BrokenLine, read_line

if TYPE_CHECKING:
    from pathlib import Path


def read_journal(path: Path) -> tuple[Entry, ...]:
    """All entries of a journal. A last line torn by a crash is ignored; anything else that does not fit is refused."""
    if not path.exists():
        raise InputError(f"There is no journal at {path}.", hint="Name the run folder of a run, which holds it.")
    reader = JournalReader(path)
    return (*reader.new_entries(), *reader.last_entry())


class JournalReader:
    """Follows a journal: each call gives the entries that were completed since the one before."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._lines = 0
        self._rest = b""

    def new_entries(self) -> tuple[Entry, ...]:
        """Entries of the lines that are whole by now. A file that does not exist yet has none.

        What follows the last whole line is read again next time: a run that goes on after a crash cuts it off.
        """
        *whole, self._rest = self._read().split(b"\n")
        entries: list[Entry] = []
        for at, line in enumerate(whole, 1):
            entry = self._entry(line, last=at == len(whole) and not self._rest)
            if entry is None:
                break
            entries.append(entry)
            self._offset += len(line) + 1
        return tuple(entries)

    def last_entry(self) -> tuple[Entry, ...]:
        """The entry of a last line that is whole but for its line break, as an editor may leave it; else none."""
        entry = self._entry(self._rest, last=True) if self._rest else None
        return (entry,) if entry else ()

    def _read(self) -> bytes:
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                return file.read()
        except FileNotFoundError:
            return b""
        except OSError as exc:
            reason = f"The journal {self._path} cannot be read: {exc.strerror}."
            raise InputError(reason, hint="Name a run folder.") from exc

    def _entry(self, line: bytes, *, last: bool) -> Entry | None:
        place = f"{self._path}, line {self._lines + 1}"
        try:
            entry = read_line(line.decode("utf-8", "replace"), place=place)
        except BrokenLine as exc:
            if last:
                return None
            raise InputError(
                f"{place} is damaged ({exc.reason}).",
                hint="Only a last line may be torn; start a new run, or restore the run folder.",
            ) from exc
        self._lines += 1
        if entry.seq != self._lines:
            raise InputError(
                f"{place} has number {entry.seq}, so lines are missing or doubled before it.",
                hint="Start a new run, or restore the run folder.",
            )
        return entry
