"""Strict JSON, and the line of everything in it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepflow.definition.parsing import JsonFault, Pointer, Positions, parse_json

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


def pointers(value: object, at: Pointer) -> set[Pointer]:
    below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return {at}.union(*(pointers(item, at / key) for key, item in below))


@given(JSON, st.sampled_from([None, 0, 2, "\t"]), st.booleans())
def test_every_value_of_any_json_has_a_place(value: object, indent: object, ascii_only: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    assert parse_json(text) == value
    places = Positions(text)
    assert places.repeated == []
    assert set(places.spans) == pointers(value, Pointer())
    assert all(0 <= span.start < span.end <= len(text) for span in places.spans.values())


def test_lines_are_those_of_keys_with_tabs_and_wide_characters() -> None:
    text = '{\n\t"é": "デモ 🚀 \\" }",\r\n\t"b" : [\n\t\t1, -2e3,\n\t\t{"c/d~": null}\n\t]\n}'
    places = Positions(text)
    lines = {at: places.line(span.key[0] if span.key else span.start) for at, span in places.spans.items()}
    assert lines == {"": 1, "/é": 2, "/b": 3, "/b/0": 4, "/b/1": 4, "/b/2": 5, "/b/2/c~1d~0": 5}


@pytest.mark.parametrize(
    ("text", "says", "line"),
    [
        ("{\n  'a': 1}", "line 2, column 3", 2),
        ("", "line 1, column 1", 1),
        ('{"a": 1} // no', "Extra data", 1),
        ('{"a": Infinity}', "Infinity is not a JSON number", None),
        ('{"a": 1e999}', "too large", None),
        ("9" * 5000, "is not JSON that can be read", None),
        ("[" * 200 + "]" * 200, "deeper than 100", None),
        ("[" * 1_000_000, "deeper than 100", None),
        ('["\\udc00"]', "surrogate", None),
    ],
)
def test_what_is_no_strict_json_is_refused(text: str, says: str, line: int | None) -> None:
    with pytest.raises(JsonFault, match=says) as raised:
        parse_json(text)
    assert raised.value.line == line
