"""The run arguments that an agent declares, and whether those of a run fit."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import replace

from stepflow.definition.diagnostics import Diagnostics, FileProblems, did_you_mean, listed, shown
from stepflow.definition.file_models import ParameterEntry, ParameterRules
from stepflow.definition.parsing import JsonFault, Pointer, parse_json
from stepflow.domain.definition import AgentDefinition, Parameter
from stepflow.domain.json import JsonObject, JsonValue
from stepflow.domain.problem import Problem
from stepflow.domain.words import VerdictType
from stepflow.engine.patterns import PatternFault, PatternTooSlow, Search, check_pattern


def check_parameters(
    entries: Mapping[str, ParameterEntry], problems: FileProblems, *, reserved: frozenset[str]
) -> tuple[Parameter, ...]:
    """The declared parameters; `reserved` are the names of run variables, which would hide them."""
    parameters: list[Parameter] = []
    flags: dict[str, str] = {}
    for name, entry in entries.items():
        at = Pointer("/parameters") / name
        if not (entry.description or "").strip() and not problems.at(at / "description"):
            message, fix = f'parameter "{name}" has no description', 'Say in "description" what the parameter is for.'
            problems.add("SF208", at, message, fix)
        if entry.required and "default" in entry.model_fields_set:
            state = f"is required and has the default {shown(entry.default)}, so it is never missing"
            problems.add("SF208", at / "default", f'parameter "{name}" {state}', 'Remove "required" or "default".')
        if name in reserved:
            message = f'parameter "{name}" has the name of a run variable, which hides it in prompts'
            problems.add("SF208", at, message, "Give the parameter another name.")
        if entry.cli in flags:
            message = f'the flag "{entry.cli}" is already that of "{flags[entry.cli]}"'
            problems.report("SF207", at / "cli", message, "Give each parameter a flag of its own.")
        elif entry.cli:
            flags[entry.cli] = name
        parameter = _parameter(name, entry)
        _check_rules(parameter, entry, at, problems)
        # A faulty one counts as given, so that its fault is not told of each prompt that uses it.
        parameters.append(replace(parameter, required=True) if problems.at(at) else parameter)
    return tuple(parameters)


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
    if parameter.type in ("number", "array"):
        number = value if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
        if parameter.minimum is not None and not number >= parameter.minimum:
            return f"at least {_as_written(parameter.minimum)}"
        if parameter.maximum is not None and not number <= parameter.maximum:
            return f"at most {_as_written(parameter.maximum)}"
    if parameter.type in ("string", "array") and parameter.pattern is not None:
        try:
            fits = isinstance(value, str) and search(parameter.pattern, value)
        except PatternTooSlow as exc:
            return f"like its pattern, and whether it is cannot be told: {exc}"
        if not fits:
            return f"like the pattern {parameter.pattern}"
    if parameter.enum is not None and not _in(value, parameter.enum):
        return f"one of {', '.join(shown(one) for one in parameter.enum)}"
    return None


def _as_written(number: float) -> str:
    """A bound as its author wrote it: 5, not 5.0."""
    return json.dumps(int(number) if number == int(number) else number)


def _in(value: JsonValue, allowed: tuple[JsonValue, ...]) -> bool:
    """Membership that keeps true apart from 1, as JSON does."""
    return any(value == one and isinstance(value, bool) == isinstance(one, bool) for one in allowed)


def _check_rules(parameter: Parameter, entry: ParameterEntry, at: Pointer, problems: FileProblems) -> None:
    try:
        if parameter.pattern is not None:
            check_pattern(parameter.pattern)
    except PatternFault as exc:
        message = f"the pattern {shown(parameter.pattern)} is no regular expression ({exc})"
        problems.report("SF207", at / "validation" / "pattern", message, "Write a valid regular expression.")
        return
    if "default" not in entry.model_fields_set or not entry.type:
        return
    if not type_fits(entry.default, entry.type):
        message = f"the default {shown(entry.default)} is no {entry.type}"
        problems.report("SF207", at / "default", message, f"Give it a default of the type {entry.type}.")
    elif fault := misfit(parameter, entry.default):
        message = f'the default is {shown(entry.default)}, but "validation" wants it {fault}'
        problems.report("SF207", at / "default", message, 'Change "default" or "validation".')


def _parameter(name: str, entry: ParameterEntry) -> Parameter:
    rules = entry.validation or ParameterRules()
    return Parameter(
        name=name,
        type=entry.type,
        cli=entry.cli,
        description=entry.description or "",
        required=entry.required,
        default=entry.default,
        minimum=rules.min,
        maximum=rules.max,
        pattern=rules.pattern,
        enum=None if rules.enum is None else tuple(rules.enum),
    )


def check_arguments(
    agent: AgentDefinition, given: Mapping[str, JsonValue | str], *, issue: int | None
) -> tuple[JsonObject, tuple[Problem, ...]]:
    """The run's arguments, converted and with defaults, and what is wrong with them.

    Any problem with severity error forbids the run. The issue's number is always the argument `issue`.
    """
    diagnostics = Diagnostics()
    problems = diagnostics.of("agent.json")
    declared = {parameter.name: parameter for parameter in agent.parameters}
    arguments: JsonObject = {}
    for name in given:
        if name not in declared and name != "issue":
            message = f'the argument "{name}" is not declared and is dropped{did_you_mean(name, declared)}'
            problems.add("SF108", "/parameters", message, f"Declare it; declared are {listed(declared)}.")
    for parameter in agent.parameters:
        value = given.get(parameter.name)
        if parameter.name == "issue" and value is None and issue is not None:
            value = str(issue) if parameter.type == "string" else issue
        _assign(parameter, value, arguments, problems)
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


def _assign(parameter: Parameter, value: JsonValue, arguments: JsonObject, problems: FileProblems) -> None:
    at = Pointer("/parameters") / parameter.name
    converted = _convert(value, parameter.type)
    if value is None and parameter.default is not None:
        arguments[parameter.name] = parameter.default
    elif value is None and parameter.required:
        message = f'the required argument "{parameter.name}" ({parameter.cli}) is missing'
        problems.add("SF209", at, message, f'Give a value for "{parameter.name}".')
    elif value is not None and (fault := misfit(parameter, converted)):
        message = f'the argument "{parameter.name}" is {shown(value)}, but it must be {fault}'
        problems.add("SF209", at, message, f'Give "{parameter.name}" a value that fits.')
    elif value is not None:
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
            if text.startswith("["):
                return _json_or(text, value)
            return [part.strip() for part in text.split(",")] if text else []


def _json_or(text: str, otherwise: JsonValue) -> JsonValue:
    try:
        return parse_json(text.removeprefix("+")).value
    except JsonFault:
        return otherwise
