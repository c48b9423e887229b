"""Reads a journal back, whole or as it grows."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO

from stepflow.domain.event import Entry
from stepflow.errors import InputError
from stepflow.journal.line import BrokenLine, read_line

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
#: Bytes that are read at once: a long journal's lines are shorter than this.
_BUFFER = 256 * 1024
#: A folder may be forged. The longest line that a run writes has an issue's images, 10 MB in base64.
LONGEST_LINE = 32 * 1024 * 1024
#: Each value of a line takes about a hundred bytes of memory and some microseconds.
MOST_VALUES = 600_000


def read_journal(path: Path) -> tuple[Entry, ...]:
    """All entries of a journal. A last line torn by a crash is ignored; anything else that does not fit is refused."""
    return tuple(iter_journal(path))


def iter_journal(path: Path) -> Iterator[Entry]:
    """As `read_journal`, one entry after the other: a journal of any size takes the memory of its longest line."""
    if not path.exists():
        raise InputError(f"There is no journal at {path}.", hint="Name the run folder of a run, which holds it.")
    reader = JournalReader(path)
    yield from reader.new_entries()
    yield from reader.last_entry()


class JournalReader:
    """Follows a journal: each call gives the entries that were completed since the one before."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._lines = 0
        self._rest = b""

    @property
    def offset(self) -> int:
        """Where the lines that were read end, in bytes."""
        return self._offset

    def new_entries(self) -> Iterator[Entry]:
        """Entries of the lines that are whole by now, read as they are asked for. A file that does not exist yet has
        none.

        What follows the last whole line is read again next time: a run that goes on after a crash cuts it off.
        """
        try:
            with self._path.open("rb", buffering=_BUFFER) as file:
                file.seek(self._offset)
                yield from self._entries(file)
        except FileNotFoundError:
            self._rest = b""
        except OSError as exc:
            reason = f"The journal {self._path} cannot be read: {exc.strerror}."
            raise InputError(reason, hint="Name a run folder.") from exc

    def last_entry(self) -> tuple[Entry, ...]:
        """The entry of a last line that is whole but for its line break, as an editor may leave it; else none."""
        entry = self._entry(self._rest, last=True) if self._rest else None
        if entry:
            self._offset += len(self._rest)
        return (entry,) if entry else ()

    def _entries(self, file: BinaryIO) -> Iterator[Entry]:
        line = file.readline(LONGEST_LINE + 1)
        while line.endswith(b"\n"):
            after = file.readline(LONGEST_LINE + 1)
            entry = self._entry(line, last=not after)
            if entry is None:
                break
            self._offset += len(line)
            yield entry
            line = after
        if len(line) > LONGEST_LINE:
            raise self._too_long()
        self._rest = line if not line.endswith(b"\n") else b""

    def _entry(self, line: bytes, *, last: bool) -> Entry | None:
        location = f"{self._path}, line {self._lines + 1}"
        if len(line) > LONGEST_LINE or sum(map(line.count, (b",", b"[", b"{"))) > MOST_VALUES:
            raise self._too_long()
        try:
            entry = read_line(line, location=location)
        except BrokenLine as exc:
            if last:
                return None
            raise InputError(
                f"{location} is damaged ({exc.reason}).",
                hint="Only a last line may be torn; start a new run, or restore the run folder.",
            ) from exc
        self._lines += 1
        if entry.seq != self._lines:
            raise InputError(
                f"{location} has number {entry.seq}, so lines are missing or doubled before it.",
                hint="Start a new run, or restore the run folder.",
            )
        return entry

    def _too_long(self) -> InputError:
        return InputError(
            f"{self._path}, line {self._lines + 1} is longer than any run writes.",
            hint="The file was changed or written by something else; start a new run, or restore the run folder.",
        )
