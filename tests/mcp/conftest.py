"""Servers in a real sandbox, opened as a step opens them."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import tests.servers
from stepflow.domain.agent.agent_settings import McpServer, digest_of
from stepflow.domain.words import Isolation
from stepflow.mcp.servers import OpenServers
from stepflow.mcp.transports import RemoteAccess
from stepflow.sandbox.box import Toolbox
from stepflow.sandbox.isolation import ToolboxOptions
from tests.mcp.steps import Step
from tests.sandbox.toolbox_world import reachable_folder

SERVERS = Path(tests.servers.__path__[0])


@pytest.fixture(scope="session")
def shared_toolbox():
    """A sandbox in a folder with the servers' programs."""
    with reachable_folder() as folder:
        shutil.copy(SERVERS / "mcp_docs.py", folder)
        with Toolbox.start(folder, options=ToolboxOptions(isolation=Isolation.BEST_EFFORT)) as box:
            yield box


@pytest.fixture
def toolbox(shared_toolbox):
    """The sandbox as it began: without a process, and without a file that another test made."""
    yield shared_toolbox
    shared_toolbox.end_step()
    for path in shared_toolbox.checkout.iterdir():
        if path.name != "mcp_docs.py":
            shutil.rmtree(path) if path.is_dir() else path.unlink()


@pytest.fixture(scope="session")
def listed():
    """What each server listed when it was asked first."""
    return {}


@pytest.fixture
def open_step(toolbox, listed):
    """Opens a step with a server; one without `tools` is locked as it lists them."""
    opened = []

    def begin(server: McpServer, *, access: RemoteAccess | None = None, **options: object) -> Step:
        redact = options.get("redact", str)
        servers = OpenServers(toolbox.start_server, access or RemoteAccess(), redact=redact)
        opened.append(servers)
        if not server.tools:
            if repr(server) not in listed:
                listed[repr(server)] = servers.list_tools(server)
                servers.close()
                toolbox.end_step()
            tools = listed[repr(server)]
            server = replace(server, tools=tools, digest=digest_of(tools))
        return Step(toolbox=toolbox, servers=servers, server=server, **options)

    yield begin
    for servers in opened:
        servers.close()
