"""Read a document as its file model, with pydantic's errors as problems."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Annotated, TypeVar, get_args, get_origin

from pydantic import AfterValidator, BaseModel, ValidationError, ValidationInfo
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from stepflow.definition.diagnostics import FileProblems, closest_match, did_you_mean, format_value, hint, owner
from stepflow.definition.folder import unsafe_reason
from stepflow.definition.parsing import Pointer, node_at, read_yaml
from stepflow.domain.agent.agent_settings import Code, FileModel, refuse
from stepflow.domain.json import JsonObject
from stepflow.domain.value_errors import demand_of


@dataclass(frozen=True)
class FieldNote:
    """`source` is a mark such as S4; `otherwise` is the default of a key, empty if its model has it."""

    source: str
    text: str
    otherwise: str = ""
    example: str = ""

    @property
    def description(self) -> str:
        """The description that an editor shows."""
        return f"{self.text} Left out: {self.otherwise}." if self.otherwise else self.text


@cache
def field_notes() -> Mapping[str, Mapping[str, FieldNote]]:
    """Model → key → note, from `fields.yaml`."""
    models = read_yaml((files("stepflow.definition") / "fields.yaml").read_text(encoding="utf-8"))[1]
    return {model: {key: FieldNote(*row) for key, row in keys.items()} for model, keys in models.items()}


def fields_of(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """The fields of a model by their keys in the file."""
    return {info.alias or name: info for name, info in model.model_fields.items()}


#: The code of a wrong value.
WRONG = "SF106"
#: How similar to a known key an unknown one must be, from 0 to 1, to count as that key misspelled.
LIKE_KEYS = 0.8
_UNKNOWN = "extra_forbidden"

Shape = TypeVar("Shape", bound=FileModel)


def read_shape(model: type[Shape], document: JsonObject, problems: FileProblems) -> Shape | None:
    """The document as `model`; None after an error. Every fault in its shape is reported. A required key that is only
    misspelled is not missing, too. Entries that stand `apart` are left out when they are broken."""
    try:
        return model.model_validate(document, by_alias=True, by_name=False)
    except ValidationError as exc:
        errors = exc.errors(include_url=False)
    keys = [error for error in errors if error["type"] == _UNKNOWN]
    meant = [(*error["loc"][:-1], _report_key(model, document, error, problems)) for error in keys]
    misspelled = {location for location in meant if location[-1] is not None}
    values = [error["loc"] for error in errors if error not in keys]
    for error in errors:
        if error not in keys and not (error["type"] == "missing" and error["loc"] in misspelled):
            _report_value(model, error, problems)
    faulty = {*values, *misspelled}
    if any(len(location) < 2 or location[0] not in model.apart for location in faulty):
        return None
    entries = {(str(location[0]), str(location[1])) for location in faulty}
    problems.diagnostics.broken.update(Pointer() / kind / name for kind, name in entries)
    sound = {
        kind: {name: one for name, one in value.items() if (kind, name) not in entries}
        if kind in model.apart and isinstance(value, dict)
        else value
        for kind, value in document.items()
    }
    try:
        return model.model_validate(sound, by_alias=True, by_name=False, extra="ignore")
    except ValidationError:  # no sound entry is left where one is required
        return None


def _report_key(
    model: type[FileModel], document: JsonObject, error: ErrorDetails, problems: FileProblems
) -> str | None:
    """Report a key that is unknown or has no effect, and return the key that is meant, if it is clear."""
    key, at = error["loc"][-1], _pointer(error["loc"])
    holder = _declaration_at(model, error["loc"])[0]
    node = node_at(document, at.rpartition("/")[0])
    fields = fields_of(holder)
    near = closest_match(str(key), fields.keys() - (node if isinstance(node, dict) else {}).keys(), LIKE_KEYS)
    if key in holder.for_editors:
        return None
    if holder.rest_has_no_effect or key in holder.no_effect:
        problems.note_idle(at, f'"{key}" has no effect here')
        return None
    if near:
        problems.report("SF112", at, f'the key "{key}" is not known{hint(near)}', f'Write "{near}".')
    else:
        note_unknown(at, str(key), list(fields), problems)
    return near


def _report_value(model: type[FileModel], error: ErrorDetails, problems: FileProblems) -> None:
    """Report a value that is missing or wrong."""
    at, key, kind = _pointer(error["loc"]), error["loc"][-1], error["type"]
    holder, code, wrong = _declaration_at(model, error["loc"])
    if kind.startswith("SF"):
        problems.report(kind, at, error["ctx"]["message"], error["ctx"]["fix"])
    elif kind == "null":
        problems.report(wrong, at, f'"{key}" is null, which means nothing here', f'Leave "{key}" out.')
    elif kind in ("missing", "empty"):
        above = Pointer(at.rpartition("/")[0])
        notes = next(field_notes()[each.__name__] for each in holder.__mro__ if each.__name__ in field_notes())
        example = notes[str(key)].example.replace("<its name>", above.rpartition("/")[2])
        fix = f"Write {example}, for example." if example else f'Give "{key}" a value.'
        message = f'{owner(at)}the required key "{key}" is {kind}'
        # The pointer must lead somewhere: a key that is not there is reported at the object that lacks it.
        problems.add(code.missing, at if kind == "empty" else above, message, fix)
    else:
        problems.report(wrong, at, *_describe_wrong(error))


def _pointer(location: tuple[str | int, ...]) -> Pointer:
    at = Pointer()
    for key in location:
        at = at / key
    return at


def _declaration_at(model: type[FileModel], location: tuple[str | int, ...]) -> tuple[type[FileModel], Code, str]:
    """What is declared for a location: the model that has its last key, the codes of that key, and the one that is for
    a wrong value."""
    outer = wrong = WRONG
    holder, inner, in_container, mark = model, model, False, Code()
    for key in location:
        holder = inner
        info = None if in_container else fields_of(inner).get(str(key))
        mark = next((one for one in info.metadata if isinstance(one, Code)), Code()) if info else Code()
        wrong = mark.wrong or outer
        outer = wrong if mark.inside else outer
        found, in_container = _model_in(info.annotation) if info else (inner, False)
        if found is None:
            break
        inner = found
    return holder, mark, wrong


def _model_in(annotation: object) -> tuple[type[FileModel] | None, bool]:
    """The model of a value, and whether the value is a list or dict of that model."""
    if isinstance(annotation, type) and issubclass(annotation, FileModel):
        return annotation, False
    for one in get_args(annotation):
        model, in_container = _model_in(one)
        if model is not None:
            return model, in_container or get_origin(annotation) in (dict, list, tuple)
    return None, False


def note_unknown(at: Pointer, key: str, known: list[str], problems: FileProblems) -> None:
    """Report an unknown key (SF108)."""
    message = f'the key "{key}" is not known and is ignored{did_you_mean(key, known)}'
    problems.report("SF108", at, message, "Correct the spelling, or remove the key.")


def _describe_wrong(error: ErrorDetails) -> tuple[str, str]:
    """What is wrong with a value, and what to write instead."""
    key, value, context = error["loc"][-1], error["input"], error.get("ctx", {})
    fix = _FIXES.get(error["type"], "Write another value.")
    words = {**context, "key": "" if isinstance(key, int) else f'"{key}": '}
    message = f'"{key}" is {format_value(value)}, but it must {demand_of(error)}'
    if "expected" in context and isinstance(value, str):
        message += did_you_mean(value, re.findall(r"'([^']*)'", context["expected"]))
    return message, fix.format(**words)


_LIST = "Write a list in brackets, for example {key}[…]."
_OBJECT = "Write an object in braces, for example {key}{{…}}."
#: What to write instead, by pydantic's error types.
_FIXES = {
    "string_type": 'Write a string in double quotes, for example {key}"…".',
    "int_type": "Write a whole number without quotes, for example {key}600.",
    "float_type": "Write a number without quotes, for example {key}600.",
    "bool_type": "Write true or false without quotes, for example {key}true.",
    "list_type": _LIST,
    "tuple_type": _LIST,
    "dict_type": _OBJECT,
    "model_type": _OBJECT,
    "greater_than_equal": "Write {ge} or more.",
    "greater_than": "Write more than {gt}.",
    "less_than_equal": "Write {le} or less.",
    "too_short": "Write one item or more, or leave the list out.",
    "string_pattern_mismatch": "Write a string that matches {pattern}.",
    "enum": "Use one of these words.",
    "literal_error": "Use one of these words.",
}


def is_dotted(path: str) -> bool:
    """Whether a string is names separated by dots."""
    return all(part and part == part.strip() for part in path.split("."))


def dotted(code: str, message: str, fix: str = "Write names with dots between them.") -> AfterValidator:
    """Check that a string is a dotted path; `message` has `{}` in its place."""

    def check(value: str) -> str:
        if value.strip() and not is_dotted(value):
            raise refuse(code, message.format(value), fix)
        return value

    return AfterValidator(check)


def inside(message: str, fix: str = "Name a place inside the agent folder.") -> AfterValidator:
    """Check that a path cannot lead out of its folder; `message` has `{}` in place of the path, and what is wrong with
    it goes to its end."""

    def check(path: str) -> str:
        if reason := unsafe_reason(path):
            raise refuse("SF109", f"{message.format(path)} {reason}", fix)
        return path

    return AfterValidator(check)


#: The placeholders of a path template.
TEMPLATE_PARTS = ("c1", "c2", "c3", "edition", "adaptation")
_BRACES = re.compile(r"\{([^{}]*)\}")


def fill_path(template: str, parts: dict[str, str]) -> str:
    """The path that a sound template gives; a part that is not given is empty."""
    return _BRACES.sub(lambda match: parts.get(match[1], ""), template)


def _check_template(template: str, info: ValidationInfo) -> str:
    written = f'"{to_camel(info.field_name or "")}" is "{template}"'
    unknown = [part for part in _BRACES.findall(template) if part not in TEMPLATE_PARTS]
    if unknown or re.search(r"[{}]", _BRACES.sub("", template)):
        fault = f'"{{{unknown[0]}}}" is not part of an address' if unknown else "a brace is unmatched"
        fix = f"Use only {', '.join('{' + part + '}' for part in TEMPLATE_PARTS)}."
        raise refuse("SF514", f"{written}: {fault}", fix)
    if reason := unsafe_reason(fill_path(template, dict.fromkeys(TEMPLATE_PARTS, "x"))):
        raise refuse("SF109", f"{written}, which {reason}", "Name a place inside the agent folder.")
    return template


PathTemplate = Annotated[str, AfterValidator(_check_template)]
