"""Remembers what happens: event → line; lines → entries (house.md "Rooms", cli.md "Journal")."""

from stepflow.journal.file import JournalFile, hold_alone, is_being_written
from stepflow.journal.line import journal_schema
from stepflow.journal.memory import Fanout, MemoryJournal
from stepflow.journal.reader import JournalReader, iter_journal, read_journal
from stepflow.journal.replay import Replay, safe_point, turn_of
from stepflow.journal.snapshot_history import SnapshotHistory
from stepflow.journal.snapshots import SnapshotStore

__all__ = [
    "Fanout",
    "JournalFile",
    "JournalReader",
    "MemoryJournal",
    "Replay",
    "SnapshotHistory",
    "SnapshotStore",
    "hold_alone",
    "is_being_written",
    "iter_journal",
    "journal_schema",
    "read_journal",
    "safe_point",
    "turn_of",
]
