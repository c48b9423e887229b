"""One walk finds each schema that the drafts know inside a schema, and nothing that is data."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from referencing.jsonschema import DRAFT7, DRAFT202012

from stepflow.engine.subschemas import change_schemas, walk

KEYWORDS = (
    *("properties", "patternProperties", "additionalProperties", "unevaluatedProperties", "propertyNames"),
    *("items", "prefixItems", "additionalItems", "unevaluatedItems", "contains", "anyOf", "oneOf", "allOf", "not"),
    *("if", "then", "else", "dependentSchemas", "dependencies", "$defs", "definitions", "contentSchema"),
    *("enum", "const", "default", "examples", "required", "type", "title"),
)
DATA = st.one_of(st.text(max_size=2), st.booleans(), st.integers(0, 3), st.lists(st.text(max_size=1), max_size=2))


@st.composite
def schemas(draw, depth: int = 2):
    inside = schemas(depth=depth - 1) if depth else st.just({})
    value = st.one_of(
        DATA, inside, st.lists(inside, max_size=2), st.dictionaries(st.sampled_from(["a", "~/", "items"]), inside)
    )
    return draw(st.dictionaries(st.sampled_from(KEYWORDS), value, max_size=4))


@given(schemas())
def test_the_walk_visits_what_either_draft_has_as_a_schema(schema) -> None:
    visited: list[object] = []
    copy = walk(schema, lambda sub, _: visited.append(sub) or sub)
    known = [sub for draft in (DRAFT7, DRAFT202012) for sub in subschemas(draft, schema)]
    assert ids_of_objects(visited) == ids_of_objects(known)
    assert copy == schema


@given(schemas())
def test_each_place_leads_to_its_schema(schema) -> None:
    def visit(sub, place):
        found = schema
        for key in place:
            found = found[key]
        assert found is sub
        return sub

    walk(schema, visit)


def test_the_innermost_schema_is_changed_first_and_data_stays() -> None:
    schema = {"type": "object", "properties": {"a": {"items": {"type": "string"}}}, "default": {"properties": {}}}
    order: list[object] = []

    def change(part):
        order.append(part.get("type"))
        return {**part, "title": len(order)}

    changed = change_schemas(schema, change)
    assert order == ["string", None, "object"]
    assert changed["properties"]["a"] == {"items": {"type": "string", "title": 1}, "title": 2}
    assert changed["default"] == {"properties": {}}


def subschemas(draft, schema):
    """What the draft's own library finds, where the form of the keywords lets it look."""
    for key, value in schema.items():
        try:
            yield from draft.subresources_of({key: value})
        except (AttributeError, TypeError):
            continue


def ids_of_objects(values):
    return {id(value) for value in values if isinstance(value, dict)}
