"""What reports are made of: marks, the message of an event, and lines of a log that no runner or terminal obeys."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from stepflow.domain.effect import EffectStatus
from stepflow.domain.json import JsonObject, JsonValue
from stepflow.domain.report import CheckState
from stepflow.domain.text import cut
from stepflow.domain.words import Outcome
from stepflow.report.safe_text import clean, defuse

WIDTH = 400
#: Room for the mark at the left edge.
FULL_WIDTH = WIDTH - 2
#: Characters of a reason, for watchers and in the log file.
REASON_SHOWN = 300
REASON_LOGGED = 500


class Tone(StrEnum):
    """What sort of thing happened, or what a line of a log is. Pages and terminals show it as a color."""

    RUN = "run"
    PROMPT = "prompt"
    MODEL = "model"
    TOOL = "tool"
    ROUTE = "route"
    GOOD = "good"
    BAD = "bad"
    WARNING = "warning"
    PLAIN = "plain"
    # Only of lines. A `FOLD` is the title of the `FOLDED` or `ASIDE` lines after it, which belong to the same entry;
    # those aside are for whoever looks closer.
    STEP = "step"
    STEP_END = "step_end"
    WORDS = "words"
    PROGRESS = "progress"
    FOLD = "fold"
    FOLDED = "folded"
    ASIDE = "aside"


class Line(NamedTuple):
    """One line without its line break."""

    tone: Tone
    text: str


def line(tone: Tone, text: str) -> Line:
    """A line of text that is clean already."""
    return Line(tone, defuse(cut(text, WIDTH)))


def quoted(texts: Iterable[str]) -> tuple[Line, ...]:
    """What somebody said, on lines that are clean already."""
    return tuple(line(Tone.WORDS, f"│ {text}") for text in texts)


def whole_lines(text: str) -> Iterator[Line]:
    """A text word by word; long lines are broken."""
    for whole in clean(text).split("\n"):
        for start in range(0, max(len(whole), 1), FULL_WIDTH):
            yield line(Tone.WORDS, f"│ {whole[start : start + FULL_WIDTH]}")


@dataclass(frozen=True, kw_only=True)
class Mark:
    """How a result looks: `emoji` in Markdown, `text` elsewhere, where a font for pictures may be missing."""

    text: str
    emoji: str
    tone: Tone


PASSED = Mark(text="✓", emoji="✅", tone=Tone.GOOD)
FAILED = Mark(text="✗", emoji="❌", tone=Tone.BAD)
PLANNED = Mark(text="–", emoji="▫️", tone=Tone.PLAIN)
MARKS: dict[bool | str, Mark] = {
    **dict.fromkeys((True, CheckState.OK, EffectStatus.APPLIED, Outcome.COMPLETED), PASSED),
    CheckState.WARNING: Mark(text="!", emoji="⚠️", tone=Tone.WARNING),
    CheckState.UNKNOWN: Mark(text="?", emoji="❔", tone=Tone.PLAIN),
    EffectStatus.PLANNED: PLANNED,
    **dict.fromkeys(
        (EffectStatus.SKIPPED, Outcome.SKIPPED, Outcome.NO_CHANGES), Mark(text="–", emoji="⏭️", tone=Tone.PLAIN)
    ),
    Outcome.AWAITING_APPROVAL: Mark(text="…", emoji="⏸️", tone=Tone.PLAIN),
    Outcome.CANCELLED: Mark(text="■", emoji="⏹️", tone=Tone.PLAIN),
}


def mark_of(result: bool | CheckState | EffectStatus | Outcome | None) -> Mark:
    """The mark of a result; whatever has none of its own has failed."""
    return FAILED if result is None else MARKS.get(result, FAILED)


@dataclass(frozen=True)
class Part:
    """One text of a message, or a value that is shown as JSON. `is_open`: it is seen at once when the message is;
    `is_diff`: its lines are colored; `puts` are begin, end and variable of what was put into it."""

    label: str
    value: JsonValue
    is_open: bool = True
    is_diff: bool = False
    puts: tuple[tuple[int, int, str], ...] = ()

    @property
    def is_empty(self) -> bool:
        """A blank text or an empty value, which nobody need see."""
        return not self.value.strip() if isinstance(self.value, str) else self.value in (None, {}, [])

    @property
    def text(self) -> str:
        """The text as it is shown."""
        return self.value if isinstance(self.value, str) else json.dumps(self.value, ensure_ascii=False, indent=2)


#: Level, message and data.
Logged = tuple[str, str, "JsonObject"]


@dataclass(frozen=True, kw_only=True)
class EventMessage:
    """What people read of one event, wherever they read it. Watchers see `title` with its `facts` in parentheses,
    unless `in_log` is false, and `below` under it; a page has everything but `below`, and nothing that is empty;
    `logged` are the entries of the log file (flow.md §15)."""

    title: str
    tone: Tone = Tone.PLAIN
    facts: tuple[str, ...] = ()
    more_facts: tuple[str, ...] = ()
    parts: tuple[Part, ...] = ()
    url: str = ""
    in_log: bool = True
    below: tuple[Line, ...] = ()
    logged: tuple[Logged, ...] = ()


def entry(level: str, message: str, /, **data: JsonValue) -> tuple[Logged, ...]:
    """One entry of the log file."""
    return ((level, message, data),)


def marked(tone: Tone, title: str) -> str:
    """A title that begins with the mark of what passed or failed."""
    marks = {Tone.GOOD: PASSED, Tone.TOOL: PASSED, Tone.BAD: FAILED}
    return f"{marks[tone].text} {title}" if tone in marks else title


def whole_part(label: str, text: str, shown: int) -> tuple[Part, ...]:
    """A text of which the title shows only so many characters on one line."""
    return (Part(label, text),) if len(text) > shown or "\n" in text.strip() else ()
