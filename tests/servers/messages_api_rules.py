"""What the Messages API refuses, in its kind of words."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Json = dict[str, Any]
_FIELDS = {"model", "max_tokens", "messages", "system", "tools", "tool_choice", "stream", "output_config"}
_FIELDS |= {
    "context_management",
    "cache_control",
    "thinking",
    "metadata",
    "stop_sequences",
    "temperature",
    "service_tier",
}
_EFFORTS = {"low", "medium", "high", "xhigh", "max"}
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


#: What a test may not send without the header that names it.
CONTEXT_MANAGEMENT = "context-management-2025-06-27"
BINDING_CONTROLS = "thinking-binding-controls-2026-08-01"

BOUND_ELSEWHERE = (
    "Invalid `signature` in `thinking` block. The block is bound to a different conversation. Remove the block, or set "
    '`thinking.block_binding.prefix_mismatch_behavior` to "drop_block".'
)

#: The prefixes behind which each signature, or each answer, was given.
Prefixes = Mapping[str, set[str]]


def problems_of(body: Json, *, given: Prefixes, unknown: frozenset[str]) -> Iterator[str]:
    """`given`: what this server has answered before. `unknown`: the fields that it does not have."""
    for name in sorted(body.keys() - (_FIELDS - unknown)):
        yield f"{name}: Extra inputs are not permitted"
    if not isinstance(body.get("model"), str) or not body["model"]:
        yield "model: Field required"
    yield from _problems_of_max_tokens(body)
    yield from _problems_of_breakpoints(body, unknown)
    yield from _problems_of_messages(body.get("messages"), given)
    yield from _problems_of_prefix(body, given)
    yield from _problems_of_tools(body.get("tools", []))
    if (body.get("tool_choice") or {}).get("type") in {"any", "tool"}:
        yield "tool_choice: this model does not support forced tool use"
    yield from _problems_of_format(body.get("output_config", {}))


def _problems_of_max_tokens(body: Json) -> Iterator[str]:
    """0 uses the cache without an answer, which cannot be streamed, thought about or given a form."""
    most = body.get("max_tokens")
    if not isinstance(most, int) or most < 0:
        yield "max_tokens: must be greater than or equal to 0"
    asks = {
        "stream": body.get("stream"),
        "thinking.type": (body.get("thinking") or {}).get("type") == "enabled",
        "output_config.format": "format" in (body.get("output_config") or {}),
    }
    if most == 0 and (asked := next((name for name, is_asked in asks.items() if is_asked), None)):
        yield f"max_tokens: 0 is not supported with `{asked}`"


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


def prefixes_of(body: Json) -> list[str]:
    """What the API binds an answer to, before each message and after the last: a digest of system, tools and all
    messages until there. Breakpoints are no part of it, nor is the way in which the answer's schema is asked for."""
    digest = hashlib.sha256(_digestible([body.get("system", ""), body.get("tools", [])]))
    prefixes = [digest.hexdigest()]
    for message in body.get("messages") or []:
        digest.update(_digestible(message))
        prefixes.append(digest.hexdigest())
    return prefixes


def _digestible(value: Any) -> bytes:
    return json.dumps(without_breakpoints(value), sort_keys=True).encode()


def name_answer(content: Any) -> str:
    """What an answer is known by when it comes back."""
    return json.dumps(without_breakpoints(content), sort_keys=True)


def without_breakpoints(value: Any) -> Any:
    """The same at any depth without `cache_control`, which is no part of what is cached."""
    if isinstance(value, dict):
        return {key: without_breakpoints(inner) for key, inner in value.items() if key != "cache_control"}
    return [without_breakpoints(inner) for inner in value] if isinstance(value, list) else value


def _problems_of_prefix(body: Json, given: Prefixes) -> Iterator[str]:
    """Models of late 2026 think in every answer: each comes back behind just what it was given behind."""
    thinking = body.get("thinking") or {}
    if (thinking.get("block_binding") or {}).get("prefix_mismatch_behavior") == "drop_block":
        return
    for number, (message, prefix) in enumerate(zip(body.get("messages") or [], prefixes_of(body), strict=False)):
        if message.get("role") != "assistant":
            continue
        signatures = [str(block["signature"]) for block in blocks_of(message) if "signature" in block]
        behind = [given[name] for name in (name_answer(message["content"]), *signatures) if name in given]
        if behind and prefix not in set.intersection(*behind):
            yield f"messages.{number}.content.0: {BOUND_ELSEWHERE}"


def _problems_of_messages(messages: Any, given: Prefixes) -> Iterator[str]:
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
        yield from _problems_of_blocks(number, blocks_of(message), given)
    if messages[-1].get("role") == "assistant":
        yield "messages: this model does not support assistant message prefill"


def _problems_of_blocks(number: int, blocks: list[Json], given: Prefixes) -> Iterator[str]:
    for index, block in enumerate(blocks):
        where = f"messages.{number}.content.{index}"
        if block["type"] == "text" and not block.get("text"):
            yield f"{where}: text content blocks must be non-empty"
        if block["type"] == "thinking" and str(block.get("signature")) not in given:
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


#: What the service puts in the place of a tool's result that it leaves out.
CLEARED = "[Old tool result content cleared]"


def clear_results(body: Json, size_of: Callable[[Json], int]) -> tuple[Json, Json | None]:
    """The request as the model sees it, and what was left out of it: the oldest results of tools, once the request is
    longer than its trigger, and only if enough goes."""
    edits = (body.get("context_management") or {}).get("edits", [])
    if not edits or size_of(body) <= edits[0]["trigger"]["value"]:
        return body, None
    results = [block for message in body["messages"] for block in blocks_of(message) if block["type"] == "tool_result"]
    old = {block["tool_use_id"] for block in results[: len(results) - edits[0]["keep"]["value"]]}
    messages = [
        {
            **message,
            "content": [
                {**block, "content": CLEARED} if block.get("tool_use_id") in old else block
                for block in blocks_of(message)
            ],
        }
        for message in body["messages"]
    ]
    shorter = {**body, "messages": messages}
    cleared = size_of(body) - size_of(shorter)
    if cleared < edits[0]["clear_at_least"]["value"]:
        return body, None
    applied = {"type": edits[0]["type"], "cleared_tool_uses": len(old), "cleared_input_tokens": cleared}
    return shorter, {"applied_edits": [applied]}


def _problems_of_format(config: Json) -> Iterator[str]:
    if config.get("effort", "low") not in _EFFORTS:
        yield "output_config.effort: Input should be 'low', 'medium', 'high', 'xhigh' or 'max'"
    if not config or config.keys() == {"effort"}:
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
