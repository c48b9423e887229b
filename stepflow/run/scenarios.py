"""Scenario files: YAML whose problems are reported with their lines."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TypeVar

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from stepflow.definition.diagnostics import did_you_mean, format_value
from stepflow.definition.folder import FileRefused, Why, read_below, text_of
from stepflow.definition.parsing import YamlFault, read_yaml
from stepflow.domain.event import ValidatorRan
from stepflow.domain.reports.report import RunReport
from stepflow.domain.value_errors import describe_error
from stepflow.domain.words import FailureAction, Outcome
from stepflow.errors import InputError
from stepflow.model.scenario import Expect, Scenario, ValidatorWord
from stepflow.run.start.inputs import Inputs

MAX_BYTES = 4 * 1024 * 1024
_HINT = (
    "A scenario has `turns` or `steps`, and may have `params`, `issue` and `expect`; a turn has `tools`, `output`, "
    "`text`, `error` or `repeat`, and may have `expect_step` and `expect_prompt`."
)

_WHERE = (
    "Give `scenario` the path of a YAML file in the repository, relative to the working directory. Symbolic links are "
    "not followed."
)


def load_scenario(path: str | PathLike[str], *, root: Path | None = None) -> Scenario:
    """Load a scenario file. Raises one `InputError` that lists every problem with its line and place."""
    return parse_scenario(read_scenario(path, root=root), name=str(path))


def read_scenario(path: str | PathLike[str], *, root: Path | None = None) -> str:
    """Read the text of a scenario file. Below `root`, symbolic links are not followed and relative paths must stay."""
    full_path = Path(root or "", path)
    base = root if root and full_path.is_relative_to(root) else full_path.parent
    try:
        return text_of(read_below(base, full_path.relative_to(base), limit=MAX_BYTES))
    except FileRefused as exc:
        where = exc.unsafe or exc.why is Why.MISSING
        raise InputError(f"The scenario {path} {exc.message}.", hint=_WHERE if where else exc.fix) from exc


@dataclass(frozen=True, kw_only=True)
class FileFault:
    """A problem in a YAML file, such as a scenario."""

    #: 1-based; None if the problem has no line.
    line: int | None
    #: For example `("turns", 0, "tools")`.
    place: tuple[int | str, ...]
    message: str
    #: The type of pydantic's error, or `yaml` if the text cannot be parsed.
    kind: str

    def describe(self, name: str) -> str:
        """Return one line that names the file `name`, the line and the place."""
        location = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in self.place).lstrip(".")
        file = f"{name}:{self.line}" if self.line else name
        return f"{file}: {f'{location}: ' if location else ''}{self.message}."


M = TypeVar("M", bound=BaseModel)


def read_yaml_text(text: str, model: type[M]) -> M | tuple[FileFault, ...]:
    """Parse the text of a YAML file of this form; returns all problems if there are any."""
    try:
        node, data = _read(text)
    except YamlFault as exc:
        message = f"this cannot be read as YAML: {exc.problem}"
        return (FileFault(line=exc.line, place=(), message=message, kind="yaml"),)
    try:
        return model.model_validate_json(data)
    except ValidationError as exc:
        return tuple(
            FileFault(
                line=_line(node, error["loc"]),
                place=error["loc"],
                message=_message(error),
                kind=error["type"],
            )
            for error in exc.errors()
        )


def _message(error: ErrorDetails) -> str:
    if error["type"] not in ("enum", "literal_error"):
        return describe_error(error)
    value, choices = error["input"], error["ctx"]["expected"]
    suggestion = did_you_mean(str(value), re.findall("'(.+?)'", choices))
    return f"{format_value(value)} is not one of the choices{suggestion}; write {choices}"


def parse_scenario(text: str, *, name: str = "scenario") -> Scenario:
    """Parse a scenario, which messages call `name`. Raises `InputError` with all problems."""
    scenario = read_yaml_text(text, Scenario)
    if isinstance(scenario, Scenario):
        return scenario
    raise InputError(tuple(fault.describe(name) for fault in scenario), hint=_HINT)


def read_node(text: str) -> yaml.Node | None:
    """Parse a valid text into YAML nodes, which know their lines."""
    return _read(text)[0]


def place_of(text: str, *keys: int | str) -> int:
    """Return the 1-based line of the deepest of these nested keys that exists; 1 for a text that is not YAML."""
    try:
        return _line(_read(text)[0], keys)
    except YamlFault:
        return 1


def _read(text: str) -> tuple[yaml.Node | None, str]:
    """Return the nodes, for their lines, and the data as JSON, which has no types of YAML's own."""
    node, data = read_yaml(text)
    try:
        return node, json.dumps({} if node is None else data, default=str)
    except (ValueError, TypeError) as exc:
        raise YamlFault(str(exc)) from exc


def _line(node: yaml.Node | None, loc: tuple[int | str, ...]) -> int:
    """Return the 1-based line of the innermost key or item on the way to this place."""
    line = node.start_mark.line if node else 0
    for part in loc:
        match node:
            case yaml.SequenceNode() if isinstance(part, int) and part < len(node.value):
                key = node = node.value[part]
            case yaml.MappingNode() if pair := next((each for each in node.value if each[0].value == str(part)), None):
                key, node = pair
            case _:
                break
        line = key.start_mark.line
    return line + 1


#: With these outcomes a rehearsal did not really happen; a scenario that wants one must expect it explicitly.
NOT_PLAYED = frozenset(
    {
        Outcome.MODEL_FAILED,
        Outcome.MODEL_REFUSED,
        Outcome.INTERNAL_ERROR,
        Outcome.MISCONFIGURED,
        Outcome.INVALID_DEFINITION,
    }
)
#: A recording of a run with these outcomes runs out of turns when it is replayed.
UNFINISHED = NOT_PLAYED | {Outcome.CANCELLED, Outcome.TIMED_OUT, Outcome.BUDGET_EXHAUSTED}


def expect_of_recording(report: RunReport, inputs: Inputs) -> Expect | None:
    """Return what to expect when a recorded run is replayed without anything outside; None if its turns do not lead
    to an end. Effects are left out: they depend on the label that started the run."""
    outcome = _replayed_outcome(report, inputs)
    if outcome is None:
        return None
    steps = tuple(line.step_id for line in report.history)
    return Expect(outcome=outcome, steps=steps, validators=validator_results(report.validators))


def validator_results(runs: Iterable[ValidatorRan]) -> dict[str, tuple[ValidatorWord, ...]]:
    """Return each validator's results in order."""
    words: dict[str, tuple[ValidatorWord, ...]] = {}
    for each in runs:
        words[each.name] = (*words.get(each.name, ()), _result_word(each))
    return words


def _replayed_outcome(report: RunReport, inputs: Inputs) -> Outcome | None:
    match report.outcome:
        case Outcome.BOUNDARY_FAILED:
            return Outcome.COMPLETED
        case Outcome.REFUSED if report.effects:
            # The plan was fine; only writing it failed.
            return Outcome.COMPLETED
        case Outcome.REFUSED:
            return Outcome.REFUSED if report.history else None
        case Outcome.LIMIT_REACHED:
            return None if inputs.limits.iterations else Outcome.LIMIT_REACHED
        case outcome:
            return None if outcome in UNFINISHED else outcome


def _result_word(run: ValidatorRan) -> ValidatorWord:
    if run.passed:
        return "pass"
    if run.action is FailureAction.SKIP:
        return "skipped"
    return "fail" if run.recoverable else "unrecoverable"
