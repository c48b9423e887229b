"""One event as one line of JSON, and back (cli.md "Journal")."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Annotated

from pydantic import Field, TypeAdapter, ValidationError

from stepflow.domain.event import Entry, Event
from stepflow.domain.json import JsonObject, JsonValue, published
from stepflow.domain.secrets import redact_value
from stepflow.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

VERSION = 2
#: Each costs some six hundred bytes to look at.
_MOST_ERRORS = 1000
#: Fields that an event has only where there is something in them.
_SOMETIMES = (
    *(("IterationStarted", "effort"), ("IterationStarted", "max_output_tokens")),
    *(("ModelTurned", "refusal"), ("ModelTurned", "cleared"), ("ModelTurned", "near_price_step")),
    ("ToolCalled", "images"),
)


@dataclass(frozen=True, kw_only=True)
class BrokenLine(Exception):
    """A line that is no JSON object: torn by a crash when it is the last, damage otherwise."""

    reason: str


def write_line(event: Event, *, seq: int, time: float, redact: Callable[[str], str]) -> tuple[str, Entry]:
    """The line without its line break, and the entry that it holds: what a reader of the line will see."""
    fields: JsonValue = _adapter().dump_python(event, mode="json")
    safe = redact_value(_plain(fields), redact)
    assert isinstance(safe, dict)  # noqa: S101 - an event is an object, and a redactor changes only strings
    seen = event if safe == fields else _adapter().validate_python(safe)
    line: JsonObject = {"v": VERSION, "seq": seq, "t": round(time, 6), "event": event.event, **safe}
    return _one_line(line), Entry(seq=seq, time=round(time, 6), event=seen)


def read_line(line: bytes, *, location: str) -> Entry:
    """The entry of one line. `location` names file and line in errors; raises `BrokenLine` and `InputError`."""
    try:
        fields = json.loads(line.decode("utf-8", "replace"))
    except (ValueError, RecursionError) as exc:
        raise BrokenLine(reason=f"no JSON: {exc}") from exc
    if not isinstance(fields, dict):
        raise BrokenLine(reason="no JSON object")
    if fields.get("v") != VERSION:
        raise InputError(
            f"{location} has journal version {fields.get('v')!r}; this stepflow reads version {VERSION}.",
            hint="Use the stepflow release that wrote this run folder.",
        )
    seq, time = fields.get("seq"), fields.get("t")
    if type(seq) is not int or isinstance(time, bool) or not isinstance(time, int | float):
        raise _no_event(location, "seq must be an integer and t a number")
    try:
        return Entry(seq=seq, time=float(time), event=_adapter().validate_python(fields))
    except ValidationError as exc:
        if exc.error_count() > _MOST_ERRORS:
            raise _no_event(location, f"{exc.error_count():,} of its values do not fit") from None
        first = exc.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "event"
        raise _no_event(location, f"{where}: {first['msg']}") from exc


def journal_schema() -> JsonObject:
    """JSON Schema of one line of a journal."""
    schema = _adapter().json_schema(mode="serialization")
    events = {reference["$ref"].rsplit("/", 1)[1] for reference in schema["oneOf"]}
    for name in events:
        shape = schema["$defs"][name]
        frame = {"v": {"const": VERSION}, "seq": {"type": "integer", "minimum": 1}, "t": {"type": "number"}}
        frame["event"] = {"const": shape["properties"]["event"]["const"]}
        shape["properties"] = {**frame, **shape["properties"], **frame}
        shape["required"] = [key for key in shape["properties"] if (name, key) not in _SOMETIMES]
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "One line of a stepflow journal (journal.jsonl)",
    }
    return published({**head, **schema})


@cache
def _adapter() -> TypeAdapter[Event]:
    return TypeAdapter(Annotated[Event, Field(discriminator="event")])


def _plain(value: JsonValue) -> JsonValue:
    """JSON has no NaN and no infinity; a line with one could be read by Python alone."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value


def _one_line(line: JsonObject) -> str:
    text = json.dumps(line, ensure_ascii=False, separators=(",", ":"))
    # JSON lets these stand, but many programs take them for line breaks. Here they can only stand inside a string.
    for character in "\x85\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _no_event(location: str, reason: str) -> InputError:
    return InputError(
        f"{location} is no event of a journal: {reason}.",
        hint="The file was changed or written by something else; start a new run, or restore the run folder.",
    )
