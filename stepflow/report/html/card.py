"""What a page shows of one event.

Takes: nothing. Gives: `Card` with its parts.
May touch: nothing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepflow.domain.json import JsonValue


class Tone(StrEnum):
    """What sort of thing happened, shown as a colour and a sign beside it."""

    PROMPT = "prompt"
    MODEL = "model"
    TOOL = "tool"
    ROUTE = "route"
    GOOD = "good"
    BAD = "bad"
    WARNING = "warning"
    PLAIN = "plain"


@dataclass(frozen=True, kw_only=True)
class Part:
    """One text of a card. `is_open`: it is seen at once when the card is; `is_diff`: its lines are coloured; `puts` are
    begin, end and variable of what was put into it."""

    label: str
    text: str
    is_open: bool = True
    is_diff: bool = False
    puts: tuple[tuple[int, int, str], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Card:
    """One event: what it was on one line, its figures, its texts, and where it leads."""

    title: str
    tone: Tone = Tone.PLAIN
    facts: tuple[str, ...] = ()
    parts: tuple[Part, ...] = ()
    url: str = ""


def text_part(label: str, text: str, *, is_open: bool = True) -> tuple[Part, ...]:
    """A part, none for a blank text."""
    return (Part(label=label, text=text, is_open=is_open),) if text.strip() else ()


def json_part(label: str, value: JsonValue, *, is_open: bool = True) -> tuple[Part, ...]:
    """A value as indented JSON, none for an empty one."""
    if value in (None, {}, []):
        return ()
    return (Part(label=label, text=json.dumps(value, ensure_ascii=False, indent=2), is_open=is_open),)
