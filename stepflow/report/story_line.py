"""One line of the story that is told of a run.

Takes: text that is clean already. Gives: a line of one kind, cut, that no runner or terminal obeys.
May touch: nothing.
"""

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
class StoryLine:
    """One line without its line break."""

    kind: LineKind
    text: str


def line(kind: LineKind, text: str) -> StoryLine:
    """A line of text that is clean already."""
    return StoryLine(kind=kind, text=defuse(cut(text, WIDTH)))
