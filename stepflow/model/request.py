"""The body of one call as the Messages API wants it: its cacheable prefix, and the schema of its answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepflow.domain.conversation import text_block
from stepflow.domain.words import Strategy
from stepflow.engine.native_schema import native_schema
from stepflow.model.models import resolve_model

if TYPE_CHECKING:
    from stepflow.domain.conversation import Message, ModelRequest, ToolSpec
    from stepflow.domain.json import JsonObject, JsonValue


def request_body(request: ModelRequest, *, max_tokens: int, exclude: frozenset[str] = frozenset()) -> JsonObject:
    """The arguments of one call. The same prefix gives the same bytes, so that only what is new is paid in full.

    `max_tokens`: the most of one answer, where the request does not say it. `exclude`: the names of the
    optional parts that the service has refused.
    """
    body: JsonObject = {
        "model": resolve_model(request.model),
        "max_tokens": request.max_output_tokens or max_tokens,
        "system": request.system,
        "tools": [_tool(tool) for tool in request.tools],
        "messages": [_message(message) for message in request.messages],
    }
    optional = {key: part for key, part in _optional(request).items() if key not in exclude}
    whole = {key: value for key, value in body.items() if value} | optional
    return mark_prefix(whole, cacheable=request.cacheable)


def _optional(request: ModelRequest) -> JsonObject:
    # Marks the last block that can be cached: the next turn reads everything up to it from the cache.
    parts: JsonObject = {"cache_control": {"type": "ephemeral"}}
    if request.drop_thinking:
        parts["thinking"] = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
    output: JsonObject = {} if request.effort is None else {"effort": str(request.effort)}
    if request.schema is not None and request.strategy is Strategy.NATIVE:
        # Loaded here: more than a second, and only a request that is really sent needs it.
        from anthropic import transform_schema  # noqa: PLC0415

        if native := native_schema(request.schema):
            output["format"] = {"type": "json_schema", "schema": transform_schema(native)}
    return parts | {"output_config": output} if output else parts


#: The parts of the API that are in beta, each with the header that allows it (platform.claude.com, "Beta headers").
_CONTEXT_MANAGEMENT = "context-management-2025-06-27"
_BINDING_CONTROLS = "thinking-binding-controls-2026-08-01"


def betas_of(body: JsonObject) -> list[str]:
    """The headers that a body needs."""
    thinking = body.get("thinking")
    controls = isinstance(thinking, dict) and "block_binding" in thinking
    return [_CONTEXT_MANAGEMENT] * ("context_management" in body) + [_BINDING_CONTROLS] * controls


def _message(message: Message) -> JsonObject:
    return {"role": message.role, "content": list(message.content)}


def _tool(tool: ToolSpec) -> JsonObject:
    return {"name": tool.name, "description": tool.description, "input_schema": tool.input_schema}


_MARK: JsonObject = {"cache_control": {"type": "ephemeral"}}


def mark_prefix(body: JsonObject, *, cacheable: int) -> JsonObject:
    """The body with its breakpoints; as it is where the service has refused the one at the top level.

    The service keeps everything up to a breakpoint: tools, then system, then messages; four are allowed. The one at the
    top level of the body moves with the last block, which serves the turns of one conversation. What later steps and
    repeated steps begin with needs its own: the tools, the part of the system prompt that all steps share, and the
    step's part.
    `cacheable`: so many characters at the beginning of the system prompt are the same in every step.
    """
    if "cache_control" not in body:
        return body
    marked = dict(body)
    match body.get("tools"):
        case [*others, dict(last)]:
            marked["tools"] = [*others, last | _MARK]
    match body.get("system"):
        case str(system):
            marked["system"] = _blocks(system[:cacheable], system[cacheable:])
    return marked


def _blocks(*parts: str) -> list[JsonValue]:
    """A text block of the system prompt for each part that holds something; the service takes no empty one."""
    return [text_block(part) | _MARK for part in parts if part.strip()]
