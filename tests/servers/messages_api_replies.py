"""What a scripted Messages API can answer, and how an answer looks as the API's events."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]
_PIECE = 7
_MOST_PIECES = 2000


@dataclass(frozen=True, kw_only=True)
class Answer:
    """An assistant message. The knobs spoil the way it is sent, never what it says."""

    content: tuple[Json, ...]
    stop_reason: str | None = "end_turn"
    stop_details: Json | None = None
    usage: Json | None = None
    """None: counted by the server, with the cache accounts of `MessagesApi`."""
    model: str | None = None
    cut_after: int | None = None
    """End the stream politely after so many events."""
    reset_after: int | None = None
    """Reset the connection after so many events; 0 is right after the headers."""
    garble_at: int | None = None
    """Send the event of this number with data that is no JSON."""
    extra_events: tuple[tuple[int, str, Json], ...] = ()
    """(position, name, data) of events that are pushed in between."""
    pause: float = 0.0
    """Seconds between two events."""
    drip: float = 0.0
    """Seconds between two single bytes, from the first one of the status line on."""
    short_inputs: int = 0
    """So many characters at the end of each tool input are not sent."""
    flood: int = 0
    """Before the first event, comments without end, each of so many bytes."""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """An HTTP answer that is no message."""

    status: int
    error: str = "api_error"
    message: str = "scripted failure"
    details: Json | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    page: str | None = None
    """A body of text/html instead of the API's JSON."""


@dataclass(frozen=True, kw_only=True)
class Drop:
    """Close the connection (reset it) before a byte is answered; or keep silent for some seconds before that."""

    silent: float = 0.0


Reply = Answer | Failure | Drop


def says(text: str, **more: Any) -> Answer:
    """A plain answer."""
    return Answer(content=({"type": "text", "text": text},), **more)


def answers(value: Json, **more: Any) -> Answer:
    """A structured answer."""
    return says(json.dumps(value, separators=(",", ":")), **more)


def calls(*tools: tuple[str, Json], text: str = "", first_id: int = 1, **more: Any) -> Answer:
    """A turn of tool calls: (name, input) each."""
    blocks: list[Json] = [{"type": "text", "text": text}] if text else []
    for number, (name, arguments) in enumerate(tools, start=first_id):
        blocks.append({"type": "tool_use", "id": f"toolu_srv_{number}", "name": name, "input": arguments})
    return Answer(content=tuple(blocks), stop_reason="tool_use", **more)


def events_of(
    answer: Answer, *, model: str, usage: Json, context_management: Json | None = None
) -> Iterator[tuple[str, Json]]:
    """The event stream of an answer as the API sends it: (name, data)."""
    started = {**usage, "output_tokens": 1}
    yield "message_start", {"type": "message_start", "message": message_of(answer, model, started, begun=True)}
    for index, block in enumerate(answer.content):
        yield from _block_events(index, block, answer.short_inputs)
    delta = {"stop_reason": answer.stop_reason, "stop_sequence": None, "stop_details": answer.stop_details}
    ended = {"type": "message_delta", "delta": delta, "usage": usage}
    yield "message_delta", ended | ({"context_management": context_management} if context_management else {})
    yield "message_stop", {"type": "message_stop"}


def message_of(answer: Answer, model: str, usage: Json, *, begun: bool = False) -> Json:
    return {
        "id": "msg_scripted",
        "type": "message",
        "role": "assistant",
        "model": answer.model or model,
        "content": [] if begun else list(answer.content),
        "stop_reason": None if begun else answer.stop_reason,
        "stop_sequence": None,
        "usage": usage,
    }


def _block_events(index: int, block: Json, short: int) -> Iterator[tuple[str, Json]]:
    empty, deltas = _empty_block_and_deltas(block, short)
    yield "content_block_start", {"type": "content_block_start", "index": index, "content_block": empty}
    if index == 0:
        yield "ping", {"type": "ping"}
    for delta in deltas:
        yield "content_block_delta", {"type": "content_block_delta", "index": index, "delta": delta}
    yield "content_block_stop", {"type": "content_block_stop", "index": index}


def _empty_block_and_deltas(block: Json, short: int) -> tuple[Json, list[Json]]:
    match block["type"]:
        case "text":
            return {**block, "text": ""}, [{"type": "text_delta", "text": text} for text in _pieces(block["text"])]
        case "thinking":
            deltas: list[Json] = [{"type": "thinking_delta", "thinking": text} for text in _pieces(block["thinking"])]
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
            return {**block, "thinking": "", "signature": ""}, deltas
        case "tool_use":
            text = json.dumps(block["input"])
            pieces = _pieces(text[: len(text) - short])
            return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": text} for text in pieces]
        case _:
            return block, []


def _pieces(text: str) -> list[str]:
    # Megabytes in tiny pieces would only measure how fast two programs of one machine count events.
    size = max(_PIECE, len(text) // _MOST_PIECES)
    return [text[start : start + size] for start in range(0, len(text), size)]
