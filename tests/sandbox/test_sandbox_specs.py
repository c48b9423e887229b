"""The tools of a step and the specifications that models see."""

from __future__ import annotations

from dataclasses import replace

import jsonschema
import pytest

from stepflow.domain.agent.agent_settings import TOOL_SPECS, McpServer, McpTool
from stepflow.domain.agent.definition import effective_tools
from stepflow.domain.words import PermissionMode, StepKind
from tests.build import make_agent, make_step

ALL = ("bash", "read", "write", "edit", "glob", "grep")


DOCS = McpServer(
    name="docs",
    tools=tuple(McpTool(name=name, description=name, input_schema={"type": "object"}) for name in ("fetch", "search")),
)


def names(kind, allowed=None, mode=PermissionMode.ACCEPT_EDITS, *, tools=None):
    step = replace(make_step("work", tools=tools), kind=kind)
    agent = make_agent(step, allowed_tools=allowed, permission_mode=mode, mcp_servers=(DOCS,))
    return tuple(spec.name for spec in effective_tools(agent, step).values())


@pytest.mark.parametrize("kind", [*StepKind, None])
def test_plan_mode_is_read_only(kind):
    assert names(kind, mode=PermissionMode.PLAN) == ("read", "glob", "grep")


@pytest.mark.parametrize(
    ("allowed", "expected"),
    [
        (frozenset(), ()),
        (frozenset({"Grep", "Bash"}), ("bash", "grep")),
        (frozenset({"bash", "WebFetch", "mcp__docs__search"}), ()),
    ],
)
def test_allowed_tools_narrow_the_row_and_unknown_names_are_ignored(allowed, expected):
    assert names(StepKind.CLOSURE, allowed) == expected


@pytest.mark.parametrize(
    ("tools", "expected"),
    [
        ((), ()),
        (("Grep", "Bash", "Edit"), ("bash", "grep")),
        (("mcp__docs__search", "Bash"), ("bash", "mcp__docs__search")),
        (("mcp__docs__search", "mcp__docs__fetch", "mcp__docs__gone"), ("mcp__docs__fetch", "mcp__docs__search")),
    ],
)
def test_a_step_has_what_it_names_of_what_the_agent_allows_and_of_the_pinned_tools(tools, expected):
    assert names(StepKind.WORK, frozenset({"Bash", "Read", "Grep"}), tools=tools) == expected


@pytest.mark.parametrize("spec", TOOL_SPECS, ids=lambda spec: spec.name)
def test_each_schema_is_a_schema_and_requires_only_what_it_has(spec):
    jsonschema.Draft202012Validator.check_schema(spec.input_schema)
    assert set(spec.input_schema.get("required", ())) <= set(spec.input_schema["properties"])


@pytest.mark.parametrize(
    ("tool", "inputs"),
    [
        ("bash", {"command", "restart", "timeout_ms"}),
        ("read", {"file_path", "view_range"}),
        ("write", {"file_path", "content"}),
        ("edit", {"file_path", "old_string", "new_string", "replace_all"}),
        ("glob", {"pattern", "path"}),
        ("grep", {"pattern", "path"}),
    ],
)
def test_inputs_have_the_names_that_models_know(tool, inputs):
    spec = next(spec for spec in TOOL_SPECS if spec.name == tool)
    assert set(spec.input_schema["properties"]) == inputs
