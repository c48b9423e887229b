"""The variables of a step's prompts, and the sentence that says when the work is done."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import assert_never

from stepflow.domain.agent.agent_settings import GitHubSettings, VerdictConfig
from stepflow.domain.agent.definition import AgentDefinition, Gate, Step, StepInput
from stepflow.domain.flow import RunState
from stepflow.domain.json import JsonObject, JsonValue, as_text, compact
from stepflow.domain.run import RunFacts
from stepflow.domain.words import ClosureAction, Intent, VerdictType

#: Characters of a value; a longer one is cut.
LONGEST_VALUE = 50_000
CUT_MARK = "…[cut]"
#: The variables of a system prompt besides the run arguments.
SYSTEM_VARIABLES = ("agent_name", "agent_description", "verdict_criteria", "completion_criteria")


@dataclass(frozen=True, kw_only=True)
class Variables:
    """The variables that a step's prompts may use."""

    #: The supplied values as text. A name that is not in here is not supplied.
    texts: Mapping[str, str]
    #: The same values, unformatted.
    values: Mapping[str, JsonValue] = field(default_factory=dict)
    #: The names that come from the run arguments.
    arguments: frozenset[str] = frozenset()
    #: Which values hide others of the same name, one phrase each.
    hidden: tuple[str, ...] = ()
    #: The required inputs without a value.
    missing_inputs: tuple[str, ...] = ()

    @property
    def scope(self) -> JsonObject:
        """The values that templates look up: each one under its name, and all of them under `uv`."""
        values: JsonObject = {**self.texts, **self.values}
        return {"uv": values, **values}


def step_variables(agent: AgentDefinition, step: Step, facts: RunFacts, state: RunState, limit: int) -> Variables:
    """Return the variables of `step` in the iteration of `state`. `limit` is the run's iteration limit."""
    inputs = step.prompt.inputs if step.prompt else ()
    verdict = describe_verdict(agent, limit)
    now = _Now(agent=agent, step=step, facts=facts, state=state, limit=limit, verdict=verdict)
    readers = {**_RUN_VARIABLES, **_VERDICT_VARIABLES.get(agent.verdict.type, {})}
    layers = (
        ("run variable", {name: read(now) for name, read in readers.items()}),
        ("run argument", facts.args),
        ("extra variable", facts.variables),
        ("input", _input_variables(inputs, state)),
        ("handoff value", _handoff_variables(agent, state)),
    )
    texts, origins, hidden = _merge_layers(layers)
    values = {name: value for _, layer in reversed(layers) for name, value in layer.items() if value is not None}
    return Variables(
        texts=texts,
        values=values,
        arguments=frozenset(name for name, origin in origins.items() if origin == "run argument"),
        hidden=hidden,
        missing_inputs=tuple(entry.name for entry in inputs if entry.required and entry.name not in texts),
    )


def handoff_variable(step_id: str, key: str) -> str:
    """Return the variable that holds a stored value in later steps; only the key's last segment counts."""
    last = key.rpartition(".")[2]
    return f"{re.sub(r'[^A-Za-z0-9_]', '_', step_id)}_{re.sub(r'[^A-Za-z0-9_-]', '_', last)}"


def offered_intents(gate: Gate) -> tuple[Intent, ...]:
    """Return the intents that an answer may declare: the allowed ones, with `abort` only if the schema lists it."""
    allowed = tuple(intent for intent in gate.allowed if intent is not Intent.ABORT)
    return (*allowed, Intent.ABORT) if gate.lists_abort else allowed


def value_text(value: JsonValue) -> str | None:
    """Format a value for a prompt; None if it is not supplied."""
    if value is None:
        return None
    text = as_text(value)
    return text if len(text) <= LONGEST_VALUE else text[:LONGEST_VALUE] + CUT_MARK


@dataclass(frozen=True, kw_only=True)
class _Now:
    """The sources of the run variables."""

    agent: AgentDefinition
    step: Step
    facts: RunFacts
    state: RunState
    limit: int
    verdict: str

    @property
    def config(self) -> VerdictConfig:
        return self.agent.verdict.config


#: Every run variable and how to read it; the loader checks prompts against the names.
_RUN_VARIABLES: dict[str, Callable[[_Now], JsonValue]] = {
    "iteration": lambda now: now.state.iteration,
    "completed_iterations": lambda now: now.state.iteration - 1,
    "max_iterations": lambda now: now.limit,
    "iterations": lambda now: now.limit,
    "remaining": lambda now: now.limit - now.state.iteration,
    "agent_name": lambda now: now.agent.name,
    "agent_description": lambda now: now.agent.description,
    "step_id": lambda now: now.step.id,
    "step_name": lambda now: now.step.name,
    "allowed_intents": lambda now: ", ".join(offered_intents(now.step.gate)) if now.step.gate else "",
    "verdict_criteria": lambda now: now.verdict,
    "completion_criteria": lambda now: now.verdict,
    "repeat_reason": lambda now: now.state.repeat_reason,
    "previous_summary": lambda now: now.state.repeat_reason,
    "repeat_count": lambda now: now.state.repeats,
    "repository": lambda now: now.facts.repository,
}
_VERDICT_VARIABLES: dict[VerdictType, dict[str, Callable[[_Now], JsonValue]]] = {
    VerdictType.COUNT_CHECK: {
        "max_checks": lambda now: now.config.max_checks,
        "check_count": lambda now: now.state.iteration,
    },
    VerdictType.DETECT_KEYWORD: {
        "completion_keyword": lambda now: now.config.verdict_keyword,
        "verdict_keyword": lambda now: now.config.verdict_keyword,
    },
    VerdictType.DETECT_STRUCTURED: {
        "signal_type": lambda now: now.config.signal_type,
        "required_fields": lambda now: compact(now.config.required_fields or []),
    },
}


def run_variable_names(verdict: VerdictType | None) -> frozenset[str]:
    """Return the names of the run variables of a verdict type, or of every type if it is unknown."""
    more = _VERDICT_VARIABLES.values() if verdict is None else [_VERDICT_VARIABLES.get(verdict, {})]
    return frozenset(_RUN_VARIABLES).union(*more)


def _input_variables(inputs: Iterable[StepInput], state: RunState) -> JsonObject:
    values: JsonObject = {}
    for entry in inputs:
        stored = state.handoff.get(entry.step_id, {}).get(entry.key)
        value = entry.default if stored is None else stored
        values[handoff_variable(entry.step_id, entry.key)] = value
        values[entry.name] = value
    return values


def _handoff_variables(agent: AgentDefinition, state: RunState) -> JsonObject:
    named = {
        handoff_variable(step_id, key): value
        for step_id, stored in state.handoff.items()
        for key, value in stored.items()
        if "." not in key  # each value is stored under its last segment too, and that one makes the name
    }
    aliases = {
        alias: state.handoff[step.id].get(key)
        for step in agent.steps.values()
        if step.id in state.handoff
        for alias, key in step.aliases.items()
    }
    return {**aliases, **named}


def _merge_layers(
    layers: Iterable[tuple[str, Mapping[str, JsonValue]]],
) -> tuple[dict[str, str], dict[str, str], tuple[str, ...]]:
    texts: dict[str, str] = {}
    origins: dict[str, str] = {}
    hidden: list[str] = []
    for origin, values in layers:
        for name, value in values.items():
            text = value_text(value)
            if text is None:
                continue
            if name not in texts:
                texts[name], origins[name] = text, origin
            elif texts[name] != text:
                hidden.append(f'"{name}": the {origins[name]} hides the {origin}')
    return texts, origins, tuple(hidden)


OPERATORS = {
    "and": "all of these conditions hold",
    "or": "one of these conditions holds",
    "first": "the first of these conditions holds",
}


def describe_verdict(agent: AgentDefinition, limit: int) -> str:
    """Say when the work is finished."""
    config = agent.verdict.config
    match agent.verdict.type:
        case VerdictType.POLL_STATE:
            return f"The work is done when, at closing, {_describe_wanted_state(agent.github)}."
        case VerdictType.COUNT_ITERATION | VerdictType.COUNT_CHECK as count:
            turns = count is VerdictType.COUNT_ITERATION
            most = f"{limit} iterations are available" if turns else f"{config.max_checks} answers are taken"
            return f"At most {most}; the work must be finished within them."
        case VerdictType.DETECT_GRAPH:
            return "The work is done when a closing step answers `closing` and all its validators pass."
        case VerdictType.META_COMPOSITE:
            return _describe_composite(config)
        case VerdictType.DETECT_KEYWORD | VerdictType.DETECT_STRUCTURED as simple:
            return f"The work is done when {_describe_condition(simple, config)}."
        case other:
            assert_never(other)


def _describe_wanted_state(github: GitHubSettings) -> str:
    if not github.enabled:
        return "everything the issue asks for is in place (this agent itself changes nothing on the issue)"
    labels = _describe_labels(github)
    match github.default_closure_action or ClosureAction.CLOSE:
        case ClosureAction.CLOSE:
            return "the issue can be closed"
        case ClosureAction.LABEL_ONLY:
            return f"the issue can be given its completion labels{labels}; it stays open"
        case ClosureAction.LABEL_AND_CLOSE:
            return f"the issue can be given its completion labels{labels} and be closed"
        case other:
            assert_never(other)


def _describe_labels(github: GitHubSettings) -> str:
    labels = github.labels.completion
    parts = [f"{verb} {', '.join(names)}" for verb, names in (("add", labels.add), ("remove", labels.remove)) if names]
    return f" ({'; '.join(parts)})" if parts else ""


def _describe_composite(config: VerdictConfig) -> str:
    listed = (_describe_condition(part.type, part.config or VerdictConfig()) for part in config.conditions or ())
    numbered = "; ".join(f"({number}) {text}" for number, text in enumerate(listed, start=1))
    return f"The work is done when {OPERATORS[config.operator or 'and']}: {numbered}."


def _describe_condition(kind: str, config: VerdictConfig) -> str:
    match kind:
        case VerdictType.COUNT_ITERATION:
            return f"{config.max_iterations} iterations have run"
        case VerdictType.COUNT_CHECK:
            return f"{config.max_checks} answers have been taken"
        case VerdictType.DETECT_KEYWORD:
            return f"an answer contains the completion word `{config.verdict_keyword}`"
        case VerdictType.DETECT_STRUCTURED:
            return f"an answer gives the signal `{config.signal_type}`{_describe_fields(config.required_fields)}"
        case _:
            return kind


def _describe_fields(required: JsonValue) -> str:
    match required:
        case dict() as wanted if wanted:
            return f" with exactly these values: {compact(wanted)}"
        case list() as names if names:
            return f" with the fields {', '.join(str(name) for name in names)}"
        case _:
            return ""


def system_names(parameters: Iterable[str]) -> frozenset[str]:
    """Return the variables that a system prompt may use: those that are the same in every step of a run."""
    return frozenset({*SYSTEM_VARIABLES, "issue", *parameters})
