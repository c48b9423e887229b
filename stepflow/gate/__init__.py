"""What did the step say: answer in, `Decision` out (house.md "Rooms")."""

from stepflow.gate.answer import correct_step_id, find_object
from stepflow.gate.format import check_format
from stepflow.gate.read import canonical_answer, read_gate

__all__ = ["canonical_answer", "check_format", "correct_step_id", "find_object", "read_gate"]
