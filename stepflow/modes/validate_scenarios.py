"""The problems of an agent's scenarios, which `rehearse` would meet one after the other (cli.md "Scenario files")."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import yaml
from jsonschema import Draft202012Validator

from stepflow.definition.diagnostics import did_you_mean, listed
from stepflow.domain.problem import Problem, Severity
from stepflow.domain.tools import TOOL_SPECS
from stepflow.errors import InputError
from stepflow.model.scenario import Expect, Scenario, ScenarioIssue, ScriptedError, Turn
from stepflow.run.scenarios import ScenarioFault, place_of, read_node, read_scenario, read_scenario_text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from stepflow.domain.json import JsonObject

_TOOLS = {tool.name: Draft202012Validator(tool.input_schema) for tool in TOOL_SPECS}
_ARGUMENTS = {tool.name: tuple(cast("JsonObject", tool.input_schema["properties"])) for tool in TOOL_SPECS}
_KEYS = {key for model in (Scenario, Turn, ScenarioIssue, Expect, ScriptedError) for key in model.model_fields}
#: Kinds of pydantic's errors, and what they are in the table of codes; every other one is SF106.
_CODES = {"yaml": "SF104", "missing": "SF107", "extra_forbidden": "SF108"}
_FIXES = {
    "SF104": "Correct the file; `stepflow schema scenario` prints its form for editors.",
    "SF107": "Write the key with its value.",
    "SF108": "Correct the key, or remove it; `stepflow schema scenario` has all of them.",
    "SF106": "Write what the key takes; `stepflow schema scenario` has its form.",
    "SF210": f"Use one of {listed(_TOOLS)}.",
}


def scenario_problems(folder: Path, root: Path) -> tuple[tuple[Problem, ...], dict[str, str]]:
    """Those of all scenarios of an agent's folder, and the texts of their files by the problems' `file`."""
    problems: list[Problem] = []
    texts: dict[str, str] = {}
    for path in sorted((folder / "scenarios").glob("*.yaml")):
        file = path.relative_to(root).as_posix()
        try:
            texts[file] = read_scenario(path, root=root)
        except InputError as error:
            problems.append(_problem(file, ScenarioFault(line=None, place=(), message=error.message, kind="yaml")))
            continue
        problems += (_problem(file, fault) for fault in _faults(texts[file]))
    return tuple(problems), {problem.file: texts[problem.file] for problem in problems if problem.file in texts}


def _faults(text: str) -> Iterator[ScenarioFault]:
    read = read_scenario_text(text)
    if isinstance(read, tuple):
        yield from read
        return
    empty = tuple(_without_value(text))
    yield from empty
    lines = {fault.line for fault in empty}
    # A key without its value is no wrong argument besides.
    yield from (fault for fault in _tool_faults(read, text) if fault.line not in lines)


def _without_value(text: str) -> Iterator[ScenarioFault]:
    """Keys in braces without a value, as in `{ command }`: YAML makes null of it."""
    waiting = [node for node in (read_node(text),) if node is not None]
    while waiting:
        node = waiting.pop(0)
        match node:
            case yaml.MappingNode():
                for key, value in node.value:
                    if node.flow_style and isinstance(value, yaml.ScalarNode) and value.value == "" and not value.style:
                        message = f'the key "{key.value}" has no value; in braces, write `{key.value}: …`'
                        line = key.start_mark.line + 1
                        yield ScenarioFault(line=line, place=(), message=message, kind="missing")
                waiting += (value for _, value in node.value)
            case yaml.SequenceNode():
                waiting += node.value
            case _:
                pass


def _tool_faults(scenario: Scenario, text: str) -> Iterator[ScenarioFault]:
    calls = (
        ((*(("turns",) if scenario.turns is not None else ("steps", queue)), number, "tools", at), call)
        for queue, turns in scenario.queues().items()
        for number, turn in enumerate(turns)
        for at, call in enumerate(turn.tools)
    )
    for place, call in calls:
        for name, arguments in call.items():
            line = place_of(text, *place)
            if name not in _TOOLS:
                message = f'there is no tool "{name}"{did_you_mean(name, _TOOLS)}'
                yield ScenarioFault(line=line, place=(*place, name), message=message, kind="tool")
                continue
            if message := _wrong_arguments(name, arguments):
                yield ScenarioFault(line=line, place=(*place, name), message=message, kind="arguments")


def _wrong_arguments(name: str, arguments: JsonObject) -> str:
    """What the tool refuses, empty when it takes them. An argument that it does not know is why another is missing."""
    known = _ARGUMENTS[name]
    if unknown := next((key for key in arguments if key not in known), None):
        return f'the tool "{name}" has no argument "{unknown}"{did_you_mean(unknown, known)}; it takes {listed(known)}'
    error = next(_TOOLS[name].iter_errors(arguments), None)
    return f'the tool "{name}" refuses its arguments: {error.message}' if error else ""


def _message(fault: ScenarioFault) -> str:
    match fault.kind:
        case "missing" if fault.place:
            return f'the key "{fault.place[-1]}" is missing'
        case "extra_forbidden":
            return f'there is no key "{fault.place[-1]}"{did_you_mean(str(fault.place[-1]), _KEYS)}'
        case _:
            return fault.message.rstrip(".")


def _problem(file: str, fault: ScenarioFault) -> Problem:
    code = "SF210" if fault.kind == "tool" else _CODES.get(fault.kind, "SF106")
    # What a recorded model did wrong is played as it was; everything else keeps the file from being played.
    severity = Severity.WARNING if fault.kind in ("tool", "arguments") else Severity.ERROR
    return Problem(
        severity=severity,
        code=code,
        file=file,
        path="".join(f"/{part}" for part in fault.place),
        line=fault.line,
        message=f"the scenario: {_message(fault)}",
        fix=_FIXES[code],
    )
