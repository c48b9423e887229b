"""Makes a conversation shorter by its old tool results, so that it fits the model again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING

from stepflow.domain.json import compact

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepflow.domain.conversation import Message
    from stepflow.domain.json import JsonObject

#: Each time, the whole conversation is paid in full once more, since the cached prefix ends at the first change: so it
#: is done rarely, and then at least this share of all characters goes, if the old results hold that much.
WANTED_SHARE = 0.5
#: Less than this share is not worth a change: the next turn would need another one.
LEAST_SHARE = 0.1
INPUT_SHOWN = 160


@dataclass(frozen=True, kw_only=True)
class Compacted:
    """The shorter conversation. `results` were replaced by notes, `characters` went, `left` remain."""

    messages: tuple[Message, ...]
    results: int
    characters: int
    left: int


def compact_messages(messages: tuple[Message, ...]) -> Compacted | None:
    """Old tool results become notes; opening, assistant turns and the newest results stay as they are.

    None when that would free too little to be worth it.
    """
    notes = _notes(messages)
    before = sum(map(_size, messages))
    shorter = [_with_notes(message, notes) for message in messages]
    freed = list(accumulate(_size(message) - _size(short) for message, short in zip(messages, shorter, strict=True)))
    # The newest results stay: only the messages before them may be shortened, and as few as free the wanted share.
    newest = max((number for number, message in enumerate(messages) if _results(message)), default=0)
    enough = (number for number, sum_ in enumerate(freed[:newest], start=1) if sum_ >= before * WANTED_SHARE)
    oldest = next(enough, newest)
    if oldest == 0 or freed[oldest - 1] < before * LEAST_SHARE:
        return None
    return Compacted(
        messages=(*shorter[:oldest], *messages[oldest:]),
        results=sum(_differing(*pair) for pair in zip(messages[:oldest], shorter, strict=False)),
        characters=freed[oldest - 1],
        left=before - freed[oldest - 1],
    )


def _notes(messages: tuple[Message, ...]) -> dict[str, str]:
    """What a call's result becomes, by the call's id: what it was, and how to get it again."""
    calls = [block for message in messages for block in message.content if block.get("type") == "tool_use"]
    return {str(call.get("id")): _note(call) for call in calls}


def _note(call: JsonObject) -> str:
    given = compact(call.get("input") or {})
    shown = given if len(given) <= INPUT_SHOWN else f"{given[:INPUT_SHOWN]}…"
    return (
        f"[The result of {call.get('name')} {shown} was removed to make room in this conversation. What the call "
        "changed is still there. Call it again only if you need the text.]"
    )


def _with_notes(message: Message, notes: Mapping[str, str]) -> Message:
    return replace(message, content=tuple(_shorter(block, notes) for block in message.content))


def _shorter(block: JsonObject, notes: Mapping[str, str]) -> JsonObject:
    note = notes.get(str(block.get("tool_use_id"))) if block.get("type") == "tool_result" else None
    return block if note is None or len(note) >= len(str(block.get("content"))) else {**block, "content": note}


def _differing(message: Message, short: Message) -> int:
    return sum(block is not shortened for block, shortened in zip(message.content, short.content, strict=True))


def _results(message: Message) -> bool:
    return any(block.get("type") == "tool_result" for block in message.content)


def _size(message: Message) -> int:
    return sum(len(compact(block)) for block in message.content)
