"""A JSON object is found in what a model wrote, or none is."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepflow.engine.gate.answer import correct_step_id, find_object


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


@given(_PROSE)
def test_prose_without_a_brace_holds_none(text: str) -> None:
    assert find_object(text) is None


def test_a_wrong_step_id_is_corrected_and_told() -> None:
    assert correct_step_id({"stepId": "b", "x": 1}, "a") == ({"stepId": "a", "x": 1}, "b")


@pytest.mark.parametrize("answer", [{"stepId": "a"}, {}, {"stepId": 5}])
def test_a_right_missing_or_odd_step_id_is_left_alone(answer: dict) -> None:
    assert correct_step_id(answer, "a") == (answer, None)
