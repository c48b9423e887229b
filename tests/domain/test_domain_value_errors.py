"""What is wrong with a value is said in our own words, whichever model of whichever file refuses it."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any, get_args

import pytest
from pydantic import BaseModel, ValidationError
from pydantic_core.core_schema import ErrorType

import stepflow
from stepflow.domain.value_errors import DEMANDS, describe_error
from stepflow.modes.eval.cases import EvalCase

#: What each kind of pydantic's schemas may refuse: by itself, and with each limit.
PLAIN = {
    "bool": ("bool_type", "bool_parsing"),
    "datetime": ("datetime_type", "datetime_parsing", "datetime_from_date_parsing"),
    "dataclass": ("dataclass_type",),
    "dataclass-args": ("missing", "unexpected_keyword_argument"),
    "dict": ("dict_type",),
    "enum": ("enum",),
    "float": ("float_type", "float_parsing", "finite_number"),
    "int": ("int_type", "int_parsing", "int_from_float", "int_parsing_size"),
    "is-instance": ("is_instance_of",),
    "list": ("list_type",),
    "literal": ("literal_error",),
    "model": ("model_type", "model_attributes_type"),
    "model-fields": ("missing", "extra_forbidden"),
    "str": ("string_type", "string_unicode"),
    "tuple": ("tuple_type",),
}
LIMITS = {
    ("str", "min_length"): "string_too_short",
    ("str", "max_length"): "string_too_long",
    ("str", "pattern"): "string_pattern_mismatch",
    "ge": "greater_than_equal",
    "gt": "greater_than",
    "le": "less_than_equal",
    "min_length": "too_short",
}
#: What refuses nothing by itself, or is a check of ours, and what says how a value is refused, not whether.
WITHOUT = {
    *("any", "default", "definitions", "definition-ref", "dataclass-field", "model-field", "nullable", "union"),
    *("function-after", "function-before", "function-plain", "function-wrap", "no-info", "with-info"),
    *("json-or-python", "lax-or-strict"),
}
NO_LIMITS = {"allow_inf_nan", "strict", "strip_whitespace", "microseconds_precision"}
PARTS = {"schema", "items_schema", "keys_schema", "values_schema", "fields", "cls", "config", "members", "expected"}


def models() -> list[type[BaseModel]]:
    """Every model of the program."""
    for module in pkgutil.walk_packages(stepflow.__path__, "stepflow."):
        if "sandbox.child" not in module.name and not module.name.endswith("__main__"):
            importlib.import_module(module.name)

    def below(kind: type[BaseModel]) -> Iterator[type[BaseModel]]:
        for each in kind.__subclasses__():
            yield each
            yield from below(each)

    return [each for each in below(BaseModel) if each.__module__.startswith("stepflow.")]


def schemas_in(part: Any, seen: set[int]) -> Iterator[dict[str, Any]]:
    if id(part) in seen:
        return
    seen.add(id(part))
    if isinstance(part, dict):
        if isinstance(part.get("type"), str):
            yield part
        for key, value in part.items():
            if key not in ("metadata", "serialization"):
                yield from schemas_in(value, seen)
    elif isinstance(part, (list, tuple)):
        for each in part:
            yield from schemas_in(each, seen)


def raised_by(schema: dict[str, Any]) -> Iterator[str]:
    kind = schema["type"]
    yield from PLAIN.get(kind, ())
    for key in schema:
        if found := LIMITS.get((kind, key)) or LIMITS.get(key):
            yield found


def test_whatever_a_model_may_refuse_has_a_sentence_of_ours() -> None:
    kinds = models()
    assert {"Inputs", "Policy", "EvalCase", "Scenario"} <= {each.__name__ for each in kinds}
    seen = set[int]()
    for model in kinds:
        for schema in schemas_in(model.__pydantic_core_schema__, seen):
            assert schema["type"] in PLAIN or schema["type"] in WITHOUT, (model, schema["type"])
            assert {*raised_by(schema)} <= DEMANDS.keys(), (model, schema)


#: Something for every name that a message of pydantic's has.
FACTS = {
    **dict.fromkeys(("ge", "gt", "le", "lt", "min_length", "max_length", "actual_length"), 3),
    **{"expected": "'a' or 'b'", "pattern": r"^\d$", "class": "X", "class_name": "X", "error": "no", "field_type": "x"},
}


@pytest.mark.parametrize("kind", [*DEMANDS])
def test_no_sentence_is_pydantics(kind: str) -> None:
    assert kind in get_args(ErrorType)
    said = describe_error({"type": kind, "loc": (), "msg": "pydantic's", "input": None, "ctx": FACTS})
    assert said.startswith("must ")
    assert "{" not in said


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"checks": []}, "must have at least 1 item"),
        ({"checks": "x"}, "must be a list"),
        ({"issue": 3}, "must be a map"),
        ({"issue": {"title": " "}}, "must say something"),
        ({"issue": {"title": "x", "number": 0}}, "must be at least 1"),
        ({"base": "a" * 251}, "must have at most 250 characters"),
        ({"tests": {".git/x": ""}}, "git's own files cannot be test files"),
        ({"base": None}, "must be a string"),
    ],
)
def test_a_case_is_refused_in_words(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError) as caught:
        EvalCase.model_validate({"base": "x", "issue": {"title": "x"}, "checks": ("x",), **changed}, strict=False)
    assert said in [describe_error(each) for each in caught.value.errors()]
