"""The journal of a run: one event as one line of JSON, in a file that only grows or in memory. It is
written before anything else happens, and read back whole or as it grows."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import math
import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, BinaryIO, Self

from pydantic import Field, TypeAdapter, ValidationError

from stepflow.domain.event import EffectApplied, EffectPlanned, Entry, Event, FailureReported, RunFinished
from stepflow.domain.json import JsonObject, JsonValue, publish_schema
from stepflow.domain.reports.report import LINK, JournalDigest
from stepflow.domain.secrets import Redactor, redact_value
from stepflow.domain.value_errors import describe_error
from stepflow.errors import InputError, StepflowError
from stepflow.ports import Clock

VERSION = 2
#: Each costs some six hundred bytes to look at.
_MOST_ERRORS = 1000
#: Fields that an event has only where there is something in them.
_SOMETIMES = (
    *(("IterationStarted", "effort"), ("IterationStarted", "max_output_tokens")),
    *(("ModelTurn", "refusal"), ("ModelTurn", "cleared")),
    ("ToolCall", "images"),
    ("RunStarted", "repository_id"),
)
#: Bytes that are read at once: a long journal's lines are shorter than this.
_BUFFER = 256 * 1024
#: A folder may be forged. The longest line that a run writes has an issue's images, 10 MB in base64.
LONGEST_LINE = 32 * 1024 * 1024
#: Each value of a line takes about a hundred bytes of memory and some microseconds.
MOST_VALUES = 600_000
#: What the operating system was handed survives any death of this process, so a plain write is flush enough for
#: most events. A machine that dies may lose it, and for a write to GitHub that would mean writing twice: these
#: few events wait for the disk (about 0.2 ms on an SSD; on all events of a scripted run it would be most of its time).
SYNCED = (EffectPlanned, EffectApplied, FailureReported, RunFinished)
_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
_PIECE = 1024 * 1024
#: How often, and after how many seconds, a held journal is looked at again.
MOST_LOOKS = 10
LOOK_AGAIN = 0.02


@dataclass(frozen=True, kw_only=True)
class BrokenLine(Exception):
    """A line that is no JSON object: torn by a crash when it is the last, damage otherwise."""

    reason: str


def write_line(event: Event, *, seq: int, time: float, redact: Callable[[str], str]) -> tuple[str, Entry]:
    """Return the line without its line break, and the entry that it holds: what a reader of the line will see."""
    fields: JsonValue = _adapter().dump_python(event, mode="json")
    safe = redact_value(_plain(fields), redact)
    assert isinstance(safe, dict)  # noqa: S101 - an event is an object, and a redactor changes only strings
    seen = event if safe == fields else _adapter().validate_python(safe)
    line: JsonObject = {"v": VERSION, "seq": seq, "t": round(time, 6), "event": event.event, **safe}
    return _one_line(line), Entry(seq=seq, time=round(time, 6), event=seen)


def read_line(line: bytes, *, location: str) -> Entry:
    """Return the entry of one line. `location` names file and line in errors; raises `BrokenLine` and `InputError`."""
    try:
        fields = json.loads(line.decode("utf-8", "replace"))
    except (ValueError, RecursionError) as exc:
        raise BrokenLine(reason=f"no JSON: {exc}") from exc
    if not isinstance(fields, dict):
        raise BrokenLine(reason="no JSON object")
    if fields.get("v") != VERSION:
        raise InputError(
            f"{location} has journal version {fields.get('v')!r}; this stepflow reads version {VERSION}.",
            hint="Use the stepflow release that wrote this run folder.",
        )
    seq, time = fields.get("seq"), fields.get("t")
    if type(seq) is not int or isinstance(time, bool) or not isinstance(time, int | float):
        raise _no_event(location, "seq must be an integer and t a number")
    try:
        return Entry(seq=seq, time=float(time), event=_adapter().validate_python(fields))
    except ValidationError as exc:
        if exc.error_count() > _MOST_ERRORS:
            raise _no_event(location, f"{exc.error_count():,} of its values do not fit") from None
        first = exc.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "event"
        raise _no_event(location, f"{where} {describe_error(first)}") from exc


def journal_schema() -> JsonObject:
    """JSON Schema of one line of a journal."""
    schema = _adapter().json_schema(mode="serialization")
    events = {reference["$ref"].rsplit("/", 1)[1] for reference in schema["oneOf"]}
    for name in events:
        shape = schema["$defs"][name]
        frame = {"v": {"const": VERSION}, "seq": {"type": "integer", "minimum": 1}, "t": {"type": "number"}}
        frame["event"] = {"const": shape["properties"]["event"]["const"]}
        shape["properties"] = {**frame, **shape["properties"], **frame}
        shape["required"] = [key for key in shape["properties"] if (name, key) not in _SOMETIMES]
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "One line of a stepflow journal (journal.jsonl)",
    }
    return publish_schema({**head, **schema})


@cache
def _adapter() -> TypeAdapter[Event]:
    return TypeAdapter(Annotated[Event, Field(discriminator="event")])


def _plain(value: JsonValue) -> JsonValue:
    """JSON has no NaN and no infinity; a line with one could be read by Python alone."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value


def _one_line(line: JsonObject) -> str:
    text = json.dumps(line, ensure_ascii=False, separators=(",", ":"))
    # JSON lets these stand, but many programs take them for line breaks. Here they can only stand inside a string.
    for character in "\x85\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _no_event(location: str, reason: str) -> InputError:
    return InputError(
        f"{location} is not a journal event: {reason}.",
        hint="The file was changed or written by something else; start a new run, or restore the run folder.",
    )


def read_journal(path: Path) -> tuple[Entry, ...]:
    """Return all entries of a journal. A last line torn by a crash is ignored; anything else that does not fit is
    refused."""
    return tuple(iter_journal(path))


def iter_journal(path: Path) -> Iterator[Entry]:
    """As `read_journal`, one entry after the other: a journal of any size takes the memory of its longest line."""
    if not path.exists():
        raise InputError(f"There is no journal at {path}.", hint="Name a run folder, which contains it.")
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
        """Return the entry of a last line that is whole but for its line break, as an editor may leave it; else
        none."""
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
        """Return whether the line that was being written last is whole; half of one is cut off. What is before it is
        known."""
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

    def __exit__(self, *_: object) -> None:
        self.close()


def is_being_written(path: Path) -> bool:
    """Return whether a process that lives has this journal open; one that died has let go of it."""
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
        f"Another run is using {path.parent}.",
        hint="Wait until it has ended, or name another folder in run-folder.",
    )


def _sound_end(path: Path) -> tuple[int, int]:
    """Return the number of the last whole line and its end. What follows is the half-written line of a crash: it is cut
    off.

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


class MemoryJournal:
    """A journal in memory, for the Python API and for tests."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._entries: list[Entry] = []

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Everything so far."""
        return tuple(self._entries)

    def append(self, event: Event) -> Entry:
        """Remember the event; the entry is equal to what a file would give back."""
        _, entry = write_line(event, seq=len(self._entries) + 1, time=self._clock.now(), redact=str)
        self._entries.append(entry)
        return entry


class Fanout:
    """Writes each event down first and tells the listeners then, in order."""

    def __init__(self, journal: JournalFile | MemoryJournal, *listeners: Callable[[Entry], None]) -> None:
        self._journal, self._listeners = journal, listeners

    def append(self, event: Event) -> Entry:
        """Write, then tell."""
        entry = self._journal.append(event)
        for listener in self._listeners:
            listener(entry)
        return entry


def digest_journal(path: Path) -> JournalDigest:
    """Digest the file as it is. Raises `InputError` if it cannot be read, or has a line that no run writes."""
    whole, links, link = hashlib.sha256(), bytearray(), bytes(LINK)
    try:
        with path.open("rb") as file:
            while line := file.readline(LONGEST_LINE + 1):
                if len(line) > LONGEST_LINE:
                    raise InputError(f"A line of {path} is longer than any run writes.", hint="Name a run folder.")
                whole.update(line)
                link = hashlib.sha256(link + line).digest()
                links += link
    except OSError as exc:
        raise InputError(f"The journal {path} cannot be read: {exc.strerror}.", hint="Name a run folder.") from exc
    return JournalDigest(sha256=whole.hexdigest(), links=bytes(links))
