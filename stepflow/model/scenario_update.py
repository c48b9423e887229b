"""What came, written into a scenario as what is expected from now on (`stepflow rehearse --update`).

Everything else of the text stays byte for byte, comments included: a library that writes YAML anew (ruamel.yaml) would
also set line ends, indents and quotes anew.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, cast

import yaml

from stepflow.errors import InputError
from stepflow.model.scenario import Expect
from stepflow.model.scenario_file import parse_scenario, read_node

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from stepflow.domain.json import JsonObject, JsonValue

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
