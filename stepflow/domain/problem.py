"""What is wrong with an agent definition.

Takes: nothing. Gives: `Problem`, one finding of the loader (registry.md §9).
May touch: nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """An error forbids the run; a warning and a note do not."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One finding. `file` is relative to the repository root, `path` a JSON Pointer into it, `line` 1-based or None."""

    severity: Severity
    code: str
    file: str
    path: str
    line: int | None
    message: str
    fix: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        pointer = f" ({self.path})" if self.path else ""
        return f"{place}: {self.severity} {self.code} {self.message}{pointer}. Fix: {self.fix}"
