"""The journal of a run as a file that only grows.

Takes: events. Gives: nothing but the entry it wrote; the file is the result.
May touch: the one file it was given.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Self

from stepflow.domain.event import (
    EffectApplied,
    EffectPlanned,
    Entry,
    Event,
    FailureReported,
    RunFinished,
)
from stepflow.domain.redact import Redactor
from stepflow.errors import InputError, StepflowError
from stepflow.journal.line import write_line
from stepflow.journal.reader import read_journal

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from stepflow.ports import Clock

#: What the operating system was handed survives any death of this process, so a plain write is flush enough for
#: most events. A machine that dies may lose it, and for a write to GitHub that would mean writing twice: these
#: few events wait for the disk (about 0.2 ms on an SSD; on all events of a scripted run it would be most of its time).
SYNCED = (EffectPlanned, EffectApplied, FailureReported, RunFinished)


class JournalFile:
    """Appends one line per event and returns when it is written; the cost of an event does not grow with the file.

    An existing file is continued: a torn last line is cut off and the numbers go on.
    """

    def __init__(self, path: Path, clock: Clock, *, redact: Callable[[str], str] | None = None) -> None:
        self._path, self._clock = path, clock
        self._redact = redact or Redactor()
        self._unsure = False
        try:
            self._seq = _settle(path)
            # Readable by others: the workflow's next step uploads it as another user than the container's root.
            self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as exc:
            raise _unwritable(path, exc) from exc

    def append(self, event: Event) -> None:
        """Write the event down before anything else happens."""
        self.record(event)

    def record(self, event: Event) -> Entry:
        """As `append`; gives the entry as it stands in the file, without secrets."""
        if self._unsure:
            self._seq = _settle(self._path)
        line, entry = write_line(event, seq=self._seq + 1, time=self._clock.now(), redact=self._redact)
        # A signal may raise at any point from here on, and a full disk takes half a line: the file knows then.
        self._unsure = True
        try:
            _write_all(self._fd, line)
            if isinstance(event, SYNCED):
                os.fdatasync(self._fd)
        except OSError as exc:
            raise _unwritable(self._path, exc) from exc
        self._seq += 1
        self._unsure = False
        return entry

    def close(self) -> None:
        """Give the file back; closing twice is fine."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _settle(path: Path) -> int:
    """The number of the last whole line. What follows it is the half-written line of a crash and is cut off."""
    if not path.exists():
        return 0
    entries = read_journal(path)
    data = path.read_bytes()
    whole = _end_of_line(data, len(entries))
    with path.open("r+b") as file:
        file.truncate(whole)
        if whole and data[whole - 1 : whole] != b"\n":
            file.seek(whole)
            file.write(b"\n")
    return entries[-1].seq if entries else 0


def _end_of_line(data: bytes, lines: int) -> int:
    end = 0
    for _ in range(lines):
        end = data.find(b"\n", end) + 1 or len(data)
    return end


def _write_all(fd: int, line: str) -> None:
    # A lone surrogate has no UTF-8 form; `\udc80` is its JSON escape and reads back as what it was.
    data = line.encode("utf-8", "backslashreplace") + b"\n"
    while data:
        data = data[os.write(fd, data) :]


def _unwritable(path: Path, exc: OSError) -> StepflowError:
    if isinstance(exc, PermissionError | FileNotFoundError | IsADirectoryError | NotADirectoryError):
        return InputError(f"The journal {path} cannot be opened: {exc.strerror}.", hint="Choose another run folder.")
    return StepflowError(
        f"The journal {path} cannot be written: {exc.strerror}.",
        hint="Free space on the disk of the run folder; what was written until then can be read.",
    )
