"""The journal of a run: a file that only grows, or memory; and who hears of each entry once it is written."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self

from stepflow.domain.event import (
    EffectApplied,
    EffectPlanned,
    Entry,
    Event,
    FailureReported,
    RunFinished,
)
from stepflow.domain.secrets import Redactor
from stepflow.errors import InputError, StepflowError
from stepflow.journal.line import write_line
from stepflow.journal.reader import JournalReader

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from stepflow.ports import Clock

#: What the operating system was handed survives any death of this process, so a plain write is flush enough for
#: most events. A machine that dies may lose it, and for a write to GitHub that would mean writing twice: these
#: few events wait for the disk (about 0.2 ms on an SSD; on all events of a scripted run it would be most of its time).
SYNCED = (EffectPlanned, EffectApplied, FailureReported, RunFinished)
_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
_PIECE = 1024 * 1024
#: How often, and after how many seconds, a held journal is looked at again.
MOST_LOOKS = 10
LOOK_AGAIN = 0.02


class JournalFile:
    """Appends one line per event and returns when it is written; the cost of an event does not grow with the file.

    An existing file is continued: a torn last line is cut off and the numbers go on. Nobody else writes it meanwhile.
    """

    def __init__(self, path: Path, clock: Clock, *, redact: Callable[[str], str] | None = None) -> None:
        self._path, self._clock = path, clock
        self._redact = redact or Redactor()
        self._unsure = False
        self._fd = -1
        try:
            # Readable by others: the workflow's next step uploads it as another user than the container's root.
            self._fd = os.open(path, _FLAGS, 0o644)
            hold_alone(self._fd, path)
            # The number of the last line, and where it ends, in bytes: one value, so that no signal parts them.
            self._written = _sound_end(path)
        except OSError as exc:
            self.close()
            raise _unwritable(path, exc) from exc
        except StepflowError:
            self.close()
            raise

    @property
    def seq(self) -> int:
        """The number of the last line."""
        return self._written[0]

    def append(self, event: Event) -> Entry:
        """Write the event down before anything else happens; the entry as it stands in the file, without secrets."""
        try:
            if not os.fstat(self._fd).st_nlink:
                self._put_back()
            if self._unsure:
                self._written = self._look_again()
        except OSError as exc:
            raise _unwritable(self._path, exc) from exc
        seq, end = self._written
        line, entry = write_line(event, seq=seq + 1, time=self._clock.now(), redact=self._redact)
        # A lone surrogate has no UTF-8 form; `\udc80` is its JSON escape and reads back as what it was.
        data = line.encode("utf-8", "backslashreplace") + b"\n"
        # A signal may raise at any point from here on, and a full disk takes half a line: the file knows then.
        self._unsure = True
        try:
            _write_all(self._fd, data)
            if isinstance(event, SYNCED):
                os.fdatasync(self._fd)
        except OSError as exc:
            raise _unwritable(self._path, exc) from exc
        self._written = seq + 1, end + len(data)
        self._unsure = False
        return entry

    def _look_again(self) -> tuple[int, int]:
        """Whether the line that was being written last is whole; half of one is cut off. What is before it is known."""
        seq, end = self._written
        left = os.pread(self._fd, os.fstat(self._fd).st_size - end, end)
        if left.endswith(b"\n"):
            return seq + 1, end + len(left)
        os.ftruncate(self._fd, end)
        return seq, end

    def _put_back(self) -> None:
        """Somebody removed the file. What was written is still there behind the open descriptor."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        new = os.open(self._path, _FLAGS | os.O_EXCL, 0o644)
        try:
            at = 0
            while piece := os.pread(self._fd, _PIECE, at):
                _write_all(new, piece)
                at += len(piece)
        except BaseException:
            os.close(new)
            raise
        os.close(self._fd)
        self._fd = new
        hold_alone(new, self._path)

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


def is_being_written(path: Path) -> bool:
    """Whether a process that lives has this journal open; one that died has let go of it."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def hold_alone(fd: int, path: Path) -> None:
    """Hold the journal until its descriptor is closed. Raises `InputError` when another process holds it."""
    for _ in range(MOST_LOOKS):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            # Whoever only asks whether a run is at work holds it for a moment, too.
            time.sleep(LOOK_AGAIN)
        except OSError:
            # Some network disks have no locks: then it is the caller's to start one run at a time.
            return
        else:
            return
    raise InputError(
        f"Another run is at work in {path.parent}.",
        hint="Wait until it has ended, or name another folder in run-folder.",
    )


def _sound_end(path: Path) -> tuple[int, int]:
    """The number of the last whole line and its end. What follows is the half-written line of a crash: it is cut off.

    The file is read once, a line at a time."""
    if not path.exists():
        return 0, 0
    reader = JournalReader(path)
    last = deque(reader.new_entries(), maxlen=1)
    unbroken = reader.last_entry()
    with path.open("r+b") as file:
        end = file.truncate(reader.offset)
        if unbroken:
            file.seek(end)
            end += file.write(b"\n")
    return max((entry.seq for entry in (*last, *unbroken)), default=0), end


def _write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


def _unwritable(path: Path, exc: OSError) -> StepflowError:
    closed = isinstance(exc, PermissionError | FileNotFoundError | IsADirectoryError | NotADirectoryError)
    if closed or exc.errno == errno.EROFS:
        return InputError(f"The journal {path} cannot be opened: {exc.strerror}.", hint="Choose another run folder.")
    return StepflowError(
        f"The journal {path} cannot be written: {exc.strerror}.",
        hint="Free space on the disk of the run folder; what was written until then can be read.",
    )


class Recorder(Protocol):
    """A journal that also gives the entry it wrote, without secrets."""

    def append(self, event: Event) -> Entry:
        """Write the event down and give its entry."""
        ...


class MemoryJournal:
    """A journal in memory, for the Python API and for tests."""

    def __init__(self, clock: Clock, *, redact: Callable[[str], str] | None = None) -> None:
        self._clock = clock
        self._redact = redact or Redactor()
        self._entries: list[Entry] = []

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Everything so far."""
        return tuple(self._entries)

    def append(self, event: Event) -> Entry:
        """Remember the event; the entry is equal to what a file would give back."""
        _, entry = write_line(event, seq=len(self._entries) + 1, time=self._clock.now(), redact=self._redact)
        self._entries.append(entry)
        return entry


class Fanout:
    """Writes each event down first and tells the listeners then, in order."""

    def __init__(self, journal: Recorder, *listeners: Callable[[Entry], None]) -> None:
        self._journal, self._listeners = journal, listeners

    def append(self, event: Event) -> Entry:
        """Write, then tell."""
        entry = self._journal.append(event)
        for listener in self._listeners:
            listener(entry)
        return entry
