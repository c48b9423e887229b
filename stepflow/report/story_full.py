"""Prompts and answers in full, for a watcher who asked for them (action.md, input `debug`).

Takes: one event. Gives: all its text as lines, none for events that carry none.
May touch: nothing. The texts are long; nothing of them is cut, and no line of them is obeyed.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from stepflow.domain.attempt_event import ModelTurned, PromptRendered, UserSpoke
from stepflow.report.plain import clean
from stepflow.report.story_line import WIDTH, LineKind, StoryLine, line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stepflow.domain.event import Event
    from stepflow.domain.json import JsonObject

#: Room for the mark at the left edge.
ROOM = WIDTH - 2


def full_lines(event: Event) -> tuple[StoryLine, ...]:
    """What was asked or answered, word by word."""
    match event:
        case PromptRendered():
            texts = [("system prompt", event.system), *(("prompt", block) for block in event.blocks)]
        case UserSpoke():
            texts = [("asked", event.text)]
        case ModelTurned():
            texts = [("answer", _block_text(block)) for block in event.content]
        case _:
            texts = []
    return tuple(told for title, text in texts for told in _told(title, text))


def _block_text(block: JsonObject) -> str:
    """The text of a text block; anything else, such as a tool call, as JSON."""
    if block.get("type") == "text":
        return str(block.get("text", ""))
    return json.dumps(block, ensure_ascii=False, indent=2)


def _told(title: str, text: str) -> Iterator[StoryLine]:
    yield line(LineKind.DETAIL, f"{title}, in full:")
    for whole in clean(text).split("\n"):
        for start in range(0, max(len(whole), 1), ROOM):
            yield line(LineKind.WORDS, f"│ {whole[start : start + ROOM]}")
