"""Where the prefix of a request is cut, so that the service keeps what later requests begin with.

Takes: the body of a call. Gives: the same with breakpoints. May touch: nothing.

The service keeps everything up to a breakpoint: tools, then system, then messages; four are allowed. The one at the top
level of the body moves with the last block, which serves the turns of one conversation. What later steps and repeated
steps begin with needs its own: the tools, the part of the system prompt that all steps share, and the step's part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepflow.domain.conversation import text_block

if TYPE_CHECKING:
    from stepflow.domain.json import JsonObject, JsonValue

_MARK: JsonObject = {"cache_control": {"type": "ephemeral"}}


def mark_prefix(body: JsonObject, *, steady: int) -> JsonObject:
    """The body with its breakpoints; as it is where the service has refused the one at the top level.

    `steady`: so many characters at the beginning of the system prompt are the same in every step.
    """
    if "cache_control" not in body:
        return body
    marked = dict(body)
    match body.get("tools"):
        case [*others, dict(last)]:
            marked["tools"] = [*others, last | _MARK]
    match body.get("system"):
        case str(system):
            marked["system"] = _blocks(system[:steady], system[steady:])
    return marked


def _blocks(*parts: str) -> list[JsonValue]:
    """A text block of the system prompt for each part that holds something; the service takes no empty one."""
    return [text_block(part) | _MARK for part in parts if part.strip()]
