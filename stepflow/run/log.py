"""The run's log file.

Takes: journal entries. Gives: nothing; the entries of flow.md §15 are in the file.
May touch: `log.jsonl` in the run folder, never the checkout.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Self

from stepflow.errors import InputError
from stepflow.report.log import log_entries, log_line

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from stepflow.domain.event import Entry


class LogFile:
    """A listener of the journal that writes log entries, as JSON lines or as text. Close it when the run is over.

    The journal holds all that the log says: a log that cannot be written ends, with one of the `problems`, and the run
    goes on.
    """

    def __init__(self, path: Path, form: str) -> None:
        self._path, self._form = path, form
        self.problems: tuple[str, ...] = ()
        try:
            # Without a buffer, what a full disk did not take is not tried again on closing.
            self._file = path.open("ab", buffering=0)
        except OSError as exc:
            raise InputError(
                f"The log {path} cannot be opened: {exc.strerror}.", hint="Choose another run folder."
            ) from exc

    def __call__(self, entry: Entry) -> None:
        """Write what this entry has to say to people, if anything."""
        lines = "".join(log_line(logged, self._form) + "\n" for logged in log_entries(entry))
        if not lines or self.problems:
            return
        try:
            self._file.write(lines.encode("utf-8", "backslashreplace"))
        except OSError as exc:
            self.problems = (f"[Run] {self._path} could not be written any more: {exc.strerror}",)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not os.fstat(self._file.fileno()).st_nlink:
            self.problems = (f"[Run] {self._path} was removed during the run; the journal has all that it said",)
        self._file.close()
