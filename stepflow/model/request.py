"""The body of one call as the Messages API wants it: its cacheable prefix, and the way its answer is asked for."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from stepflow.domain.conversation import ModelTurn, StopReason, text_block
from stepflow.domain.json import compact
from stepflow.domain.words import Strategy
from stepflow.engine.closed_schema import close_schema
from stepflow.model.answer_schema import native_schema, schema_in_words
from stepflow.model.models import resolve_model

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stepflow.domain.conversation import Message, ModelRequest, ToolSpec
    from stepflow.domain.json import JsonObject, JsonValue


def request_body(request: ModelRequest, *, max_tokens: int, exclude: frozenset[str] = frozenset()) -> JsonObject:
    """The arguments of one call. The same prefix gives the same bytes, so that only what is new is paid in full.

    `exclude`: the optional parts that the service has refused, by `name_part`.
    """
    closed = close_schema(request.schema) if request.schema is not None else None
    optional = {key: part for key, part in _optional(request, closed).items() if name_part(key, part) not in exclude}
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
    if name_part(IMAGES, None) in exclude:
        body["messages"] = [_without_images(message) for message in request.messages]
    whole = {key: value for key, value in body.items() if value} | optional
    return mark_prefix(whole, cacheable=request.cacheable)


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


#: How what is optional in messages is named among the parts.
IMAGES = "images"
_NO_IMAGE = "[The model's service takes no images, so this one is not seen.]"


def has_images(body: JsonObject) -> bool:
    """Whether a body holds one."""
    match body.get("messages"):
        case [{"content": list(blocks)}, *_]:
            return any(isinstance(block, dict) and block.get("type") == "image" for block in blocks)
        case _:
            return False


def _without_images(message: Message) -> JsonObject:
    blocks = (text_block(_NO_IMAGE) if block.get("type") == "image" else block for block in message.content)
    return _message(replace(message, content=tuple(blocks)))


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


ANSWER_TOOL = "answer"
_DESCRIPTION = (
    "Gives the final answer of this step and ends the step. Call it once, alone, when the work is done. "
    "A final answer that is not the input of this tool is not read."
)
#: The one property of the input where the schema itself is none that a tool's input can have.
_INNER = "answer"
_NOT_AT_THE_TOP = frozenset({"anyOf", "oneOf", "allOf", "not", "if"})
_BOOKKEEPING = frozenset({"$schema", "$id", "id", "$comment"})


def answer_tool(closed: JsonObject) -> JsonObject:
    """The tool whose input is the answer."""
    schema: JsonObject = {key: value for key, value in closed.items() if key not in _BOOKKEEPING}
    if _is_wrapped(closed):
        schema = {"type": "object", "properties": {_INNER: schema}, "required": [_INNER], "additionalProperties": False}
    return {"name": ANSWER_TOOL, "description": _DESCRIPTION, "input_schema": {**schema, "type": "object"}}


def is_forced(request: ModelRequest) -> bool:
    """Whether nothing but the answer may come: it was asked for again, or there is no other tool to work with."""
    return request.insist or not request.tools


def take_answer(turn: ModelTurn, schema: JsonObject) -> ModelTurn:
    """The turn with its call of the answer tool as text: outside of this room an answer is text, in whatever way it was
    asked for, so a journal, a recording or a conversation that goes on in another way holds no call
    that nobody answers.

    Beside calls of other tools it is left out: their results are not in it. So is one that was cut off. What the model
    says beside its answer is left out too, as structured output of a service's own has no such words.
    """
    answers = [use.input for use in turn.tool_uses if use.name == ANSWER_TOOL]
    if not answers:
        return turn
    rest = tuple(block for block in turn.content if not _is_answer(block))
    if any(block.get("type") == "tool_use" for block in rest) or turn.stop_reason is StopReason.MAX_TOKENS:
        return replace(turn, content=rest)
    unread = tuple(block for block in rest if block.get("type") != "text")
    text = "\n".join(map(compact, _unwrapped(answers, wrapped=_is_wrapped(schema))))
    stop = StopReason.END_TURN if turn.stop_reason is StopReason.TOOL_USE else turn.stop_reason
    return replace(turn, content=(*unread, text_block(text)), stop_reason=stop)


def _is_wrapped(schema: JsonObject) -> bool:
    return bool(_NOT_AT_THE_TOP & schema.keys()) or schema.get("type", "object") != "object"


def _unwrapped(answers: Iterable[JsonObject], *, wrapped: bool) -> Iterable[JsonObject]:
    for answer in answers:
        inner = answer.get(_INNER)
        yield inner if wrapped and isinstance(inner, dict) else answer


def _is_answer(block: JsonObject) -> bool:
    return block.get("type") == "tool_use" and block.get("name") == ANSWER_TOOL
