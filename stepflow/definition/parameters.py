"""The run arguments that an agent declares, and whether those of a run fit."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping

from stepflow.definition.diagnostics import Diagnostics, FileProblems, did_you_mean, listed, shown
from stepflow.definition.parsing import JsonFault, Pointer, parse_json
from stepflow.domain.agent_settings import Parameter, ParameterRules
from stepflow.domain.definition import AgentDefinition
from stepflow.domain.json import JsonObject, JsonValue
from stepflow.domain.problem import Problem
from stepflow.domain.words import VerdictType
from stepflow.engine.patterns import PatternFault, PatternTooSlow, Search, check_pattern

_PARAMETERS = Pointer("/parameters")


def check_parameters(
    parameters: Mapping[str, Parameter], problems: FileProblems, *, reserved: frozenset[str]
) -> dict[str, Parameter]:
    """The declared parameters; `reserved` are the names of run variables, which would hide them."""
    flags: dict[str, str] = {}
    for name, parameter in parameters.items():
        at = _PARAMETERS / name
        if not (parameter.description or "").strip() and not problems.at(at / "description"):
            message, fix = f'parameter "{name}" has no description', 'Say in "description" what the parameter is for.'
            problems.add("SF208", at, message, fix)
        if parameter.required and "default" in parameter.model_fields_set:
            state = f"is required and has the default {shown(parameter.default)}, so it is never missing"
            problems.add("SF208", at / "default", f'parameter "{name}" {state}', 'Remove "required" or "default".')
        if name in reserved:
            message = f'parameter "{name}" has the name of a run variable, which hides it in prompts'
            problems.add("SF208", at, message, "Give the parameter another name.")
        if parameter.cli in flags:
            message = f'the flag "{parameter.cli}" is already that of "{flags[parameter.cli]}"'
            problems.report("SF207", at / "cli", message, "Give each parameter a flag of its own.")
        elif parameter.cli:
            flags[parameter.cli] = name
        _check_rules(parameter, at, problems)
    # A faulty one counts as given, so that its fault is not reported for each prompt that uses it.
    return {
        name: parameter.model_copy(update={"required": True}) if problems.at(_PARAMETERS / name) else parameter
        for name, parameter in parameters.items()
    }


_TYPES: dict[str, tuple[type, ...]] = {"string": (str,), "number": (int, float), "boolean": (bool,), "array": (list,)}


def type_fits(value: JsonValue, kind: str) -> bool:
    """True when a value has a declared type; a boolean is no number."""
    return isinstance(value, _TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))


def misfit(parameter: Parameter, value: JsonValue) -> str | None:
    """What the value must be and is not; None when it fits. Of a list every item must fit."""
    if not type_fits(value, parameter.type):
        return f"of the type {parameter.type}"
    search = Search()
    if not isinstance(value, list):
        return _item_misfit(parameter, value, search)
    faults = (_item_misfit(parameter, item, search) for item in value)
    return next((f"a list of which each item is {fault}" for fault in faults if fault), None)


def _item_misfit(parameter: Parameter, value: JsonValue, search: Search) -> str | None:
    rules = parameter.validation or ParameterRules()
    if parameter.type in ("number", "array"):
        number = value if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
        if rules.min is not None and not number >= rules.min:
            return f"at least {_as_written(rules.min)}"
        if rules.max is not None and not number <= rules.max:
            return f"at most {_as_written(rules.max)}"
    if parameter.type in ("string", "array") and rules.pattern is not None:
        try:
            fits = isinstance(value, str) and search(rules.pattern, value)
        except PatternTooSlow as exc:
            return f"like its pattern, and whether it is cannot be told: {exc}"
        if not fits:
            return f"like the pattern {rules.pattern}"
    if rules.enum is not None and not _in(value, rules.enum):
        return f"one of {', '.join(shown(one) for one in rules.enum)}"
    return None


def _as_written(number: float) -> str:
    """A bound as its author wrote it: 5, not 5.0."""
    return json.dumps(int(number) if number == int(number) else number)


def _in(value: JsonValue, allowed: tuple[JsonValue, ...]) -> bool:
    """Membership that keeps true apart from 1, as JSON does."""
    return any(value == one and isinstance(value, bool) == isinstance(one, bool) for one in allowed)


def _check_rules(parameter: Parameter, at: Pointer, problems: FileProblems) -> None:
    pattern = parameter.validation.pattern if parameter.validation else None
    try:
        if pattern is not None:
            check_pattern(pattern)
    except PatternFault as exc:
        message = f"the pattern {shown(pattern)} is no regular expression ({exc})"
        problems.report("SF207", at / "validation" / "pattern", message, "Write a valid regular expression.")
        return
    if "default" not in parameter.model_fields_set or not parameter.type:
        return
    if not type_fits(parameter.default, parameter.type):
        message = f"the default {shown(parameter.default)} is no {parameter.type}"
        problems.report("SF207", at / "default", message, f"Give it a default of the type {parameter.type}.")
    elif fault := misfit(parameter, parameter.default):
        message = f'the default is {shown(parameter.default)}, but "validation" wants it {fault}'
        problems.report("SF207", at / "default", message, 'Change "default" or "validation".')


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
            problems.add("SF108", "/parameters", message, f"Declare it; declared are {listed(declared)}.")
    for name, parameter in declared.items():
        value = given.get(name)
        if name == "issue" and value is None and issue is not None:
            value = str(issue) if parameter.type == "string" else issue
        _assign(name, parameter, value, arguments, problems)
    named = _convert(given.get("issue"), "number")
    if issue is not None and named is not None and named != issue:
        message = f'the argument "issue" is {shown(named)}, but the run is about issue {issue}'
        problems.add("SF209", "/parameters", message, 'Leave the argument "issue" out: the run knows its issue.')
    if issue is None and agent.verdict.type is VerdictType.POLL_STATE:
        message = 'the verdict type "poll:state" needs an issue, and this run has none'
        problems.add("SF209", "/runner/verdict/type", message, "Start the run for an issue.")
    if issue is not None:
        arguments.setdefault("issue", issue)
    elif named is not None:
        arguments.setdefault("issue", named)
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
        message = f'the argument "{name}" is {shown(value)}, but it must be {fault}'
        problems.add("SF209", at, message, f'Give "{name}" a value that fits.')
    elif value is not None:
        arguments[name] = converted


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
            if text.startswith("["):
                return _json_or(text, value)
            return [part.strip() for part in text.split(",")] if text else []


def _json_or(text: str, otherwise: JsonValue) -> JsonValue:
    try:
        return parse_json(text.removeprefix("+")).value
    except JsonFault:
        return otherwise
