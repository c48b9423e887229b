"""Outside data becomes typed: the base of the file models, and their errors as problems."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Annotated, Any, ClassVar, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from stepflow.definition.diagnostics import FileProblems, closest_match, did_you_mean, hint, owner, shown
from stepflow.definition.json_text import Pointer
from stepflow.definition.yaml_text import read_yaml
from stepflow.domain.json import JsonObject, JsonValue, compact

#: Marks a key that must be there and not empty. It may still be None in the instance: the problem is reported.
NEEDED = "needed"
#: Marks a key for which `null` means the same as leaving it out.
NULL_ALLOWED = "null allowed"


@dataclass(frozen=True)
class Code:
    """Marks a key whose faults have codes of their own: when it is missing, and when its value is wrong.

    With `inside`, the latter is also the code of whatever is wrong inside the value.
    """

    missing: str = "SF107"
    wrong: str | None = None
    inside: bool = False


NeededText = Annotated[str | None, NEEDED]


def _describe(schema: dict[str, Any], model: type[BaseModel]) -> None:
    """Make the published JSON Schema say what `read_shape` checks, in the words of `fields.yaml`."""
    fields, notes = fields_of(model), field_notes().get(model.__name__, {})
    properties = schema.get("properties", {})
    schema["properties"] = {key: _described(properties[key], fields[key], note) for key, note in notes.items()}
    if needed := [key for key, info in fields.items() if NEEDED in info.metadata]:
        schema["required"] = needed
    if issubclass(model, FileModel) and not model.rest_has_no_effect:
        # An editor marks what `read_shape` reports.
        schema["additionalProperties"] = False


def _described(schema: dict[str, Any], info: FieldInfo, note: FieldNote) -> dict[str, Any]:
    described = schema if NULL_ALLOWED in info.metadata else _without_null(schema)
    described.pop("title", None)
    if isinstance(described.get("default"), dict):
        del described["default"]
    return {**described, "description": note.description}


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    branches = [one for one in schema.get("anyOf", ()) if one != {"type": "null"}]
    rest = {key: value for key, value in schema.items() if key != "anyOf" and (key, value) != ("default", None)}
    if len(branches) == 1:
        return {**branches[0], **rest}
    return {**rest, "anyOf": branches} if branches else rest


class FileModel(BaseModel):
    """Base of the file models: keys as in the file, strict types, unknown keys kept."""

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

    @property
    def description(self) -> str:
        """What an editor shows."""
        return f"{self.text} Left out: {self.otherwise}." if self.otherwise else self.text


@cache
def field_notes() -> Mapping[str, Mapping[str, FieldNote]]:
    """Model → key → note, out of `fields.yaml`."""
    models = read_yaml((files("stepflow.definition") / "fields.yaml").read_text(encoding="utf-8"))[1]
    return {model: {key: FieldNote(*row) for key, row in keys.items()} for model, keys in models.items()}


#: The code of a wrong value.
WRONG = "SF106"

Shape = TypeVar("Shape", bound=FileModel)


def read_shape(
    model: type[Shape],
    document: JsonObject,
    problems: FileProblems,
    origins: dict[str, str],
    *,
    excused: frozenset[str] = frozenset(),
) -> Shape:
    """Read `document` as `model`. What has a wrong type is reported and left out; a misspelled key is corrected in the
    document too, and `origins` gets its place in the file.

    `excused` are pointers of needed keys that this file may leave out.
    """
    _check_keys(model, document, Pointer(), problems, origins)
    document = copy.deepcopy(document)
    silent = set(excused)
    while True:
        try:
            shape = model.model_validate(document)
        except ValidationError as exc:
            # Items of a list are taken out from its end, so that the places of the others stay true.
            for error in sorted(exc.errors(include_url=False), key=_place_order, reverse=True):
                silent.add(_drop(document, error, _wrong_code(model, error["loc"]), problems))
        else:
            _review(shape, Pointer(), problems, silent)
            return shape


#: How like a known key an unknown one must be, from 0 to 1, to be that key misspelled.
LIKE_KEYS = 0.8


def _check_keys(
    model: type[FileModel], node: JsonValue, at: Pointer, problems: FileProblems, origins: dict[str, str]
) -> None:
    """Report keys that are not known or do nothing. Those that are nearly known ones (SF112) are read as if they were
    spelled right: one cause, one problem.

    `node` is changed; `origins` gets where each of them stands in the file, by its new pointer.
    """
    if not isinstance(node, dict):
        return
    fields = fields_of(model)
    for key in sorted(node.keys() - fields.keys() - model.for_editors):
        near = closest_match(key, fields.keys() - node.keys(), LIKE_KEYS)
        if model.rest_has_no_effect or key in model.no_effect:
            problems.report("SF111", at / key, f'"{key}" has no effect here', "Remove the key, or leave it.")
        elif near:
            problems.report("SF112", at / key, f'the key "{key}" is not known{hint(near)}', f'Write "{near}".')
            node[near] = node.pop(key)
            origins[at / near] = at / key
        else:
            note_unknown(at / key, key, list(fields), problems)
    for key, info in fields.items():
        inner, container = _model_in(info.annotation)
        value = node.get(key)
        if inner is not None and container is None:
            _check_keys(inner, value, at / key, problems, origins)
        elif inner is not None and isinstance(value, container or dict):
            for item, item_at in _items(value, at / key):
                _check_keys(inner, item, item_at, problems, origins)


def _items(value: object, at: Pointer) -> Iterator[tuple[Any, Pointer]]:
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield item, at / key


def _wrong_code(model: type[FileModel], location: tuple[str | int, ...]) -> str:
    """The code of a wrong value at a place inside a model."""
    code = outer = WRONG
    inner: type[FileModel] | None = model
    container: type | None = None
    for key in location:
        info = None if container or inner is None else fields_of(inner).get(str(key))
        mark = _code_of(info) if info else Code()
        code = mark.wrong or outer
        outer = code if mark.inside else outer
        inner, container = _model_in(info.annotation) if info else (inner, None)
    return code


def _model_in(annotation: object) -> tuple[type[FileModel] | None, type | None]:
    """The model that a value consists of, and the container that it stands in: a list, or a dict by names."""
    if isinstance(annotation, type) and issubclass(annotation, FileModel):
        return annotation, None
    origin = get_origin(annotation)
    for one in get_args(annotation):
        model, container = _model_in(one)
        if model is not None:
            return model, origin if origin in (dict, list) else container
    return None, None


def _code_of(info: FieldInfo) -> Code:
    return next((mark for mark in info.metadata if isinstance(mark, Code)), Code())


def fields_of(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """The fields of a model by their keys in the file."""
    return {info.alias or name: info for name, info in model.model_fields.items()}


def _place_order(error: ErrorDetails) -> list[tuple[int, str]]:
    return [(key, "") if isinstance(key, int) else (-1, key) for key in error["loc"]]


def _drop(document: JsonObject, error: ErrorDetails, code: str, problems: FileProblems) -> str:
    pointer = Pointer()
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
    message = f'"{last}" is {shown(error["input"])}, but it must {demand}'
    fix = _FIXES.get(error["type"], "Write another value{example}.").format(
        **context, example=_example(error["loc"][-1], error["type"], error["input"], context)
    )
    if "expected" in context:
        fix = "Use one of these words."
        if isinstance(error["input"], str):
            message += did_you_mean(error["input"], re.findall(r"'([^']*)'", context["expected"]))
    problems.report(code, pointer, message, fix)
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
    "less_than_equal": "be at most {le}",
    "too_short": "have at least {min_length} item",
    "string_pattern_mismatch": "be of the form {pattern}",
    "enum": "be one of {expected}",
    "literal_error": "be one of {expected}",
}


#: What to write instead, by the same types.
_FIXES = {
    "string_type": "Write a text in double quotes{example}.",
    "int_type": "Write a whole number without quotes{example}.",
    "float_type": "Write a number without quotes{example}.",
    "bool_type": "Write true or false without quotes{example}.",
    "list_type": "Write a list in brackets{example}.",
    "dict_type": "Write an object in braces{example}.",
    "model_type": "Write an object in braces{example}.",
    "greater_than_equal": "Write {ge} or more{example}.",
    "greater_than": "Write more than {gt}.",
    "less_than_equal": "Write {le} or less{example}.",
    "too_short": "Write one item or more, or leave the list out.",
    "string_pattern_mismatch": "Write a text that matches {pattern}.",
}


def _example(key: str | int, kind: str, value: object, context: Mapping[str, Any]) -> str:
    """`, for example "key": value`, with what was written as far as that can be of the right kind."""
    text = value if isinstance(value, str) else ""
    match kind:
        case "string_type":
            example = compact(str(value)) if isinstance(value, int | float) and not isinstance(value, bool) else '"…"'
        case "int_type" | "float_type":
            example = text.strip() if re.fullmatch(r"\s*[0-9]{1,9}\s*", text) else "600"
        case "bool_type":
            example = text.lower() if text.lower() in ("true", "false") else "true"
        case "list_type":
            example = compact([text]) if text else "[…]"
        case "greater_than_equal":
            example = str(context["ge"])
        case "less_than_equal":
            example = str(context["le"])
        case _:
            example = "{…}"
    return f", for example {example}" if isinstance(key, int) else f', for example "{key}": {example}'


def _review(shape: FileModel, at: Pointer, problems: FileProblems, silent: set[str], outer: str = WRONG) -> None:
    """Report what pydantic does not see: needed keys that are missing or empty, and null.

    `outer` is the code of a wrong value here, unless its key has another.
    """
    for name, info in type(shape).model_fields.items():
        key, value, mark = info.alias or name, getattr(shape, name), _code_of(info)
        pointer = at / key
        if NEEDED in info.metadata and _empty(value) and pointer not in silent:
            note = field_notes()[type(shape).__name__][key]
            example = note.example.replace("<its name>", at.rpartition("/")[2])
            fix = f"Write {example}, for example." if example else f'Give "{key}" a value.'
            message = f'{owner(pointer)}the required key "{key}" is {"missing" if value is None else "empty"}'
            # The pointer must lead somewhere: a key that is not there is reported at the object that lacks it.
            problems.add(mark.missing, at if value is None else pointer, message, fix)
        elif value is None and name in shape.model_fields_set and NULL_ALLOWED not in info.metadata:
            message = f'"{key}" is null, which says nothing here'
            problems.report(mark.wrong or outer, pointer, message, f'Leave "{key}" out.')
        for inner, inner_at in _shapes_in(value, pointer):
            _review(inner, inner_at, problems, silent, mark.wrong if mark.inside and mark.wrong else outer)


def _shapes_in(value: object, at: Pointer) -> Iterator[tuple[FileModel, Pointer]]:
    if isinstance(value, FileModel):
        yield value, at
    for item, item_at in _items(value, at):
        yield from _shapes_in(item, item_at)


def note_unknown(at: Pointer, key: str, known: list[str], problems: FileProblems) -> None:
    """Report one key that nobody knows (SF108)."""
    message = f'the key "{key}" is not known and is ignored{did_you_mean(key, known)}'
    problems.report("SF108", at, message, "Correct the spelling, or remove the key.")


def _empty(value: object) -> bool:
    return value is None or value in ("", [], {}) or (isinstance(value, str) and not value.strip())
