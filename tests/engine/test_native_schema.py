"""What of an answer schema structured output is asked for, and what stays for words."""

from __future__ import annotations

import copy

import pytest
from anthropic import transform_schema
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from stepflow.engine.answer_schema import close_schema, native_schema
from tests.servers.messages_api_rules import schema_problems

STRING = {"type": "string"}


def sent(schema):
    """The schema as it goes over the wire."""
    native = native_schema(schema)
    return None if native is None else transform_schema(native)


def of(**properties):
    return {"type": "object", "properties": properties}


def test_every_object_at_every_depth_is_closed():
    schema = of(
        a=of(b=of(x=STRING)),
        c={"type": "array", "items": of(x=STRING)},
    )
    closed = close_schema(schema)
    properties = closed["properties"]
    for schema_part in (
        closed,
        properties["a"],
        properties["a"]["properties"]["b"],
        properties["c"]["items"],
    ):
        assert schema_part["additionalProperties"] is False


ASKS_FOR_B = {"properties": {"b": STRING}, "required": ["b"]}
FITS = {
    "a member of allOf": ({"allOf": [{**of(a=STRING), "minProperties": 1}, ASKS_FOR_B]}, {"a": "", "b": ""}),
    "beside allOf": ({**of(a=STRING), "allOf": [ASKS_FOR_B, {"minProperties": 2}]}, {"a": "", "b": ""}),
    "what if asks for": (
        {**of(a=STRING, b=STRING), "if": {"properties": {"a": {"const": "x"}}}, "then": {"required": ["b"]}},
        {"a": "x", "b": ""},
    ),
    "what else brings": ({**of(a=STRING), "if": {"required": ["a"]}, "else": ASKS_FOR_B}, {"b": ""}),
    "a choice beside properties": ({**of(a=STRING), "anyOf": [ASKS_FOR_B, of(c=STRING)]}, {"a": "", "b": ""}),
    "one of two": ({"oneOf": [ASKS_FOR_B, of(b={"type": "integer"})]}, {"b": ""}),
    "a not": ({"type": "object", "not": of(a=STRING)}, {"a": 1}),
    "deep inside": (
        {**of(x=of(a=STRING)), "allOf": [of(x=ASKS_FOR_B), {"minProperties": 1}]},
        {"x": {"a": "", "b": ""}},
    ),
    "deep inside a condition": (
        {**of(x=of(a=STRING, b=STRING)), "if": of(x=of(a={"const": "x"})), "then": of(x={"required": ["b"]})},
        {"x": {"a": "x", "b": ""}},
    ),
    "a pattern beside": (
        {**of(xa=of(a=STRING)), "patternProperties": {"^x": ASKS_FOR_B}},
        {"xa": {"a": "", "b": ""}},
    ),
    "items that are contained": (
        {"type": "array", "items": of(a=STRING), "contains": ASKS_FOR_B},
        [{"a": "", "b": ""}],
    ),
    "a dependency": ({**of(a=STRING), "dependentSchemas": {"a": ASKS_FOR_B}}, {"a": "", "b": ""}),
    "an undeclared key that is required": ({**of(a=STRING), "required": ["b"]}, {"b": 1}),
    "a least number of keys": ({"type": "object", "minProperties": 1}, {"b": 1}),
}


@pytest.mark.parametrize(("schema", "answer"), FITS.values(), ids=FITS)
def test_closing_a_schema_shuts_out_no_answer_that_needs_its_keys(schema, answer):
    closed = close_schema(schema)
    assert Draft202012Validator(schema).is_valid(answer)
    assert Draft202012Validator(closed).is_valid(answer)
    native = sent(closed)
    assert native is None or Draft202012Validator(native).is_valid(answer)


def test_what_conditions_only_speak_of_is_closed_and_asked_for_natively():
    schema, _ = FITS["deep inside a condition"]
    closed = close_schema(schema)
    assert closed["additionalProperties"] is False
    assert closed["properties"]["x"]["additionalProperties"] is False
    assert sent(closed)["properties"]["x"]["additionalProperties"] is False


def test_choices_that_stand_alone_are_closed_for_the_service():
    native = sent(close_schema(of(x={"anyOf": [of(a=STRING), of(b=STRING)]})))
    assert [one["additionalProperties"] for one in native["properties"]["x"]["anyOf"]] == [False, False]


@pytest.mark.parametrize("word", ["additionalProperties", "unevaluatedProperties"])
@pytest.mark.parametrize("value", [True, False, {"type": "string"}])
def test_an_explicit_value_is_kept(word, value):
    assert close_schema({"type": "object", word: value}) == {"type": "object", word: value}


def test_data_that_looks_like_a_schema_is_not_touched():
    data = {"type": "object", "properties": {}}
    schema = {"enum": [data], "const": data, "default": data, "examples": [data]}
    assert close_schema(schema) == schema


def test_the_authors_schema_is_not_changed():
    schema = of(a=of(), b={"type": ["string", "null"]})
    before = copy.deepcopy(schema)
    sent(close_schema(schema))
    assert schema == before


@pytest.mark.parametrize(
    ("given_schema", "native"),
    [
        ({"type": ["string", "null"]}, {"anyOf": [{"type": "string"}, {"type": "null"}]}),
        ({"const": "next"}, {"enum": ["next"]}),
        ({"type": "string", "enum": ["a", "b"]}, {"enum": ["a", "b"]}),
        ({"type": ["string", "null"], "enum": ["a", None]}, {"enum": ["a", None]}),
        ({"oneOf": [STRING, {"type": "integer"}]}, {"anyOf": [STRING, {"type": "integer"}]}),
        ({"allOf": [STRING]}, {"type": "string"}),
        ({"minLength": 1}, {"type": "string", "description": "{minLength: 1}"}),
        ({"type": "integer", "minimum": 1}, {"type": "integer", "description": "{minimum: 1}"}),
        (
            {"type": ["array", "null"], "items": STRING, "description": "d"},
            {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}], "description": "d"},
        ),
        (
            {**of(a=False, b=STRING), "$schema": "x", "$id": "y"},
            {**of(b=STRING), "additionalProperties": False},
        ),
    ],
)
def test_shapes_are_put_into_the_words_of_the_service(given_schema, native):
    assert sent(close_schema(of(x=given_schema)))["properties"]["x"] == native


@pytest.mark.parametrize(
    "inexpressible",
    [
        {},
        {"description": "anything"},
        True,
        {"type": "object"},
        {"properties": {}},
        {"type": "object", "additionalProperties": True},
        {"type": "object", "additionalProperties": {"type": "string"}},
        {"type": "object", "patternProperties": {"^x": {"type": "string"}}},
        {"type": "object", "properties": {}, "required": ["undeclared"]},
        {"type": "array"},
        {"type": "array", "items": [{"type": "string"}]},
        {"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "string"}},
        {"enum": [{"a": 1}]},
        {"enum": []},
        {"const": [1]},
        {"allOf": [{"type": "object", "properties": {"a": {}}}, {"type": "object", "properties": {"b": {}}}]},
        {"anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
        {"anyOf": [], "oneOf": []},
        {"not": {"type": "string"}},
        {"$ref": "#/definitions/left"},
        {"type": "no such type"},
        {"type": []},
    ],
)
def test_what_the_service_cannot_express_is_not_asked_for_natively(inexpressible):
    assert sent(of(x=inexpressible)) is None


@pytest.mark.parametrize("free", [{"type": "object"}, {"type": "object", "properties": {}}])
def test_an_object_that_declares_no_key_stays_free_form(free):
    assert close_schema(of(details=free))["properties"]["details"] == free


def test_an_object_that_allows_more_beside_its_properties_is_still_asked_for_natively():
    native = sent(close_schema({**of(a=STRING), "additionalProperties": True}))
    assert native["additionalProperties"] is False


def test_conditions_beside_a_type_become_words():
    schema = {**of(a=STRING, b=STRING), "anyOf": [{"required": ["a"]}, {"required": ["b"]}], "description": "Pick."}
    native = sent(close_schema(schema))
    assert "anyOf" not in native
    assert native["description"].startswith("Pick.")
    assert '"required":["b"]' in native["description"]


PLAIN = st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3)
TYPES = st.sampled_from(["object", "array", "string", "integer", "number", "boolean", "null"])


def schemas(inner):
    several = st.lists(inner, max_size=3)
    return st.fixed_dictionaries(
        {},
        optional={
            "type": TYPES | st.lists(TYPES, unique=True, max_size=3),
            "properties": st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
            "required": st.lists(st.sampled_from("abc"), unique=True),
            "additionalProperties": inner,
            "patternProperties": st.dictionaries(st.just("^x"), inner, max_size=1),
            "items": inner | several,
            "prefixItems": several,
            "anyOf": several,
            "oneOf": several,
            "allOf": several,
            "not": inner,
            "if": inner,
            "then": inner,
            "enum": st.lists(PLAIN | st.lists(PLAIN, max_size=1), max_size=3),
            "const": PLAIN | st.dictionaries(st.text(max_size=2), PLAIN, max_size=1),
            "minItems": st.integers(0, 3),
            "minLength": st.integers(0, 3),
            "minimum": st.integers(0, 3),
            "format": st.sampled_from(["date", "made-up"]),
            "description": st.text(max_size=5),
            "title": st.text(max_size=5),
            "default": PLAIN,
            "$schema": st.just("http://json-schema.org/draft-07/schema#"),
            "$defs": st.dictionaries(st.sampled_from("abc"), inner, max_size=1),
        },
    )


@pytest.mark.whole
@settings(max_examples=100)
@given(
    st.recursive(st.booleans() | schemas(st.booleans()), schemas, max_leaves=12).filter(lambda it: isinstance(it, dict))
)
def test_no_schema_stumbles_and_what_is_sent_is_in_the_subset_of_the_service(schema):
    closed = close_schema(schema)
    native = sent(closed)
    assert native is None or list(schema_problems(native)) == []
