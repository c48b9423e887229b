"""The body of one call as the Messages API wants it: its cacheable prefix, the schema of its answer, and the room that
the service makes in a long conversation. The service leaves out old results of tools, and the conversation as we send
it stays what it was (Messages API, "Context editing")."""

from __future__ import annotations

from stepflow.domain.conversation import ClearedResults, Message, ModelRequest, ToolSpec, Usage, text_block
from stepflow.domain.json import JsonObject, JsonValue
from stepflow.domain.words import Strategy
from stepflow.engine.answer_schema import native_schema
from stepflow.model.models import resolve_model

_CLEARING = "clear_tool_uses_20250919"
#: The newest results, which the model is still working with.
KEPT_RESULTS = 5
#: Results are cleared once a conversation fills this share of the window.
_TRIGGER_SHARE = 0.75
#: Each clearing is paid for with a part of the cached prefix: less than this share of the window is not worth it.
_LEAST_SHARE = 0.25
#: From here on the next results may lead beyond a price step.
_NEAR_SHARE = 0.9


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
    step's part. The last one gives way to one inside a longer conversation.
    `cacheable`: so many characters at the beginning of the system prompt are the same in every step.
    """
    if "cache_control" not in body:
        return body
    marked = dict(body)
    match body.get("tools"):
        case [*others, dict(last)]:
            marked["tools"] = [*others, last | _MARK]
    messages = body["messages"] if isinstance(body["messages"], list) else []
    settled = _find_settled(messages)
    if settled is not None:
        marked["messages"] = [*messages[:settled], _mark_last(messages[settled]), *messages[settled + 1 :]]
    match body.get("system"):
        case str(system):
            blocks = [text_block(part) for part in (system[:cacheable], system[cacheable:]) if part.strip()]
            most = len(blocks) if settled is None else 1
            marked["system"] = [block | _MARK if number < most else block for number, block in enumerate(blocks)]
    return marked


def _find_settled(messages: list[JsonValue]) -> int | None:
    """The newest message of ours behind which there are as many results as the service keeps when it clears old ones;
    None in a short conversation.

    What comes before it is the same in the next request, although one more result may be cleared there. And the service
    looks for what it knows at most 20 blocks before a breakpoint, which is less than a turn with many calls adds.
    """
    results = 0
    for number in range(len(messages) - 1, -1, -1):
        message = messages[number]
        if not isinstance(message, dict) or message.get("role") != "user":
            continue
        if results >= KEPT_RESULTS:
            return number
        results += sum(isinstance(block, dict) and block.get("type") == "tool_result" for block in _content(message))
    return None


def _mark_last(message: JsonValue) -> JsonValue:
    match message:
        case {"role": role, "content": [*before, dict(last)]}:
            return {"role": role, "content": [*before, last | _MARK]}
    return message


def _content(message: JsonObject) -> list[JsonValue]:
    content = message.get("content")
    return content if isinstance(content, list) else []


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
