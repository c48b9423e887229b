"""Scenario files: YAML, read with its lines, and updated with what came (`stepflow rehearse --update`).

An update leaves everything else of the text byte for byte, comments included: a library that writes YAML anew
(ruamel.yaml) would also set line ends, indents and quotes anew."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, cast

import yaml
from pydantic import ValidationError

from stepflow.definition.safe_files import FileRefused, read_below
from stepflow.definition.yaml_text import YamlFault, read_yaml
from stepflow.errors import InputError
from stepflow.model.scenario import Expect, Scenario

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from os import PathLike

    from stepflow.domain.json import JsonObject, JsonValue

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


EXPECT = "expect"
#: What a scenario without `expect` is given.
USUAL = ("outcome", "steps", "validators", "effects")
WIDTH = 120
INDENT = "  "


def update_expect(text: str, came: Expect, *, name: str = "scenario") -> str:
    """The text with what came under the keys that its `expect` has; all the usual ones where it has none.

    Raises `InputError` where the text is written so that no value can be put in by its place.
    """
    before = parse_scenario(text, name=name)
    asked = [key for key in Expect.model_fields if before.expect and key in before.expect.model_fields_set] or USUAL
    wanted = came.model_copy(update={"files": _files(before.expect, came)})
    values = cast("JsonObject", wanted.model_dump(mode="json", include=set(asked)))
    edited = _put(text, _changed(before.expect, {key: values[key] for key in asked}), _line_end(text))
    after = before.model_copy(update={EXPECT: Expect.model_validate_json(json.dumps(values))})
    if _reads_as(edited, name) != after.model_dump(exclude_unset=True):
        raise InputError(
            f"{name}: `expect` is written in a form that cannot be changed by its place.",
            hint="Write its keys on lines of their own, without anchors, or change it by hand.",
        )
    return edited


def _changed(expect: Expect | None, values: JsonObject) -> JsonObject:
    """Without what is as it was, so that a value that needs no change keeps even its inner comments."""
    known = cast("JsonObject", expect.model_dump(mode="json", exclude_unset=True)) if expect else {}
    return {key: value for key, value in values.items() if key not in known or known[key] != value}


def _line_end(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _files(expect: Expect | None, came: Expect) -> dict[str, str | None]:
    return {path: (came.files or {}).get(path) for path in (expect.files if expect else None) or {}}


def _reads_as(text: str, name: str) -> dict[str, object] | None:
    try:
        return parse_scenario(text, name=name).model_dump(exclude_unset=True)
    except InputError:
        return None


def _put(text: str, values: Mapping[str, JsonValue], line_end: str) -> str:
    node = _value(read_node(text), EXPECT)
    if node is None:
        ending = "" if text.endswith("\n") else line_end
        return f"{text}{ending}{line_end}{EXPECT}:{_block(values, INDENT, line_end)}{line_end}"
    if not isinstance(node, yaml.MappingNode) or not node.value:
        return f"{text[: node.start_mark.index].rstrip()}{_block(values, INDENT, line_end)}{text[_end(node) :]}"
    # From the end to the beginning, so that the places before stay true.
    for key, value in reversed([*_entries(node)]):
        if key in values:
            new = _written(value, values[key], line_end)
            text = f"{text[: value.start_mark.index]}{new}{text[_end_of_words(text, value) :]}"
    return text


def _value(node: yaml.Node | None, key: str) -> yaml.Node | None:
    return dict(_entries(node)).get(key) if isinstance(node, yaml.MappingNode) else None


def _entries(node: yaml.MappingNode) -> Iterator[tuple[str, yaml.Node]]:
    return ((str(key.value), value) for key, value in node.value)


def _end_of_words(text: str, node: yaml.Node) -> int:
    """Without the line breaks that belong to a text in a block."""
    start = node.start_mark.index
    return start + len(text[start : _end(node)].rstrip())


def _end(node: yaml.Node) -> int:
    """Where the last word of the node ends: a block's own end lies behind the comments that follow it."""
    children = [child for pair in node.value for child in pair] if isinstance(node, yaml.MappingNode) else node.value
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and children:
        return _end(children[-1])
    return int(node.end_mark.index)


def _written(node: yaml.Node, value: JsonValue, line_end: str) -> str:
    """In the style of the old value; a block begins where the old one began."""
    if not value or not isinstance(node, yaml.CollectionNode) or node.flow_style:
        return _flow(value)
    return _block(value, " " * node.start_mark.column, line_end).lstrip()


def _flow(value: JsonValue) -> str:
    """On one line."""
    if isinstance(value, dict):
        inner = ", ".join(f"{_flow(key)}: {_flow(each)}" for key, each in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, list):
        return f"[{', '.join(map(_flow, value))}]"
    # As the one item of a list, so that a comma or a bracket in a text gets its quotes.
    return yaml.dump([value], Dumper=_Dumper, default_flow_style=True, allow_unicode=True, width=10**9).strip()[1:-1]


def _block(value: JsonValue | Mapping[str, JsonValue], indent: str, line_end: str) -> str:
    """One entry a line, each after a line break and the indent; an entry too long for its line in lines again."""
    lines: list[str] = []
    if isinstance(value, list):
        lines = [f"- {_flow(inner)}" for inner in value]
    for key, inner in value.items() if isinstance(value, dict) else ():
        flow = _flow(inner)
        is_long = len(indent) + len(key) + len(flow) > WIDTH and bool(inner) and isinstance(inner, dict | list)
        lines.append(f"{_flow(key)}:{_block(inner, indent + INDENT, line_end) if is_long else f' {flow}'}")
    return "".join(f"{line_end}{indent}{line}" for line in lines)


class _Dumper(yaml.SafeDumper):
    """YAML in which a text of several lines stays on one, in quotes."""


def _text_node(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    breaks = {"\n", "\r", "\x85", "\u2028", "\u2029"}
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"' if set(text) & breaks else None)


_Dumper.add_representer(str, _text_node)
