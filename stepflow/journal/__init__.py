"""Remembers what happens: event → line; lines → entries (house.md "Rooms", cli.md "Journal")."""

from stepflow.journal.file import JournalFile
from stepflow.journal.line import journal_schema
from stepflow.journal.memory import Fanout, MemoryJournal
from stepflow.journal.reader import JournalReader, read_journal

__all__ = ["Fanout", "JournalFile", "JournalReader", "MemoryJournal", "journal_schema", "read_journal"]
