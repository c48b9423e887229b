"""Scenario files: YAML, read with its lines, and updated (cli.md "Scenario files")."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import yaml
from pydantic import ValidationError

from stepflow.definition.diagnostics import did_you_mean, shown
from stepflow.definition.files.safe_files import FileRefused, Why, read_below, text_of
from stepflow.definition.files.yaml_text import YamlFault, read_yaml
from stepflow.domain.words import FailureAction, Outcome
from stepflow.errors import InputError
from stepflow.model.scenario import Expect, Scenario, yaml_text
from stepflow.run.inputs import Inputs

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from os import PathLike

    from pydantic_core import ErrorDetails

    from stepflow.domain.event import ValidatorRan
    from stepflow.domain.report import RunReport
    from stepflow.model.scenario import ValidatorWord

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


EXPECT = "expect"
#: What a scenario without `expect` is given.
USUAL = ("outcome", "steps", "validators", "effects")


def update_expect(text: str, came: Expect, *, name: str = "scenario") -> str:
    """The text with what came in the place of its `expect`: under the keys that are there, or all the usual ones.

    Raises `InputError` where the text is written so that this cannot be put in its place.
    """
    before = parse_scenario(text, name=name)
    expect = before.expect or Expect()
    keys = [key for key in Expect.model_fields if key in expect.model_fields_set] or USUAL
    files = {path: (came.files or {}).get(path) for path in expect.files or {}}
    values = came.model_copy(update={"files": files}).model_dump(mode="json", include=set(keys))
    start, end = _place_of_expect(text)
    block = yaml_text({EXPECT: {key: values[key] for key in keys}})
    if start == len(text):
        block = f"\n{block}" if text.endswith("\n") else f"\n\n{block}"
    edited = text[:start] + block.replace("\n", "\r\n" if "\r\n" in text else "\n") + text[end:]
    after = before.model_copy(update={EXPECT: Expect.model_validate_json(json.dumps(values))})
    read = read_scenario_text(edited)
    if not isinstance(read, Scenario) or read.model_dump(exclude_unset=True) != after.model_dump(exclude_unset=True):
        raise InputError(
            f"{name}: `expect` is written in a form that cannot be changed by its place.",
            hint="Write its keys on lines of their own, without anchors, or change it by hand.",
        )
    return edited


def _place_of_expect(text: str) -> tuple[int, int]:
    """Where the lines of `expect` begin and end in the text of a scenario; both at its end where there is none."""
    root, _ = _read(text)
    pairs = root.value if isinstance(root, yaml.MappingNode) else ()
    for key, value in pairs:
        if key.value == EXPECT:
            last_word = len(text[: _end(value)].rstrip())
            return key.start_mark.index, text.find("\n", last_word) + 1 or len(text)
    return len(text), len(text)


def _end(node: yaml.Node) -> int:
    """Where the last word of the node ends: a block's own end lies behind the comments that follow it."""
    children = [child for pair in node.value for child in pair] if isinstance(node, yaml.MappingNode) else node.value
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and children:
        return _end(children[-1])
    return int(node.end_mark.index)


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
MOST_BYTES = 1024 * 1024


def came_of(report: RunReport, ran: Iterable[ValidatorRan], files: Mapping[str, str | None]) -> Expect:
    """Everything that `expect` can say, as it was in this run."""
    return Expect(
        outcome=report.outcome,
        steps=tuple(line.step_id for line in report.history),
        effects=tuple(effect.kind for effect in report.effects),
        validators=validators_of(ran),
        files=dict(files),
    )


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


def read_files(root: Path, paths: Iterable[str]) -> dict[str, str | None]:
    """The named files as text; None for one that is not there. No link is followed: tools may have made it."""
    return {path: _file_text(root, path) for path in paths}


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


def _file_text(root: Path, path: str) -> str | None:
    try:
        return read_below(root, path, limit=MOST_BYTES).decode("utf-8", "replace")
    except FileRefused as refused:
        return None if refused.why is Why.MISSING else f"({_REFUSED.get(refused.why, refused.message)})"


_REFUSED = {
    Why.LINK: "a symbolic link",
    Why.IRREGULAR: "no regular file",
    Why.LARGE: f"more than {MOST_BYTES} bytes",
}
