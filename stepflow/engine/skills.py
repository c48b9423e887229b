"""The skills of an agent, read by the model out of the definition: no change in the checkout reaches them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepflow.domain.conversation import ToolResult

if TYPE_CHECKING:
    from stepflow.domain.conversation import ToolUse
    from stepflow.domain.definition import AgentDefinition


def read_skill(agent: AgentDefinition, use: ToolUse) -> ToolResult | None:
    """The result of a call of `read` with the address of a skill's file; None for every other call."""
    wanted = str(use.input.get("file_path", ""))
    if use.name != "read" or not agent.skills or not wanted.startswith("skill://"):
        return None
    texts = {skill.address(file): text for skill in agent.skills for file, text in skill.files.items()}
    if wanted not in texts:
        text = f"{wanted}: does not exist; there are {', '.join(texts)}"
        return ToolResult(tool_use_id=use.id, text=text, is_error=True)
    text = texts[wanted]
    match use.input.get("view_range"):
        case [int(first), int(last)]:
            text = "".join(text.splitlines(keepends=True)[max(first, 1) - 1 : last if last > 0 else None])
    return ToolResult(tool_use_id=use.id, text=text)
