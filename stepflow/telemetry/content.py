"""What `otel-content` adds to a trace: prompts, answers and tool calls, in the messages of the conventions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable

from stepflow.domain import event as events
from stepflow.domain.json import JsonObject, JsonValue
from stepflow.domain.text import cut

#: Characters of one text. Collectors limit the size of a request.
MOST_CONTENT = 8_000


class ContentCollector:
    """Follows the conversations of a run. A call of the model has what is new since the one before it."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        self._redact = redact
        self._system = ""
        self._given = list[JsonObject]()

    def follow(self, event: events.Event) -> None:
        """Remember what the next call of the model is given."""
        match event:
            case events.PromptRendered():
                self._system = event.system
                self._given = [_message("user", map(self._part, event.blocks))]
            case events.UserMessage():
                self._given.append(_message("user", [self._part(event.text)]))
            case events.ToolCalled():
                response = self.shorten(event.output)
                part: JsonObject = {"type": "tool_call_response", "id": event.tool_use_id, "response": response}
                self._given.append(_message("tool", [part]))
            case _:
                pass

    def of_turn(self, turned: events.ModelTurned) -> dict[str, str]:
        """Return the attributes of a call."""
        parts = [part for block in turned.content if (part := self._answer_part(block))]
        answer = {**_message("assistant", parts), "finish_reason": turned.stop_reason}
        given, self._given = self._given, []
        return {
            "gen_ai.system_instructions": json.dumps([self._part(self._system)], ensure_ascii=False),
            "gen_ai.input.messages": json.dumps(given, ensure_ascii=False),
            "gen_ai.output.messages": json.dumps([answer], ensure_ascii=False),
        }

    def of_tool(self, called: events.ToolCalled) -> dict[str, str]:
        """Return the attributes of a tool call."""
        arguments = json.dumps(called.input, ensure_ascii=False)
        return {
            "gen_ai.tool.call.arguments": self.shorten(arguments),
            "gen_ai.tool.call.result": self.shorten(called.output),
        }

    def shorten(self, text: str) -> str:
        """Return the text without secrets, cut only then, so that no half of one is left."""
        return cut(self._redact(text), MOST_CONTENT)

    def _part(self, text: str) -> JsonObject:
        return {"type": "text", "content": self.shorten(text)}

    def _answer_part(self, block: JsonObject) -> JsonObject | None:
        """Return a block of an answer in the conventions' form. Signatures and encrypted thinking are left out."""
        match block:
            case {"type": "text", "text": str(text)}:
                return self._part(text)
            case {"type": "thinking", "thinking": str(text)}:
                return {**self._part(text), "type": "reasoning"}
            case {"type": "tool_use"}:
                arguments: JsonValue = self.shorten(json.dumps(block.get("input"), ensure_ascii=False))
                return {"type": "tool_call", "id": block.get("id"), "name": block.get("name"), "arguments": arguments}
            case _:
                return None


def _message(role: str, parts: Iterable[JsonObject]) -> JsonObject:
    return {"role": role, "parts": list(parts)}
