"""What did the step say: answer in, `Decision` out (house.md "Rooms")."""

from stepflow.gate.answer import correct_step_id, find_object, find_objects
from stepflow.gate.format import check_format, has_shape
from stepflow.gate.outcome import (
    Judged,
    decide_outcome,
    read_check_answer,
    read_handoff,
    read_own_result,
    read_result,
)
from stepflow.gate.read import canonical_answer, read_gate, stated_reason

__all__ = [
    "Judged",
    "canonical_answer",
    "check_format",
    "correct_step_id",
    "decide_outcome",
    "find_object",
    "find_objects",
    "has_shape",
    "read_check_answer",
    "read_gate",
    "read_handoff",
    "read_own_result",
    "read_result",
    "stated_reason",
]
