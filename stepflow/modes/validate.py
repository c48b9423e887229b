"""Validates agents, for the action and for a person at a terminal."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import yaml
from jsonschema import Draft202012Validator

from stepflow.definition.diagnostics import closest_match, did_you_mean, file_below, hint, list_words
from stepflow.definition.folder import FileRefused, find_folders, read_below, text_of, where_else
from stepflow.definition.loading import LoadOptions, inspect_agent
from stepflow.definition.rule_of_two import Circumstances
from stepflow.domain.agent.agent_settings import MCP_PREFIX, TOOL_SPECS
from stepflow.domain.agent.definition import Inspection
from stepflow.domain.json import JsonObject
from stepflow.errors import InputError, Problem, Severity
from stepflow.model.scenario import Expect, Scenario, ScenarioIssue, ScriptedError, Turn
from stepflow.modes.eval.cases import EVALS, CaseIssue, EvalCase
from stepflow.run.scenarios import MAX_BYTES, FileFault, place_of, read_node, read_yaml_text


@dataclass(frozen=True, kw_only=True)
class Checked:
    """The validated agents, by the requested name or path."""

    inspections: Mapping[str, Inspection]

    @property
    def problems(self) -> tuple[Problem, ...]:
        """All problems of all agents."""
        return tuple(problem for inspection in self.inspections.values() for problem in inspection.problems)

    @property
    def failed(self) -> bool:
        """Whether any agent cannot run."""
        return any(problem.severity is Severity.ERROR for problem in self.problems)


def check_agents(
    names: Sequence[str],
    root: Path,
    *,
    allow_spec_violations: bool = False,
    programs: Collection[str] | None = None,
    private: bool | None = None,
    strict: bool = False,
) -> Checked:
    """Validate the named agents, or all agents below `.agent`. `programs` are the machine's, if the agents will run on
    it. `private` says whether the repository is; None if that is unknown. With `strict`, a warning is an error. Raise
    `InputError` if there is no agent."""
    agents = tuple(names) or find_folders(root)
    if not agents:
        raise InputError(f"There is no agent under {root / '.agent'}.", hint=where_else(root))
    options = LoadOptions(
        allow_spec_violations=allow_spec_violations,
        programs=programs,
        demand_checks=True,
        circumstances=Circumstances(private=private),
    )
    checked = {agent: _with_yaml_files(inspect_agent(agent, root=root, **options)) for agent in agents}
    return Checked(inspections={agent: _strictly(each) for agent, each in checked.items()} if strict else checked)


def _strictly(inspection: Inspection) -> Inspection:
    problems = (
        replace(each, severity=Severity.ERROR) if each.severity is Severity.WARNING else each
        for each in inspection.problems
    )
    return replace(inspection, problems=tuple(problems))


def programs_in(folders: Iterable[Path]) -> frozenset[str]:
    """Return the names of all programs in these folders of a PATH."""
    there = (folder for folder in folders if folder.is_dir() and os.access(folder, os.R_OK))
    return frozenset(file.name for folder in there for file in folder.iterdir() if os.access(file, os.X_OK))


def _with_yaml_files(inspection: Inspection) -> Inspection:
    if inspection.folder is None:
        return inspection
    folder, problems, texts = Path(inspection.folder), list(inspection.problems), dict(inspection.texts)
    for kind in (_scenarios_of(inspection.mcp_tools), CASES):
        more, of_files = file_problems(folder, inspection.prefix, kind)
        problems += more
        texts |= of_files
    return replace(inspection, problems=tuple(problems), texts=texts)


def from_above(problems: Sequence[Problem], root: Path, top: Path) -> tuple[Problem, ...]:
    """Return the problems with paths relative to a folder above the validated one."""
    below = root.relative_to(top).as_posix()
    return (
        tuple(problems)
        if below == "."
        else tuple(replace(problem, file=f"{below}/{problem.file}") for problem in problems)
    )


def repository_above(root: Path) -> Path:
    """Return the root of the repository that contains a folder, or the folder itself if it is not in a repository."""
    return next((folder for folder in (root, *root.parents) if (folder / ".git").exists()), root)


_TOOLS = {tool.name: Draft202012Validator(tool.input_schema) for tool in TOOL_SPECS}
_ARGUMENTS = {tool.name: tuple(cast("JsonObject", tool.input_schema["properties"])) for tool in TOOL_SPECS}
_KEYS = frozenset(key for model in (Scenario, Turn, ScenarioIssue, Expect, ScriptedError) for key in model.model_fields)
#: Types of pydantic's errors and their codes. Any other type is SF106.
_UNKNOWN = "extra_forbidden"
_CODES = {"yaml": "SF104", "missing": "SF107", _UNKNOWN: "SF108"}
_FIXES = {
    "SF104": "Correct the file; `stepflow schema {format}` prints its form for editors.",
    "SF107": "Write the key with its value.",
    "SF108": "Correct the key, or remove it; `stepflow schema {format}` has all of them.",
    "SF106": "Write what the key takes; `stepflow schema {format}` has its form.",
    "SF210": f"Use one of {list_words(_TOOLS)}, or a tool of an MCP server that the agent's lock has.",
}


@dataclass(frozen=True, kw_only=True)
class FileKind:
    """A kind of YAML files in an agent's folder: the folder, what messages call a file, the name of its published
    schema, its keys, and what returns the problems of a text."""

    folder: str
    noun: str
    format: str
    keys: frozenset[str]
    find_faults: Callable[[str], Iterable[FileFault]]


def _scenarios_of(mcp_tools: Collection[str] | None) -> FileKind:
    """The arguments of `mcp_tools` are not checked, because their servers define them. None stands for any."""
    return FileKind(
        folder="scenarios",
        noun="scenario",
        format="scenario",
        keys=_KEYS,
        find_faults=lambda text: _faults(text, mcp_tools),
    )


def _case_faults(text: str) -> tuple[FileFault, ...]:
    read = read_yaml_text(text, EvalCase)
    return read if isinstance(read, tuple) else ()


CASES = FileKind(
    folder=EVALS,
    noun="case",
    format="eval",
    keys=frozenset((*EvalCase.model_fields, *CaseIssue.model_fields)),
    find_faults=_case_faults,
)


def file_problems(folder: Path, prefix: str, kind: FileKind) -> tuple[tuple[Problem, ...], dict[str, str]]:
    """Return the problems of all files of a kind in an agent's folder, with file names below `prefix`, and the texts of
    these files by the problems' `file`."""
    problems: list[Problem] = []
    texts: dict[str, str] = {}
    for path in sorted((folder / kind.folder).glob("*.yaml")):
        file = file_below(prefix, f"{kind.folder}/{path.name}")
        try:
            texts[file] = text_of(read_below(folder, f"{kind.folder}/{path.name}", limit=MAX_BYTES))
        except FileRefused as refused:
            fault = FileFault(line=None, place=(), message=refused.message, kind="yaml")
            message = f"the {kind.noun} {refused.message}"
            code = "SF109" if refused.unsafe else "SF104"
            problems.append(replace(_problem(file, fault, kind), code=code, message=message, fix=refused.fix))
            continue
        faults = [*kind.find_faults(texts[file])]
        misspelled = {(*fault.place[:-1], _near(fault, kind)) for fault in faults if fault.kind == _UNKNOWN}
        problems += (
            _problem(file, fault, kind) for fault in faults if fault.kind != "missing" or fault.place not in misspelled
        )
    return tuple(problems), {problem.file: texts[problem.file] for problem in problems if problem.file in texts}


def _faults(text: str, mcp_tools: Collection[str] | None) -> Iterator[FileFault]:
    read = read_yaml_text(text, Scenario)
    if isinstance(read, tuple):
        yield from read
        return
    empty = tuple(_without_value(text))
    yield from empty
    lines = {fault.line for fault in empty}
    # A key without a value is reported only once, and not also as a wrong argument.
    yield from (fault for fault in _tool_faults(read, text, mcp_tools) if fault.line not in lines)


def _without_value(text: str) -> Iterator[FileFault]:
    """Yield keys in braces without a value, as in `{ command }`, which YAML reads as null."""
    waiting = [node for node in (read_node(text),) if node is not None]
    while waiting:
        node = waiting.pop(0)
        match node:
            case yaml.MappingNode():
                for key, value in node.value:
                    if node.flow_style and isinstance(value, yaml.ScalarNode) and value.value == "" and not value.style:
                        message = f'the key "{key.value}" has no value; in braces, write `{key.value}: …`'
                        line = key.start_mark.line + 1
                        yield FileFault(line=line, place=(), message=message, kind="missing")
                waiting += (value for _, value in node.value)
            case yaml.SequenceNode():
                waiting += node.value
            case _:
                pass


def _tool_faults(scenario: Scenario, text: str, mcp_tools: Collection[str] | None) -> Iterator[FileFault]:
    calls = (
        ((*(("turns",) if scenario.turns is not None else ("steps", queue)), number, "tools", at), call)
        for queue, turns in scenario.queues().items()
        for number, turn in enumerate(turns)
        for at, call in enumerate(turn.tools)
    )
    for place, call in calls:
        for name, arguments in call.items():
            is_mcp = name.startswith(MCP_PREFIX) if mcp_tools is None else name in mcp_tools
            if not is_mcp:
                yield from _call_faults(name, arguments, place, text, known_tools=(*_TOOLS, *(mcp_tools or ())))


def _call_faults(
    name: str, arguments: JsonObject, place: tuple[int | str, ...], text: str, *, known_tools: Collection[str]
) -> Iterator[FileFault]:
    """Yield what a tool rejects. A missing argument is not reported after an unknown one, which is probably the same
    argument misspelled."""

    def fault(kind: str, message: str, *argument: str) -> FileFault:
        at = (*place, name, *argument)
        return FileFault(line=place_of(text, *at), place=at, message=message, kind=kind)

    known = _ARGUMENTS.get(name, ())
    if name not in _TOOLS:
        yield fault("tool", f'there is no tool "{name}"{did_you_mean(name, known_tools)}')
    elif unknown := next((key for key in arguments if key not in known), None):
        near = did_you_mean(unknown, known)
        message = f'the tool "{name}" has no argument "{unknown}"{near}; it takes {list_words(known)}'
        yield fault("arguments", message, unknown)
    elif error := next(_TOOLS[name].iter_errors(arguments), None):
        yield fault("arguments", f'the tool "{name}" refuses its arguments: {error.message}')


def _near(fault: FileFault, kind: FileKind) -> str | None:
    """Return the closest known key, if one is similar."""
    return closest_match(str(fault.place[-1]), kind.keys)


def _message(fault: FileFault, kind: FileKind) -> str:
    match fault.kind:
        case "missing" if fault.place:
            return f'the key "{fault.place[-1]}" is missing'
        case _ if fault.kind == _UNKNOWN:
            return f'there is no key "{fault.place[-1]}"{hint(_near(fault, kind))}'
        case _:
            return fault.message.rstrip(".")


def _problem(file: str, fault: FileFault, kind: FileKind) -> Problem:
    code = "SF210" if fault.kind == "tool" else _CODES.get(fault.kind, "SF106")
    # A recorded model's wrong call is played as it was. Any other fault prevents the file from being played.
    severity = Severity.WARNING if fault.kind in ("tool", "arguments") else Severity.ERROR
    return Problem(
        severity=severity,
        code=code,
        file=file,
        path="".join(f"/{part}" for part in fault.place),
        line=fault.line,
        message=f"the {kind.noun}: {_message(fault, kind)}",
        fix=_FIXES[code].replace("{format}", kind.format),
    )
