"""Answer schemas: what references and members of allOf become (registry.md §8)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from load_cases import DEFINITIONS  # noqa: F401  # makes the folder importable in the same way everywhere

from stepflow.definition.diagnostics import Diagnostics
from stepflow.definition.files.json_text import Pointer
from stepflow.definition.folder import AgentFolder
from stepflow.definition.schemas import Schemas
from stepflow.domain.json import JsonObject, JsonValue

DRAFT_07 = {"$schema": "http://json-schema.org/draft-07/schema#"}


def resolve(tmp_path: Path, ref: JsonValue = "#/", **files: JsonValue) -> tuple[JsonObject | None, list[str]]:
    folder = tmp_path / ".agent/demo"
    for name, document in files.items():
        path = folder / "schemas" / f"{name.replace('__', '/')}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document))
    diagnostics = Diagnostics()
    schemas = Schemas(
        folder=AgentFolder(folder, root=tmp_path),
        base="schemas",
        default="a.json",
        agent_id="demo",
        registry=diagnostics.of("steps_registry.json"),
    )
    schema = schemas.by_ref(ref, Pointer("/steps/a"))
    return schema, [problem.code for problem in diagnostics.problems(prefix=".agent/demo")]


def one(tmp_path: Path, schema: JsonValue, **files: JsonValue) -> JsonObject:
    resolved, codes = resolve(tmp_path, a=schema, **files)
    assert codes == []
    assert resolved is not None
    return resolved


def test_members_of_all_of_are_merged_before_the_own_keywords(tmp_path: Path) -> None:
    schema = {
        "type": "object",
        "description": "own",
        "allOf": [
            {"description": "first", "required": ["a", "b"], "properties": {"a": {"type": "string", "minLength": 3}}},
            {"title": "second", "required": ["b", "c"], "properties": {"b": True}, "additionalProperties": False},
        ],
        "required": ["d", "a"],
        "properties": {"a": {"type": "string"}, "d": True},
    }
    assert one(tmp_path, schema) == {
        "type": "object",
        "description": "own",
        "title": "second",
        "required": ["a", "b", "c", "d"],
        "properties": {"a": {"type": "string"}, "b": True, "d": True},
        "additionalProperties": False,
    }


def test_members_that_say_more_stay_in_all_of(tmp_path: Path) -> None:
    schema = {
        "type": "object",
        "allOf": [{"required": ["a"]}, {"minProperties": 2}, {"if": {"required": ["b"]}}, True],
    }
    assert one(tmp_path, schema) == {
        "type": "object",
        "required": ["a"],
        "allOf": [{"minProperties": 2}, {"if": {"required": ["b"]}}, True],
    }


def test_beside_a_ref_draft_07_drops_and_2020_12_merges(tmp_path: Path) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/x", "description": "own", "minLength": 1}},
        "$defs": {"x": {"type": "string", "description": "x"}},
    }
    merged = one(tmp_path / "new", schema)["properties"]
    assert merged == {"a": {"type": "string", "description": "own", "minLength": 1}}
    plain = one(tmp_path / "old", {**DRAFT_07, **schema})
    assert plain["properties"] == {"a": {"type": "string", "description": "x"}}
    assert plain["$schema"] == DRAFT_07["$schema"]


def test_a_boolean_beside_which_something_stands_is_the_boolean_rule(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"a": {"$ref": "#/$defs/x"}}, "$defs": {"x": False}}
    assert one(tmp_path, schema)["properties"] == {"a": False}


def test_never_stays_never_when_something_stands_beside_the_reference(tmp_path: Path) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/x", "title": "t"}, "b": {"$ref": "#/$defs/y", "title": "t"}},
        "$defs": {"x": False, "y": True},
    }
    assert one(tmp_path, schema)["properties"] == {"a": False, "b": {"title": "t"}}


def test_one_reference_may_be_used_twice(tmp_path: Path) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"$ref": "b.json"}, "b": {"$ref": "b.json#/$defs/y%20z"}, "c": {"$ref": "b.json#"}},
    }
    other = {"title": "whole", "$id": "http://x/", "$anchor": "q", "$defs": {"y z": {"type": "null"}}}
    assert one(tmp_path, schema, b=other)["properties"] == {
        "a": {"title": "whole", "$defs": {"y z": {"type": "null"}}},
        "b": {"type": "null"},
        "c": {"title": "whole", "$defs": {"y z": {"type": "null"}}},
    }


def test_a_reference_is_relative_to_its_own_file(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"a": {"$ref": "sub/b.json"}}}
    files = {"sub__b": {"items": {"$ref": "c.json"}}, "sub__c": {"const": 1}}
    assert one(tmp_path, schema, **files)["properties"] == {"a": {"items": {"const": 1}}}


def test_only_places_of_schemas_are_expanded(tmp_path: Path) -> None:
    ref = {"$ref": "http://example.com"}
    schema = {
        "type": "object",
        "properties": {"$ref": {"type": "string"}},
        "const": ref,
        "enum": [ref],
        "default": ref,
        "examples": [ref],
    }
    assert one(tmp_path, schema) == schema


def test_every_place_of_schemas_is_expanded(tmp_path: Path) -> None:
    ref, x = {"$ref": "#/$defs/x"}, {"type": "null"}
    single = ["additionalProperties", "propertyNames", "contains", "if", "then", "else", "not", "unevaluatedItems"]
    listed = ["anyOf", "oneOf", "prefixItems"]
    named = ["patternProperties", "dependentSchemas"]
    inner = {**dict.fromkeys(single, ref), **{key: [ref] for key in listed}, **{key: {"n": ref} for key in named}}
    wanted = {**dict.fromkeys(single, x), **{key: [x] for key in listed}, **{key: {"n": x} for key in named}}
    schema = {"type": "object", "properties": {"a": inner}, "$defs": {"x": x}}
    assert one(tmp_path, schema)["properties"] == {"a": wanted}


@pytest.mark.parametrize(
    ("ref", "title"),
    [
        ("x", "in definitions"),
        ("y", "in defs"),
        ("z", "at the top"),
        ("/definitions/x", "in definitions"),
        ("#/$defs/a~1b~0", "escaped"),
        ("#/list/1", "item"),
    ],
)
def test_an_identifier_is_looked_up(ref: str, title: str, tmp_path: Path) -> None:
    def titled(title: str) -> JsonObject:
        return {"type": "object", "title": title}

    document = {
        "definitions": {"x": titled("in definitions")},
        "$defs": {"x": titled("not this"), "y": titled("in defs"), "a/b~": titled("escaped")},
        "x": titled("not this either"),
        "z": titled("at the top"),
        "list": [1, titled("item")],
    }
    schema, codes = resolve(tmp_path, {"file": "a.json", "schema": ref}, a=document)
    assert codes == []
    assert schema is not None
    assert schema["title"] == title


@pytest.mark.parametrize(
    ("ref", "code"),
    [
        ("", "SF402"),
        ("#", "SF402"),
        ("##/x", "SF402"),
        ("#x", "SF402"),
        ("/", "SF402"),
        ("//x", "SF402"),
        ("#/definitions//x", "SF402"),
        ("#/definitions/x/", "SF402"),
        ("#/definitions/gone", "SF403"),
        ("#/list/7", "SF403"),
        ("#/list/x", "SF403"),
        ("#/list/0/x", "SF403"),
        ("number", "SF403"),
    ],
)
def test_a_malformed_or_missing_identifier_is_told_apart(ref: str, code: str, tmp_path: Path) -> None:
    document = {"definitions": {"x": {"type": "object"}}, "list": [1], "number": 1}
    assert resolve(tmp_path, {"file": "a.json", "schema": ref}, a=document) == (None, [code])


@pytest.mark.parametrize(
    "root",
    [
        {"type": ["object"]},
        {"properties": {}},
        {"anyOf": [{"type": "object"}, {"properties": {}}]},
        {"oneOf": [{"type": "object"}]},
        {"allOf": [True, {"type": "object", "minProperties": 1}]},
        {"allOf": [{"type": "object", "minProperties": 1}, {"minProperties": 1}]},
    ],
)
def test_a_root_that_describes_an_object_is_accepted(root: JsonObject, tmp_path: Path) -> None:
    assert resolve(tmp_path, a=root)[1] == []


@pytest.mark.parametrize("root", [{}, {"type": "array"}, {"type": ["object", "null"]}, {"anyOf": [{}]}, {"anyOf": []}])
def test_any_other_root_is_refused(root: JsonObject, tmp_path: Path) -> None:
    assert resolve(tmp_path, a=root)[1] in (["SF409"], ["SF407"])


@pytest.mark.parametrize(
    "schema", [{"type": "object", "properties": {"a": 5}}, {"$ref": "b.json#/x"}, {"$ref": "#/definitions/n"}]
)
def test_what_is_no_schema_is_refused(schema: JsonObject, tmp_path: Path) -> None:
    schema = {**schema, "definitions": {"n": 1}} if "$ref" in schema else schema
    assert resolve(tmp_path, a=schema, b={})[1] in (["SF407"], ["SF403"])


def test_a_reference_to_itself_is_a_circle(tmp_path: Path) -> None:
    assert resolve(tmp_path, a={"$ref": "#"})[1] == ["SF406"]
    assert resolve(tmp_path, a={"type": "object", "properties": {"a": {"$ref": "a.json#/"}}})[1] == ["SF406"]


def test_a_loop_of_symbolic_links_is_refused_as_any_link(tmp_path: Path) -> None:
    folder = tmp_path / ".agent/demo/schemas"
    folder.mkdir(parents=True)
    (folder / "a.json").symlink_to("a.json")
    assert resolve(tmp_path)[1] == ["SF109"]


def test_the_draft_may_be_written_with_either_scheme(tmp_path: Path) -> None:
    schema = {"$schema": "https://json-schema.org/draft-07/schema", "type": "object"}
    assert one(tmp_path, schema) == {"$schema": DRAFT_07["$schema"], "type": "object"}


def test_a_draft_that_is_no_text_is_not_known(tmp_path: Path) -> None:
    assert resolve(tmp_path, a={"$schema": 7, "type": "object"})[1] == ["SF408"]
