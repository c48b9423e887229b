"""MCP servers: what is read of them and their lock, what the digest covers, and how a lock is written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from load_cases import DEFINITIONS, Case, edit_json

from stepflow.definition.loading import load_agent, read_servers
from stepflow.definition.mcp import LOCK_FILE, lock_text
from stepflow.domain.agent.agent_settings import McpServer, McpTool, digest_of
from stepflow.domain.agent.definition import AgentDefinition
from stepflow.errors import DefinitionError

ISSUE_FLOW = Case(folder=DEFINITIONS / "valid/issue-flow", data={})
SERVERS = {
    "docs": {"command": "npx", "args": ["docs-server", "--quiet"], "env": {"LEVEL": "debug"}},
    "tickets": {
        "type": "http",
        "url": "https://tickets.example.com/mcp",
        "headers": {"Authorization": "Bearer ${TICKETS_TOKEN}"},
    },
}
SEARCH = McpTool(name="search", description="Searches.", input_schema={"type": "object", "properties": {"q": {}}})
FETCH = McpTool(name="fetch", description="Gibt die Seite.", input_schema={"type": "object"})


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = ISSUE_FLOW.build(tmp_path)
    edit_json(root / ".agent/demo/agent.json", "set", "/mcpServers", SERVERS)
    tools = ["mcp__docs", "mcp__tickets"]
    registry = root / ".agent/demo/steps_registry.json"
    edit_json(registry, "set", "/steps/initial.issue/tools", tools)
    for step_id in ("initial.issue", "continuation.issue", "closure.issue"):
        edit_json(
            registry, "set", f"/steps/{step_id}/acceptsRisk", "Whoever reads this repository may read the tickets."
        )
    return root


def lock(root: Path, *tools: McpTool) -> AgentDefinition:
    servers = [replace(server, tools=tools) for server in read_servers("demo", root=root)]
    (root / ".agent/demo" / LOCK_FILE).write_text(lock_text(servers), encoding="utf-8")
    return load_agent("demo", root=root)


def test_servers_have_the_tools_that_the_lock_pins(root: Path) -> None:
    agent = lock(root, SEARCH, FETCH)
    assert agent.problems == ()
    assert agent.mcp_servers == (
        McpServer(
            name="docs",
            command=("npx", "docs-server", "--quiet"),
            env={"LEVEL": "debug"},
            tools=(FETCH, SEARCH),
            digest=digest_of((SEARCH, FETCH)),
        ),
        McpServer(
            name="tickets",
            url="https://tickets.example.com/mcp",
            headers={"Authorization": "Bearer ${TICKETS_TOKEN}"},
            tools=(FETCH, SEARCH),
            digest=digest_of((SEARCH, FETCH)),
        ),
    )


def test_servers_are_read_for_a_lock_whatever_the_lock_says(root: Path) -> None:
    assert [server.name for server in read_servers("demo", root=root)] == ["docs", "tickets"]
    (root / ".agent/demo" / LOCK_FILE).write_text("<<<<<<< HEAD")
    assert [server.tools for server in read_servers("demo", root=root)] == [(), ()]
    edit_json(root / ".agent/demo/agent.json", "set", "/mcpServers/docs/command", "")
    with pytest.raises(DefinitionError) as raised:
        read_servers("demo", root=root)
    assert [problem.code for problem in raised.value.problems] == ["SF211"]  # type: ignore[attr-defined]
    with pytest.raises(DefinitionError, match="there is no agent"):
        read_servers("nobody", root=root)


def test_the_digest_covers_the_lock(root: Path) -> None:
    assert lock(root, SEARCH).digest != lock(root, FETCH).digest


def test_a_lock_is_the_same_in_whichever_order_a_server_lists_its_tools() -> None:
    texts = {
        lock_text([McpServer(name=name, tools=tools) for name in names])
        for names in (("docs", "tickets"), ("tickets", "docs"))
        for tools in ((SEARCH, FETCH), (FETCH, SEARCH))
    }
    assert len(texts) == 1


def test_a_lock_shows_a_reviewer_what_nobody_would_see(root: Path) -> None:
    hidden = SEARCH.model_copy(update={"description": "Durchsucht für alle.\u200b\U000e0041\n"})
    text = lock_text([McpServer(name="docs", tools=(hidden,))])
    assert r'"Durchsucht für alle.\u200b\udb40\udc41\n"' in text
    assert lock(root, hidden).mcp_servers[0].tools == (hidden,)
