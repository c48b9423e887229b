"""What an answer that fits a schema can have at a path."""

from __future__ import annotations

from typing import Any

import pytest

from stepflow.engine.answer_schema import look_into

TEXT = {"type": "string"}


def an_object(*, closed: bool = False, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, **({"additionalProperties": False} if closed else {})}


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        (an_object(a=TEXT), "a"),
        (an_object(a=an_object(b=TEXT)), "a.b"),
        ({"properties": {"a": {}}}, "a"),
        (an_object(a={"type": ["string", "null"]}), "a"),
        (an_object(a={"enum": ["yes", 3]}), "a"),
        (an_object(a={"const": "yes"}), "a"),
        (an_object(a={"anyOf": [{"type": "number"}, TEXT]}), "a"),
        (an_object(a={"allOf": [{}, TEXT]}), "a"),
        ({"type": "object", "additionalProperties": TEXT}, "a"),
        ({"anyOf": [an_object(closed=True, a=TEXT), an_object(closed=True, b=TEXT)]}, "b"),
        ({"allOf": [an_object(a=TEXT), an_object(b=TEXT)]}, "b"),
        (an_object(a={"type": "array", "items": TEXT}), "a.0"),
        (an_object(a={"type": "array", "prefixItems": [{"type": "number"}, TEXT]}), "a.1"),
        (an_object(a={"type": "array", "items": [TEXT], "additionalItems": {"type": "number"}}), "a.0"),
        (an_object(a={"type": "array"}), "a.0"),
    ],
)
def test_a_text_can_be_there(schema: dict[str, Any], path: str) -> None:
    held = look_into(schema, path)
    assert (held.blocked, held.undeclared) == ("", "")
    assert held.takes_text()


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "number"}, ()),
        ({"type": ["number", "null"]}, ()),
        ({"enum": [1, 2]}, ()),
        ({"enum": ["maybe"]}, ("yes", "no")),
        ({"const": "maybe"}, ("yes",)),
        ({"anyOf": [{"type": "number"}, {"enum": ["maybe"]}]}, ("yes",)),
        ({"type": "string", "allOf": [{"enum": ["maybe"]}]}, ("yes",)),
    ],
)
def test_none_of_these_words_can_be_there(schema: dict[str, Any], words: tuple[str, ...]) -> None:
    held = look_into(an_object(a=schema), "a")
    assert held.blocked == ""
    assert not held.takes_text(words)


def test_one_of_several_words_is_enough() -> None:
    assert look_into(an_object(a={"enum": ["maybe", "yes"]}), "a").takes_text(("yes", "no"))


@pytest.mark.parametrize(
    ("schema", "path", "why"),
    [
        (an_object(closed=True, a=TEXT), "b", 'the answer is closed and has no "b"'),
        (an_object(closed=True), "b", "the answer is an object that allows no properties"),
        (an_object(a=False), "a", 'the answer forbids "a"'),
        (an_object(a=TEXT), "a.b", '"a" is of the type string, which has no parts'),
        (an_object(a={"type": "array"}), "a.first", '"a" is of the type array, which has no parts'),
        (an_object(a={"enum": [{"c": 1}, "x"]}), "a.b", '"a" can have no "b"'),
        (an_object(a={"type": "array", "items": False}), "a.0", '"a.0" can have no value'),
        ({"oneOf": [an_object(closed=True, a=TEXT), TEXT]}, "b", 'the answer is closed and has no "b"'),
        ({"allOf": [TEXT]}, "b", "the answer is of the type string, which has no parts"),
    ],
)
def test_nothing_can_be_there(schema: dict[str, Any], path: str, why: str) -> None:
    assert look_into(schema, path).blocked == why


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (an_object(a=TEXT), 'the answer does not declare "b"'),
        ({"type": "object", "patternProperties": {"^b": TEXT}, "additionalProperties": False}, "the answer does not"),
        (an_object(b=True), '"b" does not declare "c"'),
    ],
)
def test_what_no_schema_names_is_undeclared(schema: dict[str, Any], why: str) -> None:
    held = look_into(schema, "b.c" if "c" in why.split('"') else "b")
    assert held.blocked == ""
    assert held.undeclared.startswith(why)
    assert held.takes_text()
