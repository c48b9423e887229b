"""What the Messages API refuses, in its kind of words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]
_FIELDS = {"model", "max_tokens", "messages", "system", "tools", "tool_choice", "stream", "output_config"}
_FIELDS |= {"cache_control", "thinking", "metadata", "stop_sequences", "temperature", "service_tier"}
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def problems_of(body: Json, *, signatures: set[str], unknown: frozenset[str]) -> Iterator[str]:
    """`signatures` are those of the thinking blocks given out, `unknown` the fields that this server does not have."""
    for name in sorted(body.keys() - (_FIELDS - unknown)):
        yield f"{name}: Extra inputs are not permitted"
    if not isinstance(body.get("model"), str) or not body["model"]:
        yield "model: Field required"
    if not isinstance(body.get("max_tokens"), int) or body["max_tokens"] < 1:
        yield "max_tokens: must be greater than or equal to 1"
    yield from _problems_of_breakpoints(body, unknown)
    yield from _problems_of_messages(body.get("messages"), signatures)
    yield from _problems_of_tools(body.get("tools", []))
    yield from _problems_of_format(body.get("output_config", {}))


def _problems_of_breakpoints(body: Json, unknown: frozenset[str]) -> Iterator[str]:
    """Up to four, the one of the whole body among them."""
    system = body.get("system", "")
    listed = [("tools", body.get("tools", [])), ("system", [] if isinstance(system, str) else system)]
    listed += [("messages", [block for message in body.get("messages") or [] for block in blocks_of(message)])]
    marked = [name for name, blocks in listed for block in blocks if "cache_control" in block]
    if marked and "cache_control" in unknown:
        yield f"{marked[0]}.0.cache_control: Extra inputs are not permitted"
    if len(marked) + ("cache_control" in body) > 4:
        yield "A maximum of 4 blocks with cache_control may be provided."


def blocks_of(message: Json) -> list[Json]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _problems_of_messages(messages: Any, signatures: set[str]) -> Iterator[str]:
    if not isinstance(messages, list) or not messages:
        yield "messages: at least one message is required"
        return
    open_calls: set[str] = set()
    for number, message in enumerate(messages):
        expected = "assistant" if number % 2 else "user"
        if message.get("role") != expected:
            yield f"messages.{number}: roles must alternate between user and assistant, beginning with user"
        if not message.get("content"):
            yield f"messages.{number}: all messages must have non-empty content"
        answered = {block["tool_use_id"] for block in blocks_of(message) if block["type"] == "tool_result"}
        if open_calls - answered:
            yield f"messages.{number}: `tool_use` ids were found without `tool_result` blocks immediately after"
        if answered - open_calls:
            yield f"messages.{number}: unexpected `tool_use_id` found in `tool_result` blocks"
        open_calls = {block["id"] for block in blocks_of(message) if block["type"] == "tool_use"}
        yield from _problems_of_blocks(number, blocks_of(message), signatures)
    if messages[-1].get("role") == "assistant":
        yield "messages: this model does not support assistant message prefill"


def _problems_of_blocks(number: int, blocks: list[Json], signatures: set[str]) -> Iterator[str]:
    for index, block in enumerate(blocks):
        where = f"messages.{number}.content.{index}"
        if block["type"] == "text" and not block.get("text"):
            yield f"{where}: text content blocks must be non-empty"
        if block["type"] == "thinking" and block.get("signature") not in signatures:
            yield f"{where}: Invalid `signature` in `thinking` block"
        if any(value is None for value in block.values()):
            yield f"{where}: Input should not be null"


def _problems_of_tools(tools: list[Json]) -> Iterator[str]:
    names = [tool.get("name", "") for tool in tools]
    if len(set(names)) != len(names):
        yield "tools: Tool names must be unique."
    for number, tool in enumerate(tools):
        if not _TOOL_NAME.fullmatch(names[number]):
            yield f"tools.{number}.custom.name: String should match pattern"
        if tool.get("input_schema", {}).get("type") != "object":
            yield f"tools.{number}.custom.input_schema.type: Field required"


def _problems_of_format(config: Json) -> Iterator[str]:
    if not config:
        return
    wanted = config.get("format", {})
    if wanted.get("type") != "json_schema" or not isinstance(wanted.get("schema"), dict):
        yield "output_config.format.schema: Field required"
    else:
        yield from schema_problems(wanted["schema"])


def schema_problems(schema: Json) -> Iterator[str]:
    """The subset that structured output takes."""
    where = "output_config.format.schema"
    allowed = {"type", "properties", "required", "additionalProperties", "items", "minItems", "anyOf", "allOf"}
    allowed |= {"enum", "const", "description", "title", "format", "default", "$ref", "$defs"}
    if extra := sorted(schema.keys() - allowed):
        yield f"{where}: property '{extra[0]}' is not supported"
    if not schema.keys() & {"type", "anyOf", "allOf", "enum", "const", "$ref"}:
        yield f"{where}: a type is required"
    if isinstance(schema.get("type"), list):
        yield f"{where}: lists of types are not supported"
    if schema.get("type") == "object" and schema.get("additionalProperties") is not False:
        yield f"{where}: For 'object' type, 'additionalProperties' must be explicitly set to false"
    inner = [*schema.get("properties", {}).values(), *schema.get("anyOf", []), *schema.get("allOf", [])]
    for sub in [*inner, *([schema["items"]] if "items" in schema else [])]:
        yield from schema_problems(sub)
