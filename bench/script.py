"""What the model says: in each step four calls of the shell, then an answer that fits the schema which was asked for.

Takes: the body of a request. Gives: content blocks and a stop reason.
May touch: nothing. What a step has done so far is read from its conversation, so clients that open several are served.
"""

from __future__ import annotations

import itertools
import json
from typing import Any

CALLS = 4
#: Names under which clients offer a shell, and the tools by which some take a structured answer.
SHELLS = ("bash", "shell")
ANSWERING = ("final_result", "structuredoutput", "answer")

_numbers = itertools.count(1)


def reply_to(body: dict[str, Any]) -> tuple[list[dict[str, Any]], str]:
    """The next turn of this conversation."""
    tools = {str(tool.get("name")): tool for tool in body.get("tools", ())}
    shell = next((name for name in tools if name.lower() in SHELLS), None)
    called = sum(
        block.get("type") == "tool_use" and block.get("name") == shell
        for message in body["messages"]
        for block in (message["content"] if isinstance(message["content"], list) else ())
    )
    if shell and called < CALLS:
        command = f"cat notes/{called + 1}.txt"
        return [_use(shell, {"command": command})], "tool_use"
    taker = next((name for name in tools if name.lower() in ANSWERING), None)
    if taker:
        if _last_is_result_of(body, taker):
            return [{"type": "text", "text": "Done."}], "end_turn"
        return [_use(taker, answer_for(tools[taker]["input_schema"]))], "tool_use"
    schema = (body.get("output_config") or {}).get("format", {}).get("schema")
    text = json.dumps(answer_for(schema)) if schema else "Nothing more to do."
    return [{"type": "text", "text": text}], "end_turn"


def answer_for(schema: Any, whole: Any = None) -> Any:
    """The simplest value that fits; the first word of the enum is what a step goes on with."""
    whole = schema if whole is None else whole
    match schema:
        case {"$ref": str(path)}:
            return answer_for(whole["$defs"][path.rpartition("/")[2]], whole)
        case {"const": value}:
            return value
        case {"enum": [first, *_]}:
            return first
        case {"type": "object"}:
            properties = schema.get("properties", {})
            return {name: answer_for(properties[name], whole) for name in schema.get("required", properties)}
        case {"type": "array"}:
            return []
        case {"type": "integer" | "number"}:
            return 1
        case {"type": "boolean"}:
            return True
        case {"anyOf": [first, *_]}:
            return answer_for(first, whole)
        case _:
            return (
                f"Look {next(_numbers):05d}: the four notes agree with each other, and nothing in them has to change."
            )


def _use(name: str, given: dict[str, Any]) -> dict[str, Any]:
    return {"type": "tool_use", "id": f"toolu_{next(_numbers):024d}", "name": name, "input": given}


def _last_is_result_of(body: dict[str, Any], name: str) -> bool:
    uses = {
        block["id"]
        for message in body["messages"]
        if message["role"] == "assistant" and isinstance(message["content"], list)
        for block in message["content"]
        if block.get("type") == "tool_use" and block.get("name") == name
    }
    last = body["messages"][-1]["content"]
    return isinstance(last, list) and any(block.get("tool_use_id") in uses for block in last)
