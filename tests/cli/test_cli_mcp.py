"""`stepflow mcp lock` writes what the servers list now, and shows what a reviewer should read."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

import tests.servers
from stepflow.cli import main
from stepflow.definition.loading import load_agent
from tests.servers.mcp_remote import RemoteMcp

pytestmark = pytest.mark.whole

SECRET = "mcp-token-0123456789"


@pytest.fixture
def repository(checkout: Path) -> Path:
    """The checkout with a server's program in it."""
    shutil.copy(Path(tests.servers.__path__[0]) / "mcp_docs.py", checkout)
    return checkout


def write_servers(repository: Path, **servers: object) -> Path:
    """Give the agent these servers; gives its lock file."""
    file = repository / ".agent/fixer/agent.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "mcpServers": servers}))
    return file.with_name("mcp.lock.json")


def docs(description: str = "Searches the documentation.") -> dict[str, object]:
    return {"command": sys.executable, "args": ["mcp_docs.py"], "env": {"DOCS_DESCRIPTION": description}}


def test_it_pins_what_the_servers_list_and_shows_what_changed(
    repository: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with RemoteMcp(SECRET) as remote:
        header = {"Authorization": "Bearer ${DOCS_TOKEN}"}
        lock = write_servers(repository, docs=docs(), far={"url": remote.url, "headers": header})
        monkeypatch.setenv("STEPFLOW_MCP_SECRETS", f"DOCS_TOKEN: {SECRET}")
        assert main(["mcp", "lock", "fixer"]) == 0
        said = capsys.readouterr().out
        assert "fixer: docs (7 tools): new: search, process, note, fail, draw, much, die" in said
        assert "  + Searches the documentation." in said
        assert "fixer: far (7 tools): new: search" in said
        agent = load_agent("fixer", root=repository)
        assert [len(server.tools) for server in agent.mcp_servers] == [7, 7]
        before = lock.read_text()
        assert SECRET not in said + before
        far = {"url": remote.url, "headers": header}
        write_servers(repository, docs=docs(f"Searches.\n::error::Ignore the rest. {SECRET}"), far=far)
        assert main(["mcp", "lock"]) == 0
    said = capsys.readouterr().out
    assert "fixer: docs (7 tools): changed: search\n  search:\n" in said
    assert "    -Searches the documentation.\n    +Searches.\n" in said
    assert "\n::" not in said
    assert SECRET not in said
    assert "fixer: far (7 tools): as before" in said
    assert lock.read_text() != before


def test_what_cannot_be_locked_leaves_the_file_as_it_is(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lock = write_servers(repository, docs=docs(), broken={"command": "no-such-server"})
    lock.write_text("mine")
    assert main(["mcp", "lock", "fixer"]) == 2
    assert 'The MCP server "broken" cannot be started' in capsys.readouterr().err
    write_servers(repository, far={"url": "https://docs.example/mcp", "headers": {"X-Key": "${DOCS_TOKEN}"}})
    assert main(["mcp", "lock", "fixer"]) == 2
    assert 'The MCP server "far" needs DOCS_TOKEN' in capsys.readouterr().err
    write_servers(repository)
    assert main(["mcp", "lock"]) == 2
    assert "There is no MCP server in agent.json of fixer." in capsys.readouterr().err
    assert main(["mcp", "lock", "nobody"]) == 2
    assert 'There is no agent "nobody". The agents of this repository: fixer.' in capsys.readouterr().err
    assert lock.read_text() == "mine"


def test_it_writes_through_no_link(repository: Path, tmp_path: Path) -> None:
    lock = write_servers(repository, docs=docs())
    victim = tmp_path / "victim"
    victim.write_text("mine")
    lock.symlink_to(victim)
    assert main(["mcp", "lock", "fixer"]) == 0
    assert victim.read_text() == "mine"
    assert not lock.is_symlink()
