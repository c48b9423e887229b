"""The rule of two at a terminal: what `validate` and `graph` say of an agent that searches the web."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stepflow.cli import main
from stepflow.definition.mcp import lock_text
from stepflow.domain.agent.agent_settings import McpServer, McpTool

SEARCH = McpTool(name="search", description="Searches the web.", input_schema={"type": "object"})


@pytest.fixture
def searching(checkout: Path) -> Path:
    """The registry of an agent whose first step may search the web."""
    folder = checkout / ".agent/fixer"
    agent = json.loads((folder / "agent.json").read_text())
    agent["mcpServers"] = {"web": {"url": "https://search.example.com/mcp"}}
    (folder / "agent.json").write_text(json.dumps(agent))
    (folder / "mcp.lock.json").write_text(lock_text([McpServer(name="web", tools=(SEARCH,))]))
    edit(folder / "steps_registry.json", tools=["mcp__web"])
    return folder / "steps_registry.json"


def edit(file: Path, **keys: object) -> None:
    registry = json.loads(file.read_text())
    registry["steps"]["initial.issue"].update(keys)
    file.write_text(json.dumps(registry, indent=2))


@pytest.mark.parametrize(("flags", "code"), [([], 0), (["--private"], 2), (["--no-private"], 0)])
def test_validate_is_told_whether_the_repository_is_private(
    searching: Path, capsys, flags: list[str], code: int
) -> None:
    assert main(["validate", "--format", "json", *flags]) == code
    document = json.loads(capsys.readouterr().out)
    found = [each for each in document["exposures"] if each["step_id"] == "initial.issue"]
    assert [each["private_repository"] for each in found] == {"--private": [True], "--no-private": [False]}.get(
        "".join(flags), [False, True]
    )
    for each in found:
        assert each["has_all"] == each["breaks_rule"] == each["private_repository"]
        assert each["agent"] == "fixer"
        assert each["ways_out"][0] == 'arguments for the MCP server "web"'
    severities = {each["severity"] for each in document["problems"] if each["code"] == "SF357"}
    assert severities == {"": {"note"}, "--private": {"error"}, "--no-private": set()}["".join(flags)]
