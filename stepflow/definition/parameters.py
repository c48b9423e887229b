"""The run arguments that an agent declares (registry.md §2.3).

Takes: `parameters` as models. Gives: `Parameter` objects, problems SF207 and SF208, and the check of one value.
May touch: nothing.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

from stepflow.definition.findings import shown
from stepflow.definition.json_text import child
from stepflow.domain.parameter import Parameter
from stepflow.patterns import PatternFault, PatternTooSlow, Search, check_pattern

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepflow.definition.agent_file import ParameterEntry, ParameterRules
    from stepflow.definition.findings import FileFindings
    from stepflow.domain.json import JsonValue


def check_parameters(
    entries: Mapping[str, ParameterEntry], found: FileFindings, *, reserved: frozenset[str]
) -> tuple[Parameter, ...]:
    """The declared parameters; `reserved` are the names of run variables, which would hide them."""
    flags: dict[str, str] = {}
    for name, entry in entries.items():
        at = child("/parameters", name)
        _check_style(name, entry, at, found, reserved)
        _check_flag(name, entry, at, found, flags)
        _check_rules(name, entry, at, found)
    return tuple(_parameter(name, entry) for name, entry in entries.items() if entry.type and entry.cli)


def type_fits(value: JsonValue, kind: str) -> bool:
    """True when a value has a declared type; a boolean is no number."""
    match kind:
        case "string":
            return isinstance(value, str)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "boolean":
            return isinstance(value, bool)
        case _:
            return isinstance(value, list)


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


def _check_style(name: str, entry: ParameterEntry, at: str, found: FileFindings, reserved: frozenset[str]) -> None:
    if not (entry.description or "").strip() and not found.at(child(at, "description")):
        message = f'parameter "{name}" has no description'
        found.add("SF208", at, message, 'Say in "description" what the parameter is for.')
    if entry.required and "default" in entry.model_fields_set:
        message = f'parameter "{name}" is required and has the default {shown(entry.default)}, so it is never missing'
        found.add("SF208", child(at, "default"), message, 'Remove "required" or "default".')
    if name in reserved:
        message = f'parameter "{name}" has the name of a run variable, which hides it in prompts'
        found.add("SF208", at, message, "Give the parameter another name.")


def _check_flag(name: str, entry: ParameterEntry, at: str, found: FileFindings, flags: dict[str, str]) -> None:
    if entry.cli is None:
        return
    if entry.cli in flags:
        message = f'parameter "{name}": the flag "{entry.cli}" is already that of "{flags[entry.cli]}"'
        found.add("SF207", child(at, "cli"), message, "Give each parameter a flag of its own.")
    flags.setdefault(entry.cli, name)


def _check_rules(name: str, entry: ParameterEntry, at: str, found: FileFindings) -> None:
    pattern = entry.validation.pattern if entry.validation else None
    try:
        if pattern is not None:
            check_pattern(pattern)
    except PatternFault as exc:
        message = f'parameter "{name}": the pattern {shown(pattern)} is no regular expression ({exc})'
        found.add("SF207", f"{at}/validation/pattern", message, "Write a valid regular expression.")
        return
    if "default" not in entry.model_fields_set or not entry.type:
        return
    if not type_fits(entry.default, entry.type):
        message = f'parameter "{name}": the default {shown(entry.default)} is no {entry.type}'
        found.add("SF207", child(at, "default"), message, f"Give it a default of the type {entry.type}.")
    elif fault := misfit(_parameter(name, entry), entry.default):
        message = f'parameter "{name}": the default is {shown(entry.default)}, but "validation" wants it {fault}'
        found.add("SF207", child(at, "default"), message, 'Change "default" or "validation".')


def _parameter(name: str, entry: ParameterEntry) -> Parameter:
    rules = entry.validation
    return Parameter(
        name=name,
        type=entry.type or "",
        cli=entry.cli or "",
        description=entry.description or "",
        required=entry.required,
        default=entry.default,
        minimum=rules.min if rules else None,
        maximum=rules.max if rules else None,
        pattern=rules.pattern if rules else None,
        enum=_enum(rules),
    )


def _enum(rules: ParameterRules | None) -> tuple[JsonValue, ...] | None:
    return tuple(rules.enum) if rules and rules.enum is not None else None
