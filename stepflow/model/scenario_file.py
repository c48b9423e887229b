"""Scenarios as YAML text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import yaml
from pydantic import ValidationError

from stepflow.errors import InputError
from stepflow.files import FileRefused, read_below
from stepflow.model.scenario import Scenario
from stepflow.yaml_text import YamlFault, read_yaml

if TYPE_CHECKING:
    from os import PathLike

MAX_BYTES = 4 * 1024 * 1024
_HINT = (
    "A scenario has `turns` or `steps`, and may have `params`, `issue` and `expect`; a turn has `tools`, `output`, "
    "`text`, `error` or `repeat`, and may have `expect_step` and `expect_prompt`."
)


def load_scenario(path: str | PathLike[str], *, root: Path | None = None) -> Scenario:
    """Read a scenario file. Every problem is named with its line and place in one `InputError`."""
    return parse_scenario(read_scenario(path, root=root), name=str(path))


def read_scenario(path: str | PathLike[str], *, root: Path | None = None) -> str:
    """The text of a scenario file. Below `root` no symbolic link is followed, and a relative path must stay there."""
    place = Path(root or "", path)
    base = root if root and place.is_relative_to(root) else place.parent
    try:
        return read_below(base, place.relative_to(base), limit=MAX_BYTES).decode("utf-8")
    except FileRefused as exc:
        raise InputError(
            f"The scenario {path} {exc.message}.",
            hint="Give `scenario` the path of a YAML file in the repository, seen from the working directory: the file "
            "itself, reached through no symbolic link.",
        ) from exc
    except UnicodeDecodeError as exc:
        raise InputError(f"The scenario {path} is not UTF-8 text.", hint="Save it as UTF-8.") from exc


def parse_scenario(text: str, *, name: str = "scenario") -> Scenario:
    """The scenario in a text; `name` is what messages call it."""
    try:
        node, data = _read(text)
    except YamlFault as exc:
        place = f"{name}:{exc.line}" if exc.line else name
        raise InputError(f"{place}: this cannot be read as YAML: {exc.problem}.", hint=_HINT) from exc
    try:
        return Scenario.model_validate_json(data)
    except ValidationError as exc:
        problems = [_problem(error["loc"], error["msg"], node, name) for error in exc.errors()]
        raise InputError("\n".join(problems), hint=_HINT) from exc


def read_node(text: str) -> yaml.Node | None:
    """The nodes of a text that can be read, with their places in it."""
    return _read(text)[0]


def place_of(text: str, *keys: str) -> int:
    """The 1-based line where the value of these keys begins, as far as they lead; 1 for a text that is no YAML."""
    try:
        return _line(_read(text)[0], keys)
    except YamlFault:
        return 1


def scenario_text(scenario: Scenario) -> str:
    """The YAML text of a scenario, for people to read and edit; reading it gives the same scenario."""
    data = scenario.model_dump(mode="json", exclude_unset=True)
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)


class _Dumper(yaml.SafeDumper):
    """YAML in which texts of several lines stay readable."""


def _text_node(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    # Line breaks to YAML, though not to people: unquoted they would come back as others.
    if set(text) & {"\x85", "\u2028", "\u2029"}:
        style = '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text_node)


def _read(text: str) -> tuple[yaml.Node | None, str]:
    """The nodes, for their lines, and the data as JSON, so that nothing is left in it that only YAML knows."""
    node, data = read_yaml(text)
    try:
        return node, json.dumps({} if node is None else data, default=str)
    except (ValueError, TypeError) as exc:
        raise YamlFault(str(exc)) from exc


def _problem(loc: tuple[int | str, ...], message: str, node: yaml.Node | None, name: str) -> str:
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc).lstrip(".")
    said = message.removeprefix("Value error, ")
    return f"{name}:{_line(node, loc)}: {f'{place}: ' if place else ''}{said}."


def _line(node: yaml.Node | None, loc: tuple[int | str, ...]) -> int:
    """The 1-based line of the innermost node that the place leads to."""
    line = node.start_mark.line if node else 0
    for part in loc:
        node = _child(node, part)
        if node is None:
            break
        line = node.start_mark.line
    return line + 1


def _child(node: yaml.Node | None, part: int | str) -> yaml.Node | None:
    match node:
        case yaml.SequenceNode() if isinstance(part, int) and part < len(node.value):
            found: yaml.Node = node.value[part]
            return found
        case yaml.MappingNode():
            return next((value for key, value in node.value if key.value == str(part)), None)
        case _:
            return None
