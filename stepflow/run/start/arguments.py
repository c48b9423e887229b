"""The arguments of a run, held against the parameters that its agent declares (definition.md §2.3)."""

from __future__ import annotations

import re
from collections.abc import Mapping

from stepflow.definition.agent import misfit
from stepflow.definition.diagnostics import Diagnostics, FileProblems, did_you_mean, format_value, list_words
from stepflow.definition.parsing import JsonFault, Pointer, parse_json
from stepflow.domain.agent.agent_settings import Parameter
from stepflow.domain.agent.definition import AgentDefinition
from stepflow.domain.json import JsonObject, JsonValue
from stepflow.domain.words import VerdictType
from stepflow.errors import Problem

_PARAMETERS = Pointer("/parameters")


def check_arguments(
    agent: AgentDefinition, given: Mapping[str, JsonValue | str], *, issue: int | None
) -> tuple[JsonObject, tuple[Problem, ...]]:
    """The run's arguments, converted and with defaults, and what is wrong with them.

    Any problem with severity error forbids the run. The issue's number is always the argument `issue`.
    """
    diagnostics = Diagnostics()
    problems = diagnostics.of("agent.json")
    declared = agent.parameters
    arguments: JsonObject = {}
    for name in given:
        if name not in declared and name != "issue":
            message = f'the argument "{name}" is not declared and is dropped{did_you_mean(name, declared)}'
            problems.add("SF108", "/parameters", message, f"Declare it; declared are {list_words(declared)}.")
    for name, parameter in declared.items():
        value = given.get(name)
        if name == "issue" and value is None and issue is not None:
            value = str(issue) if parameter.type == "string" else issue
        _assign(name, parameter, value, arguments, problems)
    named = _convert(given.get("issue"), "number")
    if issue is not None and named not in (None, issue):
        message = f'the argument "issue" is {format_value(named)}, but the run is about issue {issue}'
        problems.add("SF209", "/parameters", message, 'Leave the argument "issue" out: the run knows its issue.')
    if issue is None and agent.verdict.type is VerdictType.POLL_STATE:
        message = 'the verdict type "poll:state" needs an issue, and this run has none'
        problems.add("SF209", "/runner/verdict/type", message, "Start the run for an issue.")
    if issue is not None or named is not None:
        arguments.setdefault("issue", named if issue is None else issue)
    return arguments, diagnostics.inspection(prefix=agent.folder, texts={}).problems


def _assign(name: str, parameter: Parameter, value: JsonValue, arguments: JsonObject, problems: FileProblems) -> None:
    at = _PARAMETERS / name
    converted = _convert(value, parameter.type)
    if value is None and parameter.default is not None:
        arguments[name] = parameter.default
    elif value is None and parameter.required:
        message = f'the required argument "{name}" ({parameter.cli}) is missing'
        problems.add("SF209", at, message, f'Give a value for "{name}".')
    elif value is not None and (fault := misfit(parameter, converted)):
        message = f'the argument "{name}" is {format_value(value)}, but it must be {fault}'
        problems.add("SF209", at, message, f'Give "{name}" a value that fits.')
    elif value is not None:
        arguments[name] = converted


def _convert(value: JsonValue, kind: str) -> JsonValue:
    """Convert a string to the declared type; return it unchanged when that fails."""
    if not isinstance(value, str) or kind == "string":
        return value
    text = value.strip()
    match kind:
        case "number":
            return _json_or(text, value) if re.fullmatch(r"[+-]?[0-9.eE+-]+", text) else value
        case "boolean":
            return {"true": True, "false": False}.get(text.lower(), value)
        case _:
            if text.startswith("["):
                return _json_or(text, value)
            return [part.strip() for part in text.split(",")] if text else []


def _json_or(text: str, otherwise: JsonValue) -> JsonValue:
    try:
        return parse_json(text.removeprefix("+"))
    except JsonFault:
        return otherwise
