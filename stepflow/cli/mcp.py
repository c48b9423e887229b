"""`stepflow mcp lock [NAME …]`: pins the tools of agents' MCP servers as they are listed now."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from difflib import unified_diff
from typing import TYPE_CHECKING

from stepflow.cli.options import add_flags, read_flags
from stepflow.cli.run import request_from
from stepflow.cli.terminal import make_console, show_lines
from stepflow.domain.text import count
from stepflow.modes.lock import lock_agents
from stepflow.report.safe_text import harmless
from stepflow.run.clock import Cancellation

if TYPE_CHECKING:
    from stepflow.modes.lock import LockedServer

#: The inputs that the servers get, as in a run.
INPUTS = (
    *("isolation", "network", "allowed-hosts", "setup", "apt-packages", "pass-env", "mcp-secrets"),
    *("working-directory", "ca-certificates"),
)


def add_mcp_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `mcp`."""
    parser.usage = "stepflow mcp lock [NAME …] [--repo DIR] [--INPUT VALUE …]"
    parser.add_argument("action", choices=("lock",), help="start the servers and write .agent/<name>/mcp.lock.json")
    parser.add_argument("names", nargs="*", metavar="NAME", help="agents (default: all under .agent/)")
    parser.add_argument("--repo", default=".", metavar="DIR", help="the repository (default: the current folder)")
    add_flags(parser, INPUTS)


def execute_mcp(arguments: argparse.Namespace) -> int:
    """Lock the tools, and print what changed."""
    request = request_from(arguments, read_flags(arguments))
    with Cancellation().listening() as cancellation:
        locked = lock_agents(request, arguments.names, cancellation)
    console = make_console(sys.stdout)
    for each in locked:
        show_lines(console, harmless("\n".join(_lines(each, request.redactor))).split("\n"))
    return 0


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
