"""One line of a run's log for people: its kind, and a text that no runner or terminal obeys."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from stepflow.report.plain import cut, defuse

WIDTH = 400


class LineKind(StrEnum):
    """What a line is, for whoever colours or folds it. A `FOLD` is the title of the `FOLDED` or `ASIDE` lines after it,
    which belong to the same entry; those aside are for whoever looks closer."""

    RUN = "run"
    STEP = "step"
    STEP_END = "step_end"
    DETAIL = "detail"
    WORDS = "words"
    INTENT = "intent"
    GOOD = "good"
    BAD = "bad"
    WARNING = "warning"
    PROGRESS = "progress"
    FOLD = "fold"
    FOLDED = "folded"
    ASIDE = "aside"


@dataclass(frozen=True, kw_only=True)
class LogLine:
    """One line without its line break."""

    kind: LineKind
    text: str


def line(kind: LineKind, text: str) -> LogLine:
    """A line of text that is clean already."""
    return LogLine(kind=kind, text=defuse(cut(text, WIDTH)))
