"""Types for parsed JSON, whose values are treated as read-only everywhere."""

from __future__ import annotations

import json

from typing_extensions import TypeAliasType

JsonValue = TypeAliasType("JsonValue", "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None")
JsonObject = dict[str, JsonValue]


def compact(value: JsonValue) -> str:
    """One line of JSON without spaces and without ASCII escapes (prompts.md §4)."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


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
