"""`stepflow mcp lock [NAME …]`: pins the tools that agents' MCP servers list now, in the lock file next to each
agent.json."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import unified_diff

from stepflow.cli.options import add_flags, add_repo, read_flags
from stepflow.cli.run import request_from
from stepflow.cli.terminal import make_console, show_texts
from stepflow.definition.folder import AGENTS, find_agents
from stepflow.definition.loading import read_servers
from stepflow.definition.mcp import LOCK_FILE, lock_text, pinned_tools
from stepflow.domain.agent.agent_settings import McpServer, McpTool
from stepflow.domain.text import count
from stepflow.errors import InputError
from stepflow.mcp.servers import OpenServers, ServerProblem, ToolChanges, compare_tools
from stepflow.run.clock import Cancellation
from stepflow.run.ending import write_whole
from stepflow.run.readiness import check_request
from stepflow.run.request import RunRequest
from stepflow.run.workspace import remote_access, toolbox_in_copy

#: The inputs that the servers get, as in a run.
INPUTS = (
    *("isolation", "network", "setup", "apt-packages", "pass-env", "mcp-secrets"),
    *("working-directory", "ca-certificates"),
)


def add_mcp_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `mcp`."""
    parser.add_argument("action", choices=("lock",), help="start the servers and write .agent/<name>/mcp.lock.json")
    parser.add_argument("names", nargs="*", metavar="NAME", help="agents (default: all under .agent/)")
    add_repo(parser)
    add_flags(parser, INPUTS)


def execute_mcp(arguments: argparse.Namespace) -> int:
    """Lock the tools, and print what changed."""
    request = request_from(arguments, read_flags(arguments))
    with Cancellation().listening() as cancellation:
        locked = lock_agents(request, arguments.names, cancellation)
    console = make_console(sys.stdout)
    for each in locked:
        show_texts(console, _lines(each, request.redactor))
    return 0


@dataclass(frozen=True, kw_only=True)
class LockedServer:
    """A server whose tools were just pinned."""

    agent: str
    server: McpServer
    #: The tools that were pinned before.
    before: tuple[McpTool, ...]

    @property
    def changes(self) -> ToolChanges:
        """How the pinned tools differ from those that were pinned before."""
        return compare_tools(self.before, self.server.tools)


def lock_agents(request: RunRequest, names: Sequence[str], cancellation: Cancellation) -> tuple[LockedServer, ...]:
    """Start each server of the named agents, or of all agents, and pin the tools that it lists. Each lock file is
    written only after all of its servers have answered.

    Raise `DefinitionError` for an invalid agent.json. Raise `InputError` if there is no server, or if one cannot be
    used.
    """
    root = request.definition_root
    known = find_agents(root)
    if unknown := [name for name in names if name not in known]:
        raise InputError(
            f'There is no agent "{unknown[0]}".', hint=f"The agents of this repository: {', '.join(known) or 'none'}."
        )
    servers = {name: read_servers(name, root=root) for name in names or known}
    if not any(servers.values()):
        raise InputError(
            f"There is no MCP server in agent.json of {', '.join(servers) or 'any agent'}.",
            hint="Write `mcpServers` there; docs/keys/agent.md has its form.",
        )
    check_request(replace(request, trigger=replace(request.trigger, agent=next(iter(servers)))))
    locked: list[LockedServer] = []
    with toolbox_in_copy(request, cancellation) as toolbox:
        for agent, unlocked in servers.items():
            access = remote_access(unlocked, request)
            with OpenServers(toolbox.start_server, access, cancellation.waiting, redact=request.redactor) as opened:
                tools = {server.name: _list(opened, server, request) for server in unlocked}
            toolbox.end_step()
            if not unlocked:
                continue
            file = root / AGENTS / agent / LOCK_FILE
            before = pinned_tools(file.read_text(encoding="utf-8")) if file.is_file() else {}
            now = [replace(server, tools=tools[server.name]) for server in unlocked]
            write_whole(file, lock_text(now))
            locked += (LockedServer(agent=agent, server=each, before=before.get(each.name, ())) for each in now)
    return tuple(locked)


def _list(opened: OpenServers, server: McpServer, request: RunRequest) -> tuple[McpTool, ...]:
    try:
        return opened.list_tools(server)
    except ServerProblem as exc:
        raise InputError(
            request.redactor(str(exc)), hint="Correct `mcpServers` in agent.json, or what the server needs."
        ) from exc


def _lines(locked: LockedServer, redact: Callable[[str], str]) -> Iterator[str]:
    """Yield the server and every tool that changed. A reviewer reads what a model will read."""
    tools, changes = {tool.name: tool for tool in locked.server.tools}, locked.changes
    what = str(changes.masked(redact)) or "as before"
    yield f"{locked.agent}: {locked.server.name} ({count(len(tools), 'tool')}): {what}"
    before = {tool.name: tool for tool in locked.before}
    for name in changes.new:
        yield from (f"  + {line}" for line in (f"{redact(name)}:", *redact(tools[name].description).splitlines()))
    for name in changes.changed:
        old, new = before[name], tools[name]
        yield f"  {redact(name)}:{'' if old.input_schema == new.input_schema else ' its arguments changed'}"
        old_lines, new_lines = (redact(each.description).splitlines() for each in (old, new))
        different = unified_diff(old_lines, new_lines, lineterm="", n=1)
        yield from (f"    {line}" for line in list(different)[2:])
