"""Says what is wrong with a value, in one way for every file and input that people write. pydantic's own words are
about its types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

from pydantic_core import ErrorDetails
from pydantic_core.core_schema import ErrorType

from stepflow.domain.text import count

#: What a value must be, by pydantic's types of errors. The limits are those of the field.
DEMANDS: dict[str, str | Callable[[dict[str, Any]], str]] = {
    **dict.fromkeys(("string_type", "string_unicode"), "be a string"),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float", "int_parsing_size"), "be a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "be a number"),
    "finite_number": "be a finite number",
    **dict.fromkeys(("bool_type", "bool_parsing"), "be true or false"),
    **dict.fromkeys(("list_type", "tuple_type"), "be a list"),
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type", "dataclass_type"), "be an object"),
    **dict.fromkeys(("datetime_type", "datetime_parsing", "datetime_from_date_parsing"), "be a date and a time"),
    **dict.fromkeys(("timezone_naive", "timezone_aware"), "be a time that may be compared with others"),
    "greater_than_equal": "be at least {ge}",
    "greater_than": "be more than {gt}",
    "less_than_equal": "be at most {le}",
    "too_short": lambda limits: f"have at least {count(limits['min_length'], 'item')}",
    "string_too_short": lambda limits: f"have at least {count(limits['min_length'], 'character')}",
    "string_too_long": lambda limits: f"have at most {count(limits['max_length'], 'character')}",
    "string_pattern_mismatch": lambda limits: (
        "say something" if limits["pattern"] == r"\S" else f"be of the form {limits['pattern']}"
    ),
    **dict.fromkeys(("enum", "literal_error"), "be one of {expected}"),
    "missing": "be given",
    **dict.fromkeys(("extra_forbidden", "unexpected_keyword_argument"), "be left out, since there is no such key"),
    "none_required": "be left out",
    "is_instance_of": "be of another kind",
}
#: Errors whose message is our own.
_OWN = ("value_error", "assertion_error")


def demand_of(error: ErrorDetails) -> str:
    """Return what the value must be, to follow `must`: `be a whole number`."""
    demand = DEMANDS.get(error["type"], "be another value")
    limits = error.get("ctx", {})
    return demand(limits) if callable(demand) else demand.format(**limits)


def describe_error(error: ErrorDetails) -> str:
    """Say what is wrong in a YAML file, an input or an answer, to follow the place: `must be a map`."""
    kind = error["type"]
    if kind in _OWN:
        return str(error["ctx"]["error"])
    if kind in DEMANDS:
        return f"must {demand_of(error)}".replace("be an object", "be a map")
    # What is no type of pydantic's was raised by a check of ours, in its own words.
    return "must be another value" if kind in get_args(ErrorType) else error["msg"]
