"""Types for parsed JSON. Its values are treated as read-only everywhere."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from typing_extensions import TypeAliasType

from stepflow.domain.text import is_invisible

JsonValue = TypeAliasType("JsonValue", "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None")
JsonObject = dict[str, JsonValue]


def compact(value: JsonValue) -> str:
    """Return one line of JSON without spaces or ASCII escapes (prompts.md §4)."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def escape_unseen(text: str) -> str:
    """Return a JSON document in which nothing is hidden from a reader, and nothing is a command to a runner, which
    obeys `##[` anywhere in a line."""
    text = text.replace("##[", "##\\u005b")
    if text.isascii():
        return text
    unseen = {each for each in set(text) if each != "\n" and (not each.isprintable() or is_invisible(each))}
    return text.translate({ord(each): json.dumps(each)[1:-1] for each in unseen})


def as_text(value: JsonValue) -> str:
    """Return a string as it is, and any other value as one line of JSON."""
    return value if isinstance(value, str) else compact(value)


def map_texts(value: JsonValue, change: Callable[[str], str]) -> JsonValue:
    """Return the JSON value with `change` applied to every string and key."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [map_texts(item, change) for item in value]
    if isinstance(value, dict):
        return {change(key): map_texts(item, change) for key, item in value.items()}
    return value


def value_at(document: JsonValue, path: str) -> JsonValue:
    """Return the value at a dotted path, None if it is missing. A numeric part indexes a list (flow.md §5)."""
    value = document
    for part in path.split("."):
        if isinstance(value, dict):
            value = value.get(part)
        elif isinstance(value, list) and part.isascii() and part.isdigit() and int(part) < len(value):
            value = value[int(part)]
        else:
            return None
    return value


#: A reference to the specification, which readers of a published schema do not have.
_REFERENCE = re.compile(r"(?<!\s)\s*\([a-z]+\.md[^()]*\)")


def publish_schema(schema: JsonObject) -> JsonObject:
    """Return a schema for publication, without references to the specification in its descriptions."""
    return {key: map_texts(value, lambda text: _REFERENCE.sub("", text)) for key, value in schema.items()}
