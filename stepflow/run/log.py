"""The run's log file.

Takes: journal entries. Gives: nothing; the entries of flow.md §15 are in the file.
May touch: `log.jsonl` in the run folder, never the checkout.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from stepflow.report import log_entries, log_line

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from stepflow.domain.event import Entry


class LogFile:
    """A listener of the journal that writes log entries, as JSON lines or as text. Close it when the run is over."""

    def __init__(self, path: Path, form: str) -> None:
        self._file = path.open("a", encoding="utf-8", errors="backslashreplace")
        self._form = form

    def __call__(self, entry: Entry) -> None:
        """Write what this entry has to say to people, if anything."""
        for logged in log_entries(entry):
            self._file.write(log_line(logged, self._form) + "\n")
        self._file.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
