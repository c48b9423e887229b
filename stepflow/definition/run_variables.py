"""Which variables a run supplies by itself (prompts.md §4).

Takes: a verdict type. Gives: the names.
May touch: nothing.
"""

from __future__ import annotations

from stepflow.domain.words import VerdictType

_ALWAYS = frozenset(
    {
        "iteration",
        "completed_iterations",
        "max_iterations",
        "iterations",
        "remaining",
        "agent_name",
        "agent_description",
        "step_id",
        "step_name",
        "allowed_intents",
        "verdict_criteria",
        "completion_criteria",
        "repeat_reason",
        "previous_summary",
        "repeat_count",
        "repository",
    }
)

_BY_VERDICT = {
    VerdictType.COUNT_CHECK: frozenset({"max_checks", "check_count"}),
    VerdictType.DETECT_KEYWORD: frozenset({"completion_keyword", "verdict_keyword"}),
    VerdictType.DETECT_STRUCTURED: frozenset({"signal_type", "required_fields"}),
}


def run_variables(verdict: VerdictType | None) -> frozenset[str]:
    """The run variables of a verdict type; those of every type when it is not known."""
    if verdict is None:
        return _ALWAYS.union(*_BY_VERDICT.values())
    return _ALWAYS | _BY_VERDICT.get(verdict, frozenset())
