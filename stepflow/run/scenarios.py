"""Scenario files: YAML, read with its lines."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from stepflow.definition.diagnostics import did_you_mean, shown
from stepflow.definition.folder import FileRefused, Why, read_below, text_of
from stepflow.definition.parsing import YamlFault, read_yaml
from stepflow.domain.event import ValidatorRan
from stepflow.domain.report import RunReport
from stepflow.domain.words import FailureAction, Outcome
from stepflow.errors import InputError
from stepflow.model.scenario import Expect, Scenario, ValidatorWord
from stepflow.run.inputs import Inputs

MAX_BYTES = 4 * 1024 * 1024
_HINT = (
    "A scenario has `turns` or `steps`, and may have `params`, `issue` and `expect`; a turn has `tools`, `output`, "
    "`text`, `error` or `repeat`, and may have `expect_step` and `expect_prompt`."
)

_WHERE = (
    "Give `scenario` the path of a YAML file in the repository, seen from the working directory: the file itself, "
    "reached through no symbolic link."
)


def load_scenario(path: str | PathLike[str], *, root: Path | None = None) -> Scenario:
    """Read a scenario file. Every problem is named with its line and place in one `InputError`."""
    return parse_scenario(read_scenario(path, root=root), name=str(path))


def read_scenario(path: str | PathLike[str], *, root: Path | None = None) -> str:
    """The text of a scenario file. Below `root` no symbolic link is followed, and a relative path must stay there."""
    full_path = Path(root or "", path)
    base = root if root and full_path.is_relative_to(root) else full_path.parent
    try:
        return text_of(read_below(base, full_path.relative_to(base), limit=MAX_BYTES))
    except FileRefused as exc:
        where = exc.unsafe or exc.why is Why.MISSING
        raise InputError(f"The scenario {path} {exc.message}.", hint=_WHERE if where else exc.fix) from exc


@dataclass(frozen=True, kw_only=True)
class ScenarioFault:
    """What is wrong with a scenario, at a 1-based line (None: nowhere in particular) and a place such as
    `("turns", 0, "tools")`. `kind` is the type of pydantic's error, `yaml` for a text that cannot be read."""

    line: int | None
    place: tuple[int | str, ...]
    message: str
    kind: str

    def describe(self, name: str) -> str:
        """As a line of a message; `name` is what it calls the file."""
        location = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in self.place).lstrip(".")
        file = f"{name}:{self.line}" if self.line else name
        return f"{file}: {f'{location}: ' if location else ''}{self.message}."


def read_scenario_text(text: str) -> Scenario | tuple[ScenarioFault, ...]:
    """The scenario in a text, or everything that is wrong with it."""
    try:
        node, data = _read(text)
    except YamlFault as exc:
        message = f"this cannot be read as YAML: {exc.problem}"
        return (ScenarioFault(line=exc.line, place=(), message=message, kind="yaml"),)
    try:
        return Scenario.model_validate_json(data)
    except ValidationError as exc:
        return tuple(
            ScenarioFault(
                line=_line(node, error["loc"]),
                place=error["loc"],
                message=_message(error),
                kind=error["type"],
            )
            for error in exc.errors()
        )


def _message(error: ErrorDetails) -> str:
    if error["type"] not in ("enum", "literal_error"):
        return error["msg"].removeprefix("Value error, ")
    wrong, words = error["input"], error["ctx"]["expected"]
    near = did_you_mean(str(wrong), re.findall("'(.+?)'", words))
    return f"{shown(wrong)} is none of the choices{near}; write {words}"


def parse_scenario(text: str, *, name: str = "scenario") -> Scenario:
    """The scenario in a text; `name` is what messages call it."""
    read = read_scenario_text(text)
    if isinstance(read, Scenario):
        return read
    raise InputError("\n".join(fault.describe(name) for fault in read), hint=_HINT)


def read_node(text: str) -> yaml.Node | None:
    """The nodes of a text that can be read, with their places in it."""
    return _read(text)[0]


def place_of(text: str, *keys: int | str) -> int:
    """The 1-based line of the last of these keys, as far as they lead; 1 for a text that is no YAML."""
    try:
        return _line(_read(text)[0], keys)
    except YamlFault:
        return 1


def _read(text: str) -> tuple[yaml.Node | None, str]:
    """The nodes, for their lines, and the data as JSON, so that nothing is left in it that only YAML knows."""
    node, data = read_yaml(text)
    try:
        return node, json.dumps({} if node is None else data, default=str)
    except (ValueError, TypeError) as exc:
        raise YamlFault(str(exc)) from exc


def _line(node: yaml.Node | None, loc: tuple[int | str, ...]) -> int:
    """The 1-based line of the innermost key or item that the place leads to."""
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


#: A run that ends like this was not rehearsed at all; a scenario that means it says so.
NOT_PLAYED = frozenset(
    {
        Outcome.MODEL_FAILED,
        Outcome.MODEL_REFUSED,
        Outcome.INTERNAL_ERROR,
        Outcome.MISCONFIGURED,
        Outcome.INVALID_DEFINITION,
    }
)
#: Whoever plays these again runs out of turns.
UNFINISHED = NOT_PLAYED | {Outcome.CANCELLED, Outcome.TIMED_OUT, Outcome.BUDGET_EXHAUSTED}


def expect_of_recording(report: RunReport, ran: Iterable[ValidatorRan], inputs: Inputs) -> Expect | None:
    """What a recorded run will come to when it is played again, where nothing outside decides anything.

    None where its turns do not lead to an end. Effects are left out: they depend on the label that started the run.
    """
    outcome = _played_again(report, inputs)
    if outcome is None:
        return None
    steps = tuple(line.step_id for line in report.history)
    return Expect(outcome=outcome, steps=steps, validators=validators_of(ran))


def validators_of(ran: Iterable[ValidatorRan]) -> dict[str, tuple[ValidatorWord, ...]]:
    """Each validator's results in order."""
    words: dict[str, tuple[ValidatorWord, ...]] = {}
    for each in ran:
        words[each.name] = (*words.get(each.name, ()), _word(each))
    return words


def _played_again(report: RunReport, inputs: Inputs) -> Outcome | None:
    match report.outcome:
        case Outcome.BOUNDARY_FAILED:
            return Outcome.COMPLETED
        case Outcome.REFUSED if report.effects:
            # The plan was fine, the writing was not.
            return Outcome.COMPLETED
        case Outcome.REFUSED:
            return Outcome.REFUSED if report.history else None
        case Outcome.LIMIT_REACHED:
            return None if inputs.max_iterations else Outcome.LIMIT_REACHED
        case outcome:
            return None if outcome in UNFINISHED else outcome


def _word(ran: ValidatorRan) -> ValidatorWord:
    if ran.passed:
        return "pass"
    if ran.action is FailureAction.SKIP:
        return "skipped"
    return "fail" if ran.recoverable else "unrecoverable"
