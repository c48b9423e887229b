"""Values inside JSON, and schemas as they are published."""

from __future__ import annotations

from stepflow.domain.json import publish_schema, value_at


def test_a_value_is_found_by_its_path_or_is_none() -> None:
    value = {"checks": [{"name": "tests"}, {"name": "types"}]}
    assert value_at(value, "checks.1.name") == "types"
    assert [value_at(value, path) for path in ("checks.2.name", "checks.x", "name", "checks.1.name.0")] == [None] * 4


def test_a_published_schema_refers_to_no_specification() -> None:
    schema = {"description": "A step (flow.md, 3).", "anyOf": [{"description": "One (boundary.md)."}], "minimum": 1}
    assert publish_schema(schema) == {"description": "A step.", "anyOf": [{"description": "One."}], "minimum": 1}
