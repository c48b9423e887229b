"""Read a document as its file model: old layouts and names as the current ones, and pydantic's errors as problems; and
the JSON Schemas of the models, for editors and the reference page."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, Generic, TypeVar, cast, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from stepflow.definition.diagnostics import FileProblems, closest_match, did_you_mean, format_value, hint, owner
from stepflow.definition.file_models import AgentFile, CheckRegistry, GateRegistry
from stepflow.definition.parsing import Pointer, node_at, read_yaml
from stepflow.domain.agent.agent_settings import NULL_ALLOWED, Accepted, Code, FileModel
from stepflow.domain.json import JsonObject, JsonValue


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

Shape = TypeVar("Shape", bound=FileModel)


@dataclass
class _ShapeReader(Generic[Shape]):
    """Validates a document, reports what pydantic refuses, and validates again without it.

    Wrong values are left out, and a required key without a value is empty, or None if the model allows that. A
    misspelled key is read as the one that is meant, so that one mistake is one problem; `origins` receives its place in
    the file. `excused` are pointers of required keys that this file may leave out.
    """

    model: type[Shape]
    document: dict[str, Any]
    problems: FileProblems
    origins: dict[str, str]
    excused: frozenset[str]

    def read(self) -> Shape:
        while True:
            try:
                return self.model.model_validate(self.document, by_alias=True, by_name=False)
            except ValidationError as exc:
                # Keys first: a required one may only be misspelled. Items of a list are removed from its end, so
                # that the places of the others stay true.
                errors = sorted(exc.errors(include_url=False), key=_place_order, reverse=True)
                keys = [error for error in errors if error["type"] == "extra_forbidden"]
                for error in reversed(keys):
                    self.take_key(error)
                for error in errors:
                    if error not in keys:
                        self.take_value(error)

    def place(self, location: tuple[str | int, ...]) -> tuple[Any, Pointer]:
        """The container of the last key of a location, and its pointer."""
        node, at = self.document, Pointer()
        for key in location[:-1]:
            node, at = node[key], at / key  # type: ignore[index]  # pydantic walked the same way
        return node, at

    def take_key(self, error: ErrorDetails) -> None:
        """Report a key that is unknown or has no effect."""
        node, at = self.place(error["loc"])
        key = str(error["loc"][-1])
        model = _declaration_at(self.model, error["loc"]).model
        fields = fields_of(model)
        value = node.pop(key)
        near = closest_match(key, fields.keys() - node.keys(), LIKE_KEYS)
        if key in model.for_editors:
            return
        if model.rest_has_no_effect or key in model.no_effect:
            self.problems.note_idle(at / key, f'"{key}" has no effect here')
        elif near:
            self.problems.report("SF112", at / key, f'the key "{key}" is not known{hint(near)}', f'Write "{near}".')
            node[near] = value
            self.origins[at / near] = at / key
        else:
            note_unknown(at / key, key, list(fields), self.problems)

    def take_value(self, error: ErrorDetails) -> None:
        """Report a value that is missing or wrong, and leave it out."""
        node, at = self.place(error["loc"])
        key, kind = error["loc"][-1], error["type"]
        declared = _declaration_at(self.model, error["loc"])
        if kind == "missing" and isinstance(node, dict) and node.get(key) is not None:
            return  # it was only misspelled
        is_excused = at / key in self.excused
        if kind == "null" or (is_excused and kind == "missing" and key in node):
            message = f'"{key}" is null, which means nothing here'
            self.problems.report(declared.wrong, at / key, message, f'Leave "{key}" out.')
            node[key] = Accepted(None if kind == "null" else declared.blank())
        elif kind in ("missing", "empty"):
            if not is_excused:
                self.report_missing(declared, at, str(key), is_empty=kind == "empty")
            node[key] = Accepted(error["input"] if kind == "empty" else declared.blank())
        else:
            self.problems.report(declared.wrong, at / key, *_describe_wrong(error))
            if declared.info is not None and declared.info.is_required():
                node[key] = Accepted(declared.blank())
            else:
                del node[key]

    def report_missing(self, declared: _Declared, at: Pointer, key: str, *, is_empty: bool) -> None:
        example = field_notes()[declared.model.__name__][key].example.replace("<its name>", at.rpartition("/")[2])
        fix = f"Write {example}, for example." if example else f'Give "{key}" a value.'
        message = f'{owner(at / key)}the required key "{key}" is {"empty" if is_empty else "missing"}'
        # The pointer must lead somewhere: a key that is not there is reported at the object that lacks it.
        self.problems.add(declared.missing, at / key if is_empty else at, message, fix)


def _place_order(error: ErrorDetails) -> list[tuple[int, str]]:
    return [(key, "") if isinstance(key, int) else (-1, key) for key in error["loc"]]


@dataclass(frozen=True)
class _Declared:
    """What is declared for a location: the model that has its last key, that key's field unless it is an item, and the
    codes for what can be wrong."""

    model: type[FileModel]
    info: FieldInfo | None
    missing: str
    wrong: str

    def blank(self) -> object:
        """What stands in for the value of a required key."""
        annotation = self.info.annotation if self.info else None
        origin = get_origin(annotation)
        if origin in (list, dict):
            return origin()
        return None if type(None) in get_args(annotation) else ""


def _declaration_at(model: type[FileModel], location: tuple[str | int, ...]) -> _Declared:
    outer = WRONG
    inner: type[FileModel] | None = model
    in_container = False
    for key in location:
        holder = inner or model
        info = None if in_container or inner is None else fields_of(inner).get(str(key))
        mark = next((one for one in info.metadata if isinstance(one, Code)), Code()) if info else Code()
        declared = _Declared(model=holder, info=info, missing=mark.missing, wrong=mark.wrong or outer)
        outer = declared.wrong if mark.inside else outer
        inner, in_container = _model_in(info.annotation) if info else (inner, False)
    return declared


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
    demand, fix = _WORDS.get(error["type"], ("be another value ({msg})", "Write another value."))
    words = {**context, "msg": error["msg"], "key": "" if isinstance(key, int) else f'"{key}": '}
    message = f'"{key}" is {format_value(value)}, but it must {demand.format(**words)}'
    if "expected" in context and isinstance(value, str):
        message += did_you_mean(value, re.findall(r"'([^']*)'", context["expected"]))
    return message, fix.format(**words)


_LIST = ("be a list", "Write a list in brackets, for example {key}[…].")
_OBJECT = ("be an object", "Write an object in braces, for example {key}{{…}}.")
#: What a value must be and what to write instead, by pydantic's error types.
_WORDS = {
    "string_type": ("be a string", 'Write a string in double quotes, for example {key}"…".'),
    "int_type": ("be a whole number", "Write a whole number without quotes, for example {key}600."),
    "float_type": ("be a number", "Write a number without quotes, for example {key}600."),
    "bool_type": ("be true or false", "Write true or false without quotes, for example {key}true."),
    "list_type": _LIST,
    "tuple_type": _LIST,
    "dict_type": _OBJECT,
    "model_type": _OBJECT,
    "greater_than_equal": ("be at least {ge}", "Write {ge} or more."),
    "greater_than": ("be more than {gt}", "Write more than {gt}."),
    "less_than_equal": ("be at most {le}", "Write {le} or less."),
    "too_short": ("have at least {min_length} item", "Write one item or more, or leave the list out."),
    "string_pattern_mismatch": ("be of the form {pattern}", "Write a string that matches {pattern}."),
    "enum": ("be one of {expected}", "Use one of these words."),
    "literal_error": ("be one of {expected}", "Use one of these words."),
}


#: Old place → new place in agent.json. Both layouts may use them.
MOVES = (
    ("behavior.systemPromptPath", "runner.flow.systemPromptPath"),
    ("behavior.allowedTools", "runner.boundaries.allowedTools"),
    ("behavior.permissionMode", "runner.boundaries.permissionMode"),
    ("behavior.completionType", "runner.verdict.type"),
    ("behavior.completionConfig", "runner.verdict.config"),
    ("runner.completion.type", "runner.verdict.type"),
    ("runner.completion.config", "runner.verdict.config"),
    ("prompts.registry", "runner.flow.prompts.registry"),
    ("prompts.fallbackDir", "runner.flow.prompts.fallbackDir"),
    ("github", "runner.integrations.github"),
    ("logging", "runner.logging"),
    ("runner.verdict.config.completionKeyword", "runner.verdict.config.verdictKeyword"),
)

#: Old places that have no effect today.
_DEAD = (
    *("actions", "worktree", "finalize"),
    *("behavior.sandboxConfig", "behavior.disableSandbox", "behavior.preCloseValidation"),
)

#: Old name → new name in the registry: its own keys, and one key of each validation step.
TOP_NAMES = (("completionSteps", "validationSteps"), ("completionPatterns", "failurePatterns"))
CONDITION_NAMES = ("completionConditions", "validationConditions")

OLD_VERDICT_TYPES = {
    "issue": "poll:state",
    "externalState": "poll:state",
    "iterate": "count:iteration",
    "iterationBudget": "count:iteration",
    "checkBudget": "count:check",
    "manual": "detect:keyword",
    "keywordSignal": "detect:keyword",
    "structuredSignal": "detect:structured",
    "stepFlow": "detect:graph",
    "stepMachine": "detect:graph",
    "composite": "meta:composite",
    "custom": "meta:custom",
}


@dataclass(kw_only=True)
class Renamed:
    """A file with current names only. `origins` maps a pointer into `document` to the one in the file."""

    document: JsonObject
    origins: dict[str, str] = field(default_factory=dict)
    old_names: list[str] = field(default_factory=list)

    def origin(self, pointer: str) -> str:
        """The pointer in the file for a pointer into `document`."""
        for new, old in reversed(self.origins.items()):
            if pointer == new or pointer.startswith(new + "/"):
                return self.origin(old + pointer[len(new) :])
        return pointer

    def read(
        self, model: type[Shape], problems: FileProblems, *, excused: frozenset[str] = frozenset()
    ) -> tuple[Shape, FileProblems]:
        """The document as `model`, after each fault in it was reported, and its problems, whose pointers have the names
        as they are written. `excused` are pointers of required keys that this file may leave out."""
        if self.old_names:
            message = f"old layout or old names, read as the new ones: {', '.join(self.old_names)}"
            problems.add("SF110", "", message, "Use the current names; until then the old ones keep working.")
        written = problems.diagnostics.of(problems.file, self.origin)
        return _ShapeReader(model, copy.deepcopy(self.document), written, self.origins, excused).read(), written


def to_runner_layout(document: JsonObject, problems: FileProblems) -> Renamed:
    """`agent.json` with everything old moved to its current place; reports problems with the layout itself."""
    layout = Renamed(document=copy.deepcopy(document))
    if "behavior" in document and "runner" in document:
        message = 'the file has both "runner" (the current layout) and "behavior" (the old one)'
        problems.add("SF205", "/behavior", message, 'Move what is in "behavior" into "runner" and remove it.')
        del layout.document["behavior"]
    for name in _DEAD:
        if holder := _holder(layout.document, name):
            del holder[_last(name)]
            layout.old_names.append(name)
            problems.note_idle(_pointer(name), f'"{name}" has no effect here')
    for old, new in MOVES:
        _move(layout, old, new)
    _drop_rest(layout, problems)
    _rename_verdict_types(layout)
    if is_flat(document):
        layout.document.setdefault("runner", {})
    return layout


def is_flat(document: JsonObject) -> bool:
    """Whether an agent.json has the old layout, which requires fewer keys."""
    return "behavior" in document and "runner" not in document


def _pointer(place: str) -> Pointer:
    return Pointer(f"/{place.replace('.', '/')}")


def _last(place: str) -> str:
    return place.rpartition(".")[2]


def _holder(document: JsonObject, place: str) -> JsonObject:
    """The object that has the last key of a place; an empty one if the key is missing."""
    node = node_at(document, _pointer(place).rpartition("/")[0])
    return node if isinstance(node, dict) and _last(place) in node else {}


def _move(layout: Renamed, old: str, new: str) -> None:
    holder = _holder(layout.document, old)
    if not holder:
        return
    value = holder.pop(_last(old))
    layout.old_names.append(old)
    node = layout.document
    for key in new.split(".")[:-1]:
        inner = node.setdefault(key, {})
        if not isinstance(inner, dict):
            return  # the new place has a wrong type, which is reported there
        node = inner
    if _last(new) not in node:
        node[_last(new)] = value
        layout.origins[_pointer(new)] = _pointer(old)


def _drop_rest(layout: Renamed, problems: FileProblems) -> None:
    """Report what is left of the old containers: unknown keys, or containers of a wrong type."""
    for place in ("behavior", "prompts", "runner.completion"):
        rest = _holder(layout.document, place).pop(_last(place), {})
        if not isinstance(rest, dict):
            problems.add("SF106", _pointer(place), f'"{place}" must be an object', "Write it as an object.")
            continue
        known = [_last(old) for old, _ in MOVES if old.rpartition(".")[0] == place]
        for key in rest:
            note_unknown(_pointer(place) / key, key, known, problems)


def _rename_verdict_types(layout: Renamed) -> None:
    verdict = node_at(layout.document, "/runner/verdict")
    conditions = node_at(verdict, "/config/conditions")
    for holder in (verdict, *(conditions if isinstance(conditions, list) else ())):
        old = holder.get("type") if isinstance(holder, dict) else None
        if isinstance(holder, dict) and isinstance(old, str) and old in OLD_VERDICT_TYPES:
            holder["type"] = OLD_VERDICT_TYPES[old]
            layout.old_names.append(f'verdict type "{old}"')


def to_new_names(document: JsonObject) -> Renamed:
    """Rename the keys that S3 called something else; if both names are there, the new one wins."""
    renamed = Renamed(document=copy.deepcopy(document))
    for old, new in TOP_NAMES:
        _rename(renamed, renamed.document, Pointer(), old, new)
    entries = renamed.document.get("validationSteps")
    for key, entry in entries.items() if isinstance(entries, dict) else ():
        _rename(renamed, entry, Pointer("/validationSteps") / key, *CONDITION_NAMES)
    mapping = renamed.document.get("entryStepMapping")
    for word in mapping if isinstance(mapping, dict) else ():
        if word in OLD_VERDICT_TYPES:
            renamed.old_names.append(f'verdict type "{word}"')
    return renamed


def _rename(renamed: Renamed, holder: JsonValue, at: Pointer, old: str, new: str) -> None:
    if isinstance(holder, dict) and old in holder and new not in holder:
        holder[new] = holder.pop(old)
        renamed.origins[at / new] = at / old
        renamed.old_names.append(old)


DRAFT = "https://json-schema.org/draft/2020-12/schema"


def agent_schema() -> JsonObject:
    """JSON Schema of `agent.json` in its current layout."""
    return _publish_model(AgentFile, "A stepflow agent (agent.json)")


def registry_schema() -> JsonObject:
    """JSON Schema of `steps_registry.json` in either dialect; the keys of a step decide which."""
    gates, checks = gate_schema(), check_schema()
    definitions = {**cast("JsonObject", checks.pop("$defs")), **cast("JsonObject", gates.pop("$defs"))}
    marks: JsonValue = [{"required": [key]} for key in ("check", "prompt", "iterations")]
    steps: JsonObject = {"additionalProperties": {"not": {"anyOf": marks}}}
    del gates["$schema"], checks["$schema"]
    return {
        "$schema": DRAFT,
        "title": "A stepflow step registry (steps_registry.json)",
        "if": {"properties": {"steps": steps, "basePath": False}},
        "then": gates,
        "else": checks,
        "$defs": definitions,
    }


def gate_schema() -> JsonObject:
    """JSON Schema of a registry in the gate dialect."""
    return _publish_model(GateRegistry, "A step registry with gates")


def check_schema() -> JsonObject:
    """JSON Schema of a registry in the check dialect."""
    return _publish_model(CheckRegistry, "A step registry with checks")


def _publish_model(model: type[FileModel], title: str) -> JsonObject:
    schema = model.model_json_schema()
    definitions = schema.pop("$defs")
    models = {each.__name__: each for each in _models(FileModel)}
    for name, each in {model.__name__: schema, **definitions}.items():
        if name in models:
            _describe(each, models[name])
        each.pop("title", None)  # with the description it says how the models are built
        each.pop("description", None)
    address: JsonObject = {"type": "string", "description": "Address of this schema, for editors."}
    schema["properties"] = {"$schema": address, **schema["properties"]}
    return {"$schema": DRAFT, "title": title, **schema, "$defs": definitions}


def _models(base: type[FileModel]) -> Iterator[type[FileModel]]:
    for each in base.__subclasses__():
        yield each
        yield from _models(each)


def _describe(schema: dict[str, Any], model: type[FileModel]) -> None:
    """Describe each key as `fields.yaml` does, in its order, and drop what only shows how the model is built."""
    fields, properties = fields_of(model), schema.get("properties", {})
    for key, note in field_notes()[model.__name__].items():
        described = properties.pop(key)
        if NULL_ALLOWED not in fields[key].metadata:
            described = _without_null(described)
        described.pop("title", None)
        if isinstance(described.get("default"), dict):
            del described["default"]
        properties[key] = {**described, "description": note.description}
    if model.rest_has_no_effect:
        schema["additionalProperties"] = True


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    branches = [one for one in schema.get("anyOf", ()) if one != {"type": "null"}]
    rest = {key: value for key, value in schema.items() if key != "anyOf" and (key, value) != ("default", None)}
    if len(branches) == 1:
        return {**branches[0], **rest}
    return {**rest, "anyOf": branches} if branches else rest
