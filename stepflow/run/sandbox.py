"""The toolbox in a run's workspace, and what is done there before the first step."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from stepflow.domain.checkout import CommandRequest
from stepflow.domain.connection import HostRequests, HostsRequested
from stepflow.domain.event import CanariesTried, Noted
from stepflow.domain.output_excerpt import excerpt, readable_output
from stepflow.errors import InputError, IsolationError
from stepflow.run.clock import COMPLETION_GRACE, GRACE, Deadline
from stepflow.run.proxies import proxy_variables
from stepflow.sandbox.box import Toolbox
from stepflow.sandbox.packages import install_packages
from stepflow.sandbox.selftest import Outside, try_canaries

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator
    from pathlib import Path

    from stepflow.domain.checkout import CommandResult
    from stepflow.domain.event import Event
    from stepflow.domain.json import JsonObject
    from stepflow.domain.mcp import McpServer
    from stepflow.domain.words import Isolation
    from stepflow.mcp.transports import RemoteAccess
    from stepflow.ports import Commands, Journal, Tools
    from stepflow.run.clock import Cancellation
    from stepflow.run.request import RunRequest
    from stepflow.sandbox.egress.proxy import EgressProxy
    from stepflow.sandbox.options import ToolboxOptions


@contextmanager
def open_toolbox(workspace: Path, options: ToolboxOptions, cancellation: Cancellation) -> Iterator[Toolbox]:
    """A toolbox for the block, in which a signal interrupts every wait for the tools.

    Signals stay held at the end. Raises `IsolationError` when a process may have survived.
    """
    cancellation.hold()
    with (
        Toolbox.start(workspace, options=options) as toolbox,
        toolbox.interruptible(cancellation.waiting),
    ):
        yield toolbox
    if not toolbox.ended_all:
        raise IsolationError(
            "A process of the tools may have survived the run.", hint="Run the job again on a fresh machine."
        )


class HostRecordingJournal:
    """A journal in which each event comes after the hosts that the tools asked for until then."""

    def __init__(self, journal: Journal, egress: EgressProxy) -> None:
        self._journal, self._egress = journal, egress
        self._recorded: dict[str, HostRequests] = {}

    def append(self, event: Event) -> object:
        """Write down what was asked for, then the event."""
        self.record_hosts()
        return self._journal.append(event)

    def record_hosts(self) -> None:
        """Write down what was asked for since the last time, if anything."""
        requests = {each.host: each for each in self._egress.requests()}
        if new := [*self._since_last(requests.values())]:
            self._journal.append(HostsRequested(hosts=new))
            self._recorded = requests

    def _since_last(self, requests: Iterable[HostRequests]) -> Iterator[HostRequests]:
        for each in requests:
            before = self._recorded.get(each.host)
            if before is None:
                yield each
            elif before != each:
                yield replace(each, allowed=each.allowed - before.allowed, refused=each.refused - before.refused)


@contextmanager
def hosts_recorded(toolbox: Toolbox, journal: Journal) -> Iterator[Journal]:
    """The journal for the block, with the hosts that the toolbox asks for; what came last is written at its end."""
    if toolbox.egress is None:
        yield journal
        return
    recording = HostRecordingJournal(journal, toolbox.egress)
    try:
        yield recording
    finally:
        recording.record_hosts()


@contextmanager
def open_tools(
    toolbox: Toolbox,
    servers: tuple[McpServer, ...],
    cancellation: Cancellation,
    *,
    deadline: Deadline,
    request: RunRequest,
) -> Iterator[Tools]:
    """The toolbox, and in front of it the MCP servers of an agent that has some. `request` has their secrets."""
    if not servers:
        yield toolbox
        return
    from stepflow.mcp.servers import OpenServers  # noqa: PLC0415 - costs time that most agents need not take
    from stepflow.mcp.tools import ToolsWithServers  # noqa: PLC0415

    access, redact = remote_access(servers, request), request.redactor
    with OpenServers(toolbox.start_server, access, cancellation.waiting, redact=redact) as opened:
        yield ToolsWithServers(
            toolbox,
            servers,
            opened,
            limit=lambda: min(toolbox.options.bash_timeout, deadline.left(GRACE)),
            redact=redact,
        )


def remote_access(servers: tuple[McpServer, ...], request: RunRequest) -> RemoteAccess:
    """What calls of remote servers need. Raises `InputError` for a secret that is not given."""
    from stepflow.mcp.transports import RemoteAccess  # noqa: PLC0415 - costs time that most agents need not take

    secrets = request.inputs.mcp_secrets
    check_mcp_secrets(servers, secrets)
    return RemoteAccess(
        secrets={name: value.get_secret_value() for name, value in secrets.items()},
        connection_to=request.proxy_config.connection_to,
    )


def check_mcp_secrets(servers: tuple[McpServer, ...], secrets: Collection[str]) -> None:
    """Raises `InputError` for a secret that a server's header refers to and that is not given."""
    for server in servers:
        if missing := [name for name in server.secret_names if name not in secrets]:
            raise InputError(
                f'The MCP server "{server.name}" needs {", ".join(missing)}: the input mcp-secrets has no such value.',
                hint=f"Add `{missing[0]}: ${{{{ secrets.{missing[0]} }}}}` to that YAML map (on the command line: in "
                "STEPFLOW_MCP_SECRETS).",
            )


def outside_of(request: RunRequest) -> Outside:
    """What the request knows of the machine around the toolbox."""
    return Outside(
        environment=request.environment,
        checkout=request.source,
        run_folder=request.folder,
        secrets=request.own_secrets(),
    )


def demand_nothing_in_reach(toolbox: Toolbox, outside: Outside, isolation: Isolation, journal: Journal) -> None:
    """Try every place; raises `IsolationError` for a reach that this run does not allow."""
    report = try_canaries(toolbox, outside)
    journal.append(CanariesTried(canaries=dict(report.states)))
    report.demand(isolation)
    for warning in report.open:
        journal.append(Noted(level="warning", message=f"[Isolation] {warning}"))


#: Seconds that all of `apt-packages` may take, and all of `setup`.
INSTALL_TIMEOUT = 900.0
SETUP_TIMEOUT = 1800.0
#: Characters of a failed command's output that its message shows; the log has all.
SHOWN_TAIL = 1000


def install(request: RunRequest, journal: Journal, deadline: Deadline) -> None:
    """Install the packages that the workflow's author asks for, while nothing of the run is alive yet."""
    names = request.inputs.apt_packages
    if not names:
        return
    journal.append(Noted(level="info", message=f"[Packages] installing {', '.join(names)}"))
    seconds = min(INSTALL_TIMEOUT, deadline.left(COMPLETION_GRACE))
    proxies = proxy_variables(request.environment)
    result = install_packages(names, path=request.program_path, timeout=seconds, proxies=proxies)
    journal.append(
        Noted(level="info", message=f"[Packages] apt-get ended with exit code {result.exit_code}", data=_said(result))
    )
    if result.exit_code != 0:
        said = excerpt(request.redactor(result.output), SHOWN_TAIL).strip()
        raise InputError(
            f"apt-get failed with exit code {result.exit_code}: {said}",
            hint="Check the names in the input apt-packages, and that the container reaches a package mirror.",
        )


@dataclass(frozen=True, kw_only=True)
class MaskingCommands:
    """Commands whose output holds no secret: nothing that is cut out of it later holds a part of one."""

    commands: Commands
    redact: Callable[[str], str]

    def run_command(self, request: CommandRequest) -> CommandResult:
        """Run one process."""
        result = self.commands.run_command(request)
        stdout, stderr, combined = map(self.redact, (result.stdout, result.stderr, result.combined))
        return replace(result, stdout=stdout, stderr=stderr, combined=combined)


def set_up(toolbox: Commands, request: RunRequest, journal: Journal) -> None:
    """Run the workflow author's own commands once, where the tools will run (action.md, input `setup`)."""
    commands = request.inputs.setup
    if not commands:
        return
    script = "\n".join(("set -e", *commands))
    result = toolbox.run_command(CommandRequest(argv=("bash", "-c", script), timeout=SETUP_TIMEOUT))
    journal.append(Noted(level="info", message=f"setup ended with exit code {result.exit_code}", data=_said(result)))
    if result.exit_code != 0:
        output = request.redactor(readable_output(result.output))
        said = result.error or excerpt(output, SHOWN_TAIL).strip().rstrip(".")
        raise InputError(
            f"The setup commands failed with exit code {result.exit_code}: {said}.",
            hint="Correct the input setup; it runs in the sandbox, as the tools do.",
        )


def _said(result: CommandResult) -> JsonObject:
    """What a command printed, as data that logs fold away."""
    return {"output": result.output.strip()}
