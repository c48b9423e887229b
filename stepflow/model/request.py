"""The body of one call, as the Messages API wants it.

Takes: a `ModelRequest`. Gives: the arguments of the SDK's `messages.stream`.
May touch: nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepflow.domain.json import compact
from stepflow.domain.schema import close_schema
from stepflow.domain.words import Strategy
from stepflow.model.answer_schema import native_schema, schema_in_words
from stepflow.model.caching import mark_prefix
from stepflow.model.models import resolve_model
from stepflow.model.strategy import ANSWER_TOOL, answer_tool, is_forced

if TYPE_CHECKING:
    from stepflow.domain.conversation import Message, ModelRequest, ToolSpec
    from stepflow.domain.json import JsonObject, JsonValue


def request_body(request: ModelRequest, *, max_tokens: int, without: frozenset[str] = frozenset()) -> JsonObject:
    """The arguments of one call. The same prefix gives the same bytes, so that only what is new is paid in full.

    `without`: the optional parts that the service has refused, by `name_part`.
    """
    closed = close_schema(request.schema) if request.schema is not None else None
    optional = {key: part for key, part in _optional(request, closed).items() if name_part(key, part) not in without}
    system = request.system
    if closed is not None and request.strategy is Strategy.NATIVE and "output_config" not in optional:
        system = f"{system}\n\n{schema_in_words(closed)}".lstrip()
    tools: list[JsonValue] = [_tool(tool) for tool in request.tools]
    if closed is not None and request.strategy is Strategy.TOOL:
        tools.append(answer_tool(closed))
    body: JsonObject = {
        "model": resolve_model(request.model),
        "max_tokens": max_tokens,
        "system": system,
        "tools": tools,
        "messages": [_message(message) for message in request.messages],
    }
    whole = {key: value for key, value in body.items() if value} | optional
    return mark_prefix(whole, steady=request.steady)


def name_part(key: str, part: JsonValue) -> str:
    """A part of a body by name and value: one schema may be refused and another one taken."""
    return f"{key}={compact(part)}"


def _optional(request: ModelRequest, closed: JsonObject | None) -> JsonObject:
    # Marks the last block that can be cached: the next turn reads everything up to it from the cache.
    parts: JsonObject = {"cache_control": {"type": "ephemeral"}}
    match request.strategy:
        case _ if closed is None:
            return parts
        case Strategy.NATIVE if native := native_schema(closed):
            return parts | {"output_config": {"format": {"type": "json_schema", "schema": native}}}
        case Strategy.TOOL if is_forced(request):
            return parts | {"tool_choice": {"type": "tool", "name": ANSWER_TOOL}}
        case _:
            return parts


def _message(message: Message) -> JsonObject:
    return {"role": message.role, "content": list(message.content)}


def _tool(tool: ToolSpec) -> JsonObject:
    return {"name": tool.name, "description": tool.description, "input_schema": tool.input_schema}
