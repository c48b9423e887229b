"""A JSON object is found in what a model wrote, or none is; what of it does not fit is named."""

from __future__ import annotations

import json
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepflow.engine.gate import check_format, find_object


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a": 1}', {"a": 1}),
        ('  \n{"a": 1}\n ', {"a": 1}),
        ('Here it is:\n```json\n{"a": 1}\n```\nBye', {"a": 1}),
        ('```\n{"a": 1}\n```', {"a": 1}),
        ('~~~text\n{"a": 1}\n~~~', {"a": 1}),
        ('prose {"a": {"b": "}"}} more {"c": 2}', {"a": {"b": "}"}}),
        ('```json\nnot json\n```\nbut {"a": 1}', {"a": 1}),
        ('{broken {"a": 1}', {"a": 1}),
        ("[1, 2]", None),
        ('"text"', None),
        ('[{"a": 1}]', {"a": 1}),
        ("just prose", None),
        ('{"a": NaN}', None),
        ("", None),
    ],
)
def test_the_first_object_in_the_order_of_the_spec_wins(text: str, expected: dict | None) -> None:
    assert find_object(text) == expected


@pytest.mark.parametrize("text", ["{" * 200_000, '{"a":' * 50_000, "```\n{" * 50_000, "x" * 2_000_000])
def test_a_hostile_text_gives_nothing_and_takes_little_time(text: str) -> None:
    started = time.perf_counter()
    assert find_object(text) is None
    assert time.perf_counter() - started < 5


_PROSE = st.text(st.characters(exclude_characters="{`~", exclude_categories=("Cs",)))


@given(_PROSE, st.dictionaries(st.text(), st.integers() | st.text() | st.none()), _PROSE)
def test_an_object_is_found_in_whatever_prose(before: str, answer: dict[str, int | str | None], after: str) -> None:
    assert find_object(f"{before}{json.dumps(answer)}{after}") == answer


# --- the format: where, what is wrong, and what would be right --------------------------------------------------------

SCHEMA = {
    "type": "object",
    "required": ["next_action"],
    "additionalProperties": False,
    "properties": {
        "next_action": {
            "type": "object",
            "required": ["action"],
            "properties": {"action": {"enum": ["next", "repeat"]}},
        },
        "items": {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}}}},
        "either": {"anyOf": [{"type": "string"}, {"type": "integer", "minimum": 5}]},
        "when": {"type": "string", "format": "date"},
        "n": {"type": ["integer", "null"]},
    },
}


@pytest.mark.parametrize(
    ("answer", "path", "words"),
    [
        ({}, "(answer)", ["'next_action' is a required property"]),
        ({"next_action": {}}, "next_action", ["'action'"]),
        ({"next_action": {"action": "go"}}, "next_action.action", ['"go"', '["next","repeat"]']),
        ({"next_action": {"action": "next"}, "more": 1}, "(answer)", ["'more'"]),
        ({"next_action": {"action": "next"}, "items": [{}, {}, {"name": 1}]}, "items[2].name", ["1", "string"]),
        ({"next_action": {"action": "next"}, "either": 1}, "either", ["none of the allowed forms"]),
        ({"next_action": {"action": "next"}, "n": "x"}, "n", ["integer or null"]),
    ],
)
def test_an_error_says_where_and_what(answer: dict, path: str, words: list[str]) -> None:
    (error,) = check_format(answer, SCHEMA)
    assert error.path == path
    assert all(word in error.message for word in words), error.message


def test_errors_are_sorted_by_path_and_a_long_value_is_cut() -> None:
    errors = check_format({"next_action": {"action": "x" * 10_000}, "either": [], "n": "y"}, SCHEMA)
    assert [error.path for error in errors] == ["either", "n", "next_action.action"]
    assert all(len(error.message) < 500 for error in errors)


def test_a_fitting_answer_has_no_errors_and_format_is_not_asserted() -> None:
    assert check_format({"next_action": {"action": "next"}, "when": "whenever"}, SCHEMA) == ()


def test_a_second_schema_is_checked_too_and_a_missing_one_is_not() -> None:
    assert check_format({"next_action": {"action": "next"}}, SCHEMA, None) == ()
    assert len(check_format({"next_action": {"action": "next"}}, SCHEMA, {"required": ["proof"]})) == 1


EVIL = "^(?:a|a?)+$"
LONG = "a" * 100_000 + "!"


@pytest.mark.parametrize(
    ("schema", "answer"),
    [
        ({"properties": {"x": {"pattern": EVIL}}}, {"x": LONG}),
        ({"patternProperties": {EVIL: {}}, "unevaluatedProperties": False}, {LONG: 1}),
        ({"properties": {"x": {"items": {"pattern": "^(a+)+$"}}}}, {"x": ["a" * 1000 + "!"] * 1000}),
    ],
)
def test_a_pattern_that_takes_too_long_is_a_format_error_that_names_it(
    schema: dict, answer: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stepflow.engine.gate.SECONDS", 0.3)
    begun = time.monotonic()
    (error,) = check_format(answer, schema)
    assert re.search(r'the pattern "\^\(.*\)\+\$" takes longer than 0.3 s', error.message)
    assert time.monotonic() - begun < 60


@pytest.mark.parametrize("rest", ["additionalProperties", "unevaluatedProperties"])
def test_properties_that_patterns_name_are_checked_and_count_as_declared(rest: str) -> None:
    schema = {
        "properties": {"both_n": {"minimum": 2}},
        "patternProperties": {"_n$": {"type": "integer"}, "^in": {"maximum": 9}},
        rest: False,
    }
    assert check_format({"a_n": 1, "in_n": 3, "both_n": 2}, schema) == ()
    wrong = {"a_n": "x", "in_n": 10, "both_n": 1, "other": 1}
    assert [error.path for error in check_format(wrong, schema)] == ["(answer)", "a_n", "both_n", "in_n"]
    (deep,) = check_format({"list": [{"x_n": ""}]}, {"properties": {"list": {"items": schema}}})
    assert deep.path == "list[0].x_n"


def test_the_draft_of_the_schema_counts() -> None:
    tuple_form = {"properties": {"a": {"items": [{"type": "string"}]}}}
    assert check_format({"a": [1]}, {"$schema": "http://json-schema.org/draft-07/schema#", **tuple_form})
