"""Room in long conversations, made by the service: it leaves out old results of tools, and the conversation as we send
it stays what it was (Messages API, "Context editing")."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepflow.domain.conversation import ClearedResults

if TYPE_CHECKING:
    from stepflow.domain.conversation import Usage
    from stepflow.domain.json import JsonObject, JsonValue

_CLEARING = "clear_tool_uses_20250919"
#: The newest results, which the model is still working with.
KEPT_RESULTS = 5
#: Results are cleared once a conversation fills this share of the window.
_TRIGGER_SHARE = 0.75
#: Each clearing is paid for with a part of the cached prefix: less than this share of the window is not worth it.
_LEAST_SHARE = 0.25
#: From here on the next results may lead beyond a price step.
_NEAR_SHARE = 0.9


def plan_clearing(entry: JsonObject, *, price_step: int | None) -> JsonObject | None:
    """The part of a request that asks for room, by the model's entry in the service's list; None where the service does
    not say that it can make room in this model's window. A request longer than `price_step` costs more per token, so
    room is made before."""
    window = entry.get("max_input_tokens")
    strategies = _get(_get(entry, "capabilities"), "context_management")
    supported = _get(_get(strategies, _CLEARING), "supported")
    if not isinstance(window, int) or window <= 0 or supported is not True:
        return None
    window = min(window, price_step or window)
    edit: JsonObject = {
        "type": _CLEARING,
        "trigger": {"type": "input_tokens", "value": int(window * _TRIGGER_SHARE)},
        "keep": {"type": "tool_uses", "value": KEPT_RESULTS},
        "clear_at_least": {"type": "input_tokens", "value": int(window * _LEAST_SHARE)},
    }
    return {"edits": [edit]}


def is_near(price_step: int | None, usage: Usage) -> bool:
    """Whether a conversation whose last turn used so much is close to the length at which a request costs more. Room is
    made long before; where it comes so far all the same, there was none to make."""
    return price_step is not None and usage.total >= price_step * _NEAR_SHARE


def shows_thinking(entry: JsonObject) -> bool:
    """Whether the model thinks by itself, and can summarize what it thinks between its calls."""
    types = _get(_get(_get(entry, "capabilities"), "thinking"), "types")
    return _get(_get(types, "adaptive"), "supported") is True


def read_cleared(answer: JsonObject) -> ClearedResults | None:
    """What the service left out of the request that this message answers; None when that was nothing."""
    applied = _get(answer.get("context_management"), "applied_edits")
    edits = applied if isinstance(applied, list) else []
    results, tokens = (
        sum(number for edit in edits if isinstance(number := _get(edit, key), int))
        for key in ("cleared_tool_uses", "cleared_input_tokens")
    )
    return ClearedResults(results=results, tokens=tokens) if results else None


def _get(value: JsonValue, key: str) -> JsonValue:
    return value.get(key) if isinstance(value, dict) else None
