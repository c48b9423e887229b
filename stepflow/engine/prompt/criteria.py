"""When the work is done, in a sentence (prompts.md §4, table of verdict types).

Takes: the agent and the run's iteration limit. Gives: the text of `verdict_criteria`.
May touch: nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from stepflow.domain.json import JsonObject, JsonValue, compact
from stepflow.domain.words import ClosureAction, VerdictType

if TYPE_CHECKING:
    from stepflow.domain.definition import AgentDefinition, GitHubSettings

OPERATORS = {
    "and": "all of these conditions hold",
    "or": "one of these conditions holds",
    "first": "the first of these conditions holds",
}


def describe_verdict(agent: AgentDefinition, limit: int, *, handler_says: str = "") -> str:
    """What must be so for the work to be finished. `handler_says` is a custom handler's own sentence."""
    config = agent.verdict.config
    match agent.verdict.type:
        case VerdictType.POLL_STATE:
            return f"The work is done when, at closing, {_wanted_state(agent.github)}."
        case VerdictType.COUNT_ITERATION | VerdictType.COUNT_CHECK as count:
            turns = count is VerdictType.COUNT_ITERATION
            most = f"{limit} iterations are available" if turns else f"{config.get('maxChecks')} answers are taken"
            return f"At most {most}; the work must be finished within them."
        case VerdictType.DETECT_GRAPH:
            return "The work is done when a closing step answers `closing` and all its validators pass."
        case VerdictType.META_COMPOSITE:
            return _composite(config)
        case VerdictType.META_CUSTOM:
            return handler_says or "The agent's own completion handler decides when the work is done."
        case VerdictType.DETECT_KEYWORD | VerdictType.DETECT_STRUCTURED as simple:
            return f"The work is done when {_condition(simple, config)}."
        case other:
            assert_never(other)


def _wanted_state(github: GitHubSettings) -> str:
    if not github.enabled:
        return "everything the issue asks for is in place (this agent itself changes nothing on the issue)"
    labels = _labels(github)
    match github.closure_action or ClosureAction.CLOSE:
        case ClosureAction.CLOSE:
            return "the issue can be closed"
        case ClosureAction.LABEL_ONLY:
            return f"the issue can be given its completion labels{labels}; it stays open"
        case ClosureAction.LABEL_AND_CLOSE:
            return f"the issue can be given its completion labels{labels} and be closed"
        case other:
            assert_never(other)


def _labels(github: GitHubSettings) -> str:
    parts = [
        f"{verb} {', '.join(names)}"
        for verb, names in (("add", github.labels_add), ("remove", github.labels_remove))
        if names
    ]
    return f" ({'; '.join(parts)})" if parts else ""


def _composite(config: JsonObject) -> str:
    conditions = config.get("conditions")
    listed = [_child(entry) for entry in conditions] if isinstance(conditions, list) else []
    operator = OPERATORS.get(str(config.get("operator")), OPERATORS["and"])
    numbered = "; ".join(f"({number}) {text}" for number, text in enumerate(listed, start=1))
    return f"The work is done when {operator}: {numbered}."


def _child(entry: JsonValue) -> str:
    if not isinstance(entry, dict):
        return str(entry)
    config = entry.get("config")
    return _condition(str(entry.get("type")), config if isinstance(config, dict) else {})


def _condition(kind: str, config: JsonObject) -> str:
    match kind:
        case VerdictType.COUNT_ITERATION:
            return f"{config.get('maxIterations')} iterations have run"
        case VerdictType.COUNT_CHECK:
            return f"{config.get('maxChecks')} answers have been taken"
        case VerdictType.DETECT_KEYWORD:
            return f"an answer contains the completion word `{config.get('verdictKeyword')}`"
        case VerdictType.DETECT_STRUCTURED:
            return f"an answer gives the signal `{config.get('signalType')}`{_fields(config)}"
        case _:
            return kind


def _fields(config: JsonObject) -> str:
    match config.get("requiredFields"):
        case dict() as wanted if wanted:
            return f" with exactly these values: {compact(wanted)}"
        case list() as names if names:
            return f" with the fields {', '.join(str(name) for name in names)}"
        case _:
            return ""
