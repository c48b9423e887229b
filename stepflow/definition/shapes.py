"""Outside data becomes typed: the base of the file models, and their errors as problems."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Annotated, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails

from stepflow.definition.diagnostics import FileProblems, did_you_mean, owner, shown
from stepflow.definition.json_text import Pointer
from stepflow.definition.yaml_text import read_yaml
from stepflow.domain.json import JsonObject, JsonValue


class Needed:
    """Marks a key that must be there and not empty. It may still be None in the instance: the problem is reported."""


class NullAllowed:
    """Marks a key for which `null` means the same as leaving it out."""


NEEDED = Needed()
NULL_ALLOWED = NullAllowed()
NeededText = Annotated[str | None, NEEDED]


def _describe(schema: JsonObject, model: type[BaseModel]) -> None:
    """Make the published JSON Schema say what `read_shape` checks: needed keys, and no null but where it is allowed."""
    properties = schema.get("properties")
    fields = {info.alias or name: info for name, info in model.model_fields.items()}
    for key, inner in properties.items() if isinstance(properties, dict) else ():
        if NULL_ALLOWED not in fields[key].metadata:
            schema["properties"][key] = _without_null(inner)  # type: ignore[index,call-overload]
    needed: list[JsonValue] = [key for key, info in fields.items() if NEEDED in info.metadata]
    if needed:
        schema["required"] = needed


def _without_null(schema: JsonValue) -> JsonValue:
    if not isinstance(schema, dict):
        return schema
    kept = {key: value for key, value in schema.items() if not (key == "default" and value is None)}
    branches = kept.pop("anyOf", None)
    if isinstance(branches, list):
        rest = [one for one in branches if one != {"type": "null"}]
        kept = {**rest[0], **kept} if len(rest) == 1 and isinstance(rest[0], dict) else {**kept, "anyOf": rest}
    return kept


class FileModel(BaseModel):
    """Base of the file models: keys as in the file, strict types, unknown keys kept for a note."""

    model_config = ConfigDict(
        # Built for the files that are there: an agent of one dialect has none of the other's.
        defer_build=True,
        extra="allow",
        frozen=True,
        strict=True,
        alias_generator=to_camel,
        json_schema_extra=_describe,
    )

    #: Keys that are known and do nothing here (SF111).
    no_effect: ClassVar[frozenset[str]] = frozenset()
    #: Keys that editors read, and nobody else: they have their effect there, so nothing is to be said of them.
    for_editors: ClassVar[frozenset[str]] = frozenset()
    #: True when every key that is no field is such a key.
    rest_has_no_effect: ClassVar[bool] = False


@dataclass(frozen=True)
class FieldNote:
    """`source` is a mark such as S4; `otherwise` is what stands for a key that is left out, empty if its model says."""

    source: str
    text: str
    otherwise: str = ""
    example: str = ""


@cache
def field_notes() -> Mapping[str, Mapping[str, FieldNote]]:
    """Model → key → note, out of `fields.yaml`."""
    models = read_yaml((files("stepflow.definition") / "fields.yaml").read_text(encoding="utf-8"))[1]
    return {model: {key: FieldNote(*row) for key, row in keys.items()} for model, keys in models.items()}


@dataclass(frozen=True, kw_only=True)
class ShapeCodes:
    """Which code a fault has by its place: (pattern of the pointer, code); SF107 and SF106 for all others."""

    missing: tuple[tuple[str, str], ...] = ()
    wrong: tuple[tuple[str, str], ...] = ()
    #: Pointers of needed keys that this file may leave out.
    excused: frozenset[str] = field(default_factory=frozenset)


Shape = TypeVar("Shape", bound=FileModel)


def read_shape(
    model: type[Shape], document: JsonObject, at: Pointer, problems: FileProblems, codes: ShapeCodes
) -> Shape:
    """Read `document`, which stands at the pointer `at`, as `model`. What has a wrong type is reported and left out."""
    document = copy.deepcopy(document)
    dropped: set[str] = set()
    while True:
        try:
            shape = model.model_validate(document)
        except ValidationError as exc:
            # Items of a list are taken out from its end, so that the places of the others stay true.
            for error in sorted(exc.errors(include_url=False), key=_place_order, reverse=True):
                dropped.add(_drop(document, error, at, problems, codes))
        else:
            _review(shape, at, problems, codes, dropped)
            return shape


def code_at(pointer: str, table: tuple[tuple[str, str], ...], default: str) -> str:
    """The code of the first pattern that fits the whole pointer."""
    return next((code for pattern, code in table if re.fullmatch(pattern, pointer)), default)


def _place_order(error: ErrorDetails) -> list[tuple[int, str]]:
    return [(key, "") if isinstance(key, int) else (-1, key) for key in error["loc"]]


def _drop(document: JsonObject, error: ErrorDetails, at: Pointer, problems: FileProblems, codes: ShapeCodes) -> str:
    pointer = at
    node: JsonValue = document
    *parents, last = error["loc"]
    for key in parents:
        pointer = pointer / key
        node = node[key]  # type: ignore[index]  # pydantic walked the same way
    pointer = pointer / last
    if isinstance(node, dict) and last in node:
        del node[str(last)]
    elif isinstance(node, list):
        del node[int(last)]
    context = error.get("ctx", {})
    demand = _DEMANDS.get(error["type"], "be another value ({msg})").format(**context, msg=error["msg"])
    message = f'{owner(pointer)}"{last}" is {shown(error["input"])}, but it must {demand}'
    fix = f'Give "{last}" a value of that kind.'
    if "expected" in context:
        fix = "Use one of these words."
        if isinstance(error["input"], str):
            message += did_you_mean(error["input"], re.findall(r"'([^']*)'", context["expected"]))
    problems.add(code_at(pointer, codes.wrong, "SF106"), pointer, message, fix)
    return pointer


#: pydantic's error types in the words of this house.
_DEMANDS = {
    "string_type": "be a text",
    "int_type": "be a whole number",
    "float_type": "be a number",
    "bool_type": "be true or false",
    "list_type": "be a list",
    "dict_type": "be an object",
    "model_type": "be an object",
    "greater_than_equal": "be at least {ge}",
    "greater_than": "be more than {gt}",
    "too_short": "have at least {min_length} item",
    "string_pattern_mismatch": "be of the form {pattern}",
    "enum": "be one of {expected}",
    "literal_error": "be one of {expected}",
}


def _review(shape: FileModel, at: Pointer, problems: FileProblems, codes: ShapeCodes, dropped: set[str]) -> None:
    _note_extra_keys(shape, at, problems)
    for name, info in type(shape).model_fields.items():
        pointer = at / (info.alias or name)
        value = getattr(shape, name)
        if pointer in dropped:
            continue
        if NEEDED in info.metadata and _empty(value) and pointer not in codes.excused:
            _report_missing(pointer, shape, name, problems, codes)
        elif value is None and name in shape.model_fields_set and NULL_ALLOWED not in info.metadata:
            key = info.alias or name
            message = f'{owner(pointer)}"{key}" is null, which says nothing here'
            problems.add(code_at(pointer, codes.wrong, "SF106"), pointer, message, f'Leave "{key}" out.')
        for inner, place in _shapes_in(value, pointer):
            _review(inner, place, problems, codes, dropped)


def _shapes_in(value: object, pointer: Pointer) -> Iterator[tuple[FileModel, Pointer]]:
    if isinstance(value, FileModel):
        yield value, pointer
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _shapes_in(item, pointer / key)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _shapes_in(item, pointer / index)


def _note_extra_keys(shape: FileModel, at: Pointer, problems: FileProblems) -> None:
    known = [info.alias or name for name, info in type(shape).model_fields.items()]
    for key in (key for key in shape.model_extra or {} if key not in shape.for_editors):
        pointer = at / key
        if shape.rest_has_no_effect or key in shape.no_effect:
            message = f'{owner(pointer)}"{key}" has no effect here'
            problems.add("SF111", pointer, message, "Remove the key, or leave it.")
        else:
            note_unknown(pointer, key, known, problems)


def note_unknown(pointer: str, key: str, known: list[str], problems: FileProblems) -> None:
    """Report one key that nobody knows (SF108)."""
    message = f'{owner(pointer)}the key "{key}" is not known and is ignored{did_you_mean(key, known)}'
    problems.add("SF108", pointer, message, "Correct the spelling, or remove the key.")


def _empty(value: object) -> bool:
    return value is None or value in ("", [], {}) or (isinstance(value, str) and not value.strip())


def _report_missing(pointer: str, shape: FileModel, name: str, problems: FileProblems, codes: ShapeCodes) -> None:
    value, key = getattr(shape, name), type(shape).model_fields[name].alias or name
    code = code_at(pointer, codes.missing, "SF107")
    state = "is missing" if value is None else "is empty"
    # The pointer must lead somewhere: a key that is not there is reported at the object that lacks it.
    place = pointer.rpartition("/")[0] if value is None else pointer
    message = f'{owner(pointer)}the required key "{key}" {state}'
    note = field_notes()[type(shape).__name__][key]
    fix = f"Write {note.example}, for example." if note.example else f'Give "{key}" a value.'
    problems.add(code, place, message, fix)
