"""Journals that are no file: one that remembers, one that also tells others.

A listener is any callable that takes an `Entry`; it is called after the entry is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from stepflow.domain.secrets import Redactor
from stepflow.journal.line import write_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from stepflow.domain.event import Entry, Event
    from stepflow.ports import Clock


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
