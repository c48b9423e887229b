"""What was remembered of a checkout as JSON and back, for the run after one that was killed."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stepflow.domain.json import JsonValue


class UnknownRecord(ValueError):
    """The record has another form, as one of another version has."""


def to_record(value: object) -> JsonValue:  # noqa: PLR0911 - one return per kind is the table
    """Texts, numbers, bytes, paths, tuples, sets, mappings and dataclasses as JSON."""
    match value:
        case None | bool() | int() | str():
            return value
        case bytes():
            return {"bytes": base64.b64encode(value).decode()}
        case Path():
            return {"path": str(value)}
        case tuple():
            return [to_record(each) for each in value]
        case frozenset():
            return {"set": [to_record(each) for each in sorted(value)]}
        case Mapping():
            return {"map": [[to_record(key), to_record(each)] for key, each in value.items()]}
        case _ if is_dataclass(value):
            facts = {field.name: to_record(getattr(value, field.name)) for field in fields(value)}
            return {"type": type(value).__name__, "facts": facts}
        case _:
            raise TypeError(type(value).__name__)


def from_record(record: object, types: Mapping[str, type]) -> Any:  # noqa: ANN401, PLR0911 - one return per kind is the table
    """What `to_record` was given; `types` are the dataclasses in it by their names.

    Raises `UnknownRecord`.
    """
    match record:
        case None | bool() | int() | str():
            return record
        case list():
            return tuple(from_record(each, types) for each in record)
        case {"bytes": str(text)}:
            return base64.b64decode(text)
        case {"path": str(text)}:
            return Path(text)
        case {"set": list(values)}:
            return frozenset(from_record(each, types) for each in values)
        case {"map": list(pairs)}:
            return {from_record(key, types): from_record(each, types) for key, each in pairs}
        case {"type": str(name), "facts": {**facts}} if name in types:
            if facts.keys() != {field.name for field in fields(types[name])}:
                raise UnknownRecord
            return types[name](**{str(key): from_record(each, types) for key, each in facts.items()})
        case _:
            raise UnknownRecord
