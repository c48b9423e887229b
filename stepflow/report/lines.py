"""What reports are made of: the message of an event, and lines of a log that no runner or terminal obeys."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from stepflow.domain.effect import EffectStatus
from stepflow.domain.report import CheckState
from stepflow.domain.words import Outcome
from stepflow.report.plain import clean, cut, defuse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stepflow.domain.json import JsonValue

WIDTH = 400
#: Room for the mark at the left edge.
FULL_WIDTH = WIDTH - 2


class LineKind(StrEnum):
    """What a line is, for whoever colors or folds it. A `FOLD` is the title of the `FOLDED` or `ASIDE` lines after it,
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


class Tone(StrEnum):
    """What sort of thing happened. A page shows it as a color, a log as the kind of line."""

    RUN = "run"
    PROMPT = "prompt"
    MODEL = "model"
    TOOL = "tool"
    ROUTE = "route"
    GOOD = "good"
    BAD = "bad"
    WARNING = "warning"
    PLAIN = "plain"


KINDS = {
    Tone.RUN: LineKind.RUN,
    Tone.TOOL: LineKind.GOOD,
    Tone.ROUTE: LineKind.INTENT,
    Tone.GOOD: LineKind.GOOD,
    Tone.BAD: LineKind.BAD,
    Tone.WARNING: LineKind.WARNING,
}


@dataclass(frozen=True, kw_only=True)
class Mark:
    """How a result looks: `emoji` in Markdown, `text` elsewhere, where a font for pictures may be missing."""

    text: str
    emoji: str
    tone: Tone


PASSED = Mark(text="✓", emoji="✅", tone=Tone.GOOD)
FAILED = Mark(text="✗", emoji="❌", tone=Tone.BAD)
MARKS: dict[bool | str, Mark] = {
    **dict.fromkeys((True, CheckState.OK, EffectStatus.APPLIED, Outcome.COMPLETED), PASSED),
    CheckState.WARNING: Mark(text="!", emoji="⚠️", tone=Tone.WARNING),
    CheckState.UNKNOWN: Mark(text="?", emoji="❔", tone=Tone.PLAIN),
    EffectStatus.PLANNED: Mark(text="–", emoji="▫️", tone=Tone.PLAIN),
    **dict.fromkeys((EffectStatus.SKIPPED, Outcome.SKIPPED), Mark(text="–", emoji="⏭️", tone=Tone.PLAIN)),
    Outcome.CANCELLED: Mark(text="■", emoji="⏹️", tone=Tone.PLAIN),
}


def mark_of(result: bool | CheckState | EffectStatus | Outcome | None) -> Mark:
    """The mark of a result; whatever has none of its own has failed."""
    return FAILED if result is None else MARKS.get(result, FAILED)


@dataclass(frozen=True, kw_only=True)
class Part:
    """One text of a message, or a value that is shown as JSON. `is_open`: it is seen at once when the message is;
    `is_diff`: its lines are colored; `puts` are begin, end and variable of what was put into it."""

    label: str
    value: JsonValue
    is_open: bool = True
    is_diff: bool = False
    puts: tuple[tuple[int, int, str], ...] = ()

    @property
    def text(self) -> str:
        """The text as it is shown."""
        return self.value if isinstance(self.value, str) else json.dumps(self.value, ensure_ascii=False, indent=2)


@dataclass(frozen=True, kw_only=True)
class EventMessage:
    """One event. A log shows `title` with its `facts` in parentheses, unless `in_log` is false, and `below` under it;
    a page shows everything but `below`."""

    title: str
    tone: Tone = Tone.PLAIN
    facts: tuple[str, ...] = ()
    more_facts: tuple[str, ...] = ()
    parts: tuple[Part, ...] = ()
    url: str = ""
    in_log: bool = True
    below: tuple[LogLine, ...] = ()


def part(label: str, value: JsonValue, *, is_open: bool = True) -> tuple[Part, ...]:
    """A part; none for a blank text or an empty value."""
    is_empty = not value.strip() if isinstance(value, str) else value in (None, {}, [])
    return () if is_empty else (Part(label=label, value=value, is_open=is_open),)


def whole_lines(text: str) -> Iterator[LogLine]:
    """A text word by word; long lines are broken."""
    for whole in clean(text).split("\n"):
        for start in range(0, max(len(whole), 1), FULL_WIDTH):
            yield line(LineKind.WORDS, f"│ {whole[start : start + FULL_WIDTH]}")
