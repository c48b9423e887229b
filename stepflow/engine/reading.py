"""Read a step's answer, in the way in which its intent is found.

Takes: an open conversation, the step and its schema. Gives: `Reading`, `Stop`, or None for an iteration without answer.
May touch: the model, through the conversation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepflow.engine.by_check import read_by_check
from stepflow.engine.by_gate import read_by_gate
from stepflow.engine.by_verdict import read_by_verdict

if TYPE_CHECKING:
    from stepflow.domain.decision import Unanswered
    from stepflow.domain.definition import Step
    from stepflow.domain.json import JsonObject
    from stepflow.engine.answer import Reading
    from stepflow.engine.conversation import Conversation


def read_answer(conversation: Conversation, step: Step, schema: JsonObject | None) -> Reading | Unanswered | None:
    """Let the model answer, and find the intent: by gate, by check, or by the agent's verdict (registry.md §7)."""
    if step.gate is not None:
        return read_by_gate(conversation, step, step.gate, schema)
    if step.check is not None:
        return read_by_check(conversation, step, step.check, schema)
    return read_by_verdict(conversation, step, schema)
