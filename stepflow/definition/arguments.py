"""Do the run's arguments fit the agent's parameters (registry.md §2.3)?

Takes: a loaded agent and the values given. Gives: the arguments of the run, and problems SF209 and SF108.
May touch: nothing.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from stepflow.definition.findings import Findings, did_you_mean, listed, shown
from stepflow.definition.json_text import JsonFault, child, parse_json
from stepflow.definition.parameters import misfit
from stepflow.domain.problem import Severity
from stepflow.domain.words import VerdictType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepflow.definition.findings import FileFindings
    from stepflow.domain.definition import AgentDefinition
    from stepflow.domain.json import JsonObject, JsonValue
    from stepflow.domain.parameter import Parameter
    from stepflow.domain.problem import Problem


def check_arguments(
    agent: AgentDefinition, given: Mapping[str, JsonValue | str], *, issue: int | None
) -> tuple[JsonObject, tuple[Problem, ...]]:
    """The run's arguments, converted and with defaults, and what is wrong with them.

    Any problem with severity error forbids the run. The issue's number is always the argument `issue`.
    """
    findings = Findings()
    found = findings.of("agent.json")
    declared = {parameter.name: parameter for parameter in agent.parameters}
    arguments: JsonObject = {}
    for name in given:
        if name not in declared and name != "issue":
            message = f'the argument "{name}" is not declared and is dropped{did_you_mean(name, declared)}'
            found.add("SF108", "/parameters", message, f"Declare it; declared are {listed(declared)}.")
    for parameter in agent.parameters:
        _take(parameter, _value_of(parameter, given, issue), arguments, found)
    _take_issue(agent, given, issue, arguments, found)
    return arguments, findings.problems(prefix=agent.folder)


def _value_of(parameter: Parameter, given: Mapping[str, JsonValue | str], issue: int | None) -> JsonValue:
    value = given.get(parameter.name)
    if parameter.name != "issue" or value is not None or issue is None:
        return value
    return str(issue) if parameter.type == "string" else issue


def _take(parameter: Parameter, value: JsonValue, arguments: JsonObject, found: FileFindings) -> None:
    at = child("/parameters", parameter.name)
    if value is None and parameter.default is not None:
        arguments[parameter.name] = parameter.default
        return
    if value is None:
        if parameter.required:
            message = f'the required argument "{parameter.name}" ({parameter.cli}) is missing'
            found.add("SF209", at, message, f'Give a value for "{parameter.name}".')
        return
    converted = _convert(value, parameter.type)
    fault = misfit(parameter, converted)
    if fault:
        message = f'the argument "{parameter.name}" is {shown(value)}, but it must be {fault}'
        found.add("SF209", at, message, f'Give "{parameter.name}" a value that fits.')
        return
    arguments[parameter.name] = converted


def _convert(value: JsonValue, kind: str) -> JsonValue:
    """A text as the declared type; unchanged when it cannot be read as that."""
    if not isinstance(value, str) or kind == "string":
        return value
    text = value.strip()
    match kind:
        case "number":
            return _json_or(text, value) if re.fullmatch(r"[+-]?[0-9.eE+-]+", text) else value
        case "boolean":
            return {"true": True, "false": False}.get(text.lower(), value)
        case _:
            return _json_or(text, value) if text.startswith("[") else [part.strip() for part in _parts(text)]


def _json_or(text: str, otherwise: JsonValue) -> JsonValue:
    try:
        return parse_json(text.removeprefix("+")).value
    except JsonFault:
        return otherwise


def _parts(text: str) -> list[str]:
    return text.split(",") if text else []


def _take_issue(
    agent: AgentDefinition,
    given: Mapping[str, JsonValue | str],
    issue: int | None,
    arguments: JsonObject,
    found: FileFindings,
) -> None:
    named = _convert(given.get("issue"), "number")
    if issue is not None and named is not None and named != issue:
        message = f'the argument "issue" is {shown(named)}, but the run is about issue {issue}'
        found.add("SF209", "/parameters", message, 'Leave the argument "issue" out: the run knows its issue.')
    if issue is None and agent.verdict.type is VerdictType.POLL_STATE:
        message = 'the verdict type "poll:state" needs an issue, and this run has none'
        found.add("SF209", "/runner/verdict/type", message, "Start the run for an issue.", severity=Severity.ERROR)
    if issue is not None:
        arguments.setdefault("issue", issue)
    elif named is not None:
        arguments.setdefault("issue", named)
