"""The loopback servers of the boundary's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from stepflow.boundary.github_writer import GitHubWriter
from tests.servers.git_http import GitServer
from tests.servers.github_api import GitHubServer, State

TOKEN = "ghs_0123456789abcdefghijABCDEFGHIJ"


@pytest.fixture
def git_server(tmp_path: Path) -> Iterator[GitServer]:
    with GitServer(tmp_path / "served", TOKEN) as server:
        yield server


@pytest.fixture
def state() -> State:
    state = State("o/r", permissions={"ann": "write", "tom": "triage", "mia": "maintain", "eve": "read"})
    state.add_issue(7, "Fix the parser", "It breaks.", labels=["agent:fixer", "bug"])
    return state


@pytest.fixture
def github(state: State) -> Iterator[GitHubServer]:
    """A server whose every exchange must be one that GitHub describes."""
    with GitHubServer(state, TOKEN) as server:
        yield server


@pytest.fixture
def writer(github: GitHubServer) -> Iterator[GitHubWriter]:
    writer = GitHubWriter(api_url=github.api_url, repository="o/r", token=TOKEN)
    yield writer
    writer.close()
