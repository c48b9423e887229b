"""The answer as the input of a tool, for services without structured output of their own.

Takes: the closed answer schema; a turn. Gives: the tool that takes the answer; the turn with the answer as its text.
May touch: nothing.

Outside of this room an answer is text, in whatever way it was asked for: so a journal, a recording or a conversation
that goes on in another way holds no call that nobody answers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from stepflow.domain.conversation import ModelTurn, StopReason, text_block
from stepflow.domain.json import compact

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stepflow.domain.conversation import ModelRequest
    from stepflow.domain.json import JsonObject

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
    """The turn with its call of the answer tool as text.

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
