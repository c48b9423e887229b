"""Types for parsed JSON, whose values are treated as read-only everywhere."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from typing_extensions import TypeAliasType

JsonValue = TypeAliasType("JsonValue", "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None")
JsonObject = dict[str, JsonValue]


def compact(value: JsonValue) -> str:
    """One line of JSON without spaces and without ASCII escapes (prompts.md §4)."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def as_text(value: JsonValue) -> str:
    """A text as it is, anything else as one line of JSON."""
    return value if isinstance(value, str) else compact(value)


def map_texts(value: JsonValue, change: Callable[[str], str]) -> JsonValue:
    """The same JSON value with every string and key changed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [map_texts(item, change) for item in value]
    if isinstance(value, dict):
        return {change(key): map_texts(item, change) for key, item in value.items()}
    return value


def value_at(document: JsonValue, path: str) -> JsonValue:
    """The value at a dotted path; a numeric part indexes a list; None when anything is missing (flow.md §5)."""
    value = document
    for part in path.split("."):
        if isinstance(value, dict):
            value = value.get(part)
        elif isinstance(value, list) and part.isascii() and part.isdigit() and int(part) < len(value):
            value = value[int(part)]
        else:
            return None
    return value


#: A reference to the specification, which whoever reads a schema in an editor does not have.
_REFERENCE = re.compile(r"\s*\([a-z]+\.md[^()]*\)")


def published(schema: JsonObject) -> JsonObject:
    """A schema as users read it: its descriptions name nothing that they do not have."""

    def plain(value: JsonValue) -> JsonValue:
        match value:
            case str():
                return _REFERENCE.sub("", value)
            case list():
                return [plain(each) for each in value]
            case dict():
                return {key: plain(each) for key, each in value.items()}
            case _:
                return value

    return {key: plain(value) for key, value in schema.items()}
