"""The workspace of a run: a copy of the user's checkout, which itself stays untouched."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from stepflow.definition.folder import AGENTS
from stepflow.domain.activity import activity
from stepflow.domain.agent.agent_settings import McpServer
from stepflow.domain.checkout import CommandRequest, CommandResult
from stepflow.domain.connection import HostRequests, HostsRequested
from stepflow.domain.event import CanariesTried, Event, Noted
from stepflow.domain.reports.report import RunReport
from stepflow.domain.text import excerpt, readable_output
from stepflow.domain.words import Isolation
from stepflow.errors import InputError, IsolationError
from stepflow.journal import MemoryJournal
from stepflow.ports import Commands, Journal, Tools
from stepflow.run.clock import COMPLETION_GRACE, GRACE, Cancellation, Deadline, SystemClock, TimelyCommands
from stepflow.run.prepare import Prepared
from stepflow.run.proxy_config import proxy_variables
from stepflow.run.pull_request.follow_up import fetch_history
from stepflow.run.readiness import check_mcp_secrets, run_branch
from stepflow.run.request import RunRequest, toolbox_options
from stepflow.sandbox.box import Toolbox
from stepflow.sandbox.egress.proxy import EgressProxy
from stepflow.sandbox.environment import copy_environments, install_packages, programs_of_copy
from stepflow.sandbox.host_git import CheckedOut, ask_git, bring_branch, checked_out, local_branch, move_branch
from stepflow.sandbox.isolation import ToolboxOptions
from stepflow.sandbox.selftest import Outside, try_canaries
from stepflow.sandbox.workspace import (
    GIT,
    commit_everything,
    make_workspace,
    start_branch,
    temporary_folder,
    write_repository,
)

if TYPE_CHECKING:
    from stepflow.mcp.transports import RemoteAccess


#: The branch of a copy that no run pushes: a check may refuse commits on the main branch.
_COPY = "stepflow/copy"


@dataclass(frozen=True, kw_only=True)
class Workspace:
    """A folder for the run's files, empty until `fill` is called."""

    #: The request for a run in this workspace.
    request: RunRequest
    #: What the user's repository had checked out; only for a run `in_place`.
    before: CheckedOut | None

    def fill(
        self, prepared: Prepared, cancellation: Cancellation, note: Callable[[str], None] = lambda _: None
    ) -> tuple[str, ...]:
        """Copy the checkout and start the run's branch. Returns the files whose uncommitted changes stay
        behind. `note` is called before slow parts. Signals stay held at the end."""
        request = prepared.request
        pull = request.follow_up or request.reviewed
        cancellation.hold()
        with cancellation.obeyed():
            original = request.of_checkout
            branch = "" if request.in_place else run_branch(request, prepared.agent)
            copy_checkout(original, request.root, with_history=pull is None, branch=branch, note=note)
            copy_environments(original.programs or (), request.checkout, request.root)
            if pull:
                # That of a review is there already, unless the review is resumed.
                if not request.base_repository.exists():
                    fetch_history(request, [first_commit(prepared)], pull.base)
                write_repository(request.base_repository, request.root / GIT)
        if not (pull or request.own_branch):
            return ()
        with Toolbox.start(request.root, options=options_at_root(request)) as toolbox, cancellation.obeyed():
            left_behind = start_branch(toolbox, branch_of(prepared), first_commit(prepared))
        # Agents are read from the checkout, with their uncommitted changes.
        return tuple(name for name in left_behind if not name.startswith(f"{AGENTS}/"))


def bring_back(request: RunRequest, report: RunReport, before: CheckedOut | None) -> tuple[str, bool]:
    """Bring the commits of a run into the user's repository: onto the checked-out branch if `before` is given and the
    branch is still as it was then, otherwise as a new branch. Returns the branch (empty without commits) and whether
    the checked-out one was moved."""
    bundle = bundle_of(request)
    if bundle is None:
        return "", False
    if before and (moved := move_branch(request.checkout, bundle, before)):
        return moved, True
    branch = report.follow_up.branch if report.follow_up else local_branch(report.agent, report.issue, report.run_id)
    return bring_branch(request.checkout, bundle, branch), False


def first_commit(prepared: Prepared) -> str:
    """Return the commit from which the run starts."""
    if prepared.resumed_run:
        return prepared.resumed_run.started.base_commit
    follow_up, reviewed = prepared.request.follow_up, prepared.request.reviewed
    return follow_up.head if follow_up else reviewed.merge if reviewed else "HEAD"


def bundle_of(request: RunRequest) -> Path | None:
    """Return the file with the commits of the run; None without any."""
    bundle = request.folder / "work.bundle"
    return bundle if bundle.exists() else None


def branch_of(prepared: Prepared) -> str:
    """Return the branch for the run's commits."""
    if prepared.request.follow_up:
        return prepared.request.follow_up.branch
    number = prepared.issue.number if prepared.issue else None
    return local_branch(prepared.agent.name, number, prepared.request.run_id)


def options_at_root(request: RunRequest) -> ToolboxOptions:
    """Return the sandbox's options for stepflow's own commands, which start in the repository's root."""
    return replace(toolbox_options(request), working_directory=".")


def demand_repository(root: Path) -> None:
    """Raises `InputError` if a folder is not the top folder of a git repository."""
    if os.path.lexists(root / GIT):
        return
    hint = "Name the repository with --repo. In a new folder: run `git init` and commit what is there."
    if top := ask_git(root, "rev-parse", "--show-cdup", may_fail=True):
        above = (root / top).resolve()
        hint = f"Give `--repo {above} --working-directory {root.relative_to(above)}` for a run in a folder of it."
    raise InputError(f"{root} is not the top folder of a git repository, and a run works on a branch.", hint=hint)


@contextmanager
def open_workspace(request: RunRequest) -> Iterator[Workspace]:
    """Open a folder for the run's workspace, which is removed at the end."""
    root = request.root.resolve()
    if request.at_terminal:
        demand_repository(root)
    with temporary_folder(root) as folder:
        copied = _request_at(replace(request, root=root), folder / "checkout")
        yield Workspace(request=copied, before=checked_out(root) if request.in_place else None)


def _request_at(request: RunRequest, copy: Path) -> RunRequest:
    programs = request.programs and programs_of_copy(request.programs, request.root, copy)
    return replace(request, root=copy, original=request, programs=programs)


def copy_checkout(
    request: RunRequest,
    copy: Path,
    *,
    with_history: bool = True,
    branch: str = "",
    note: Callable[[str], None] | None = None,
) -> None:
    """Copy the checkout of the request. `note` is called before that takes long."""
    files = request.copied_files
    if note and (line := files.announce(copy.parent)):
        note(line)
    without = request.login_files
    with activity("copying the checkout"):
        make_workspace(request.root, copy, files=files, without=without, with_history=with_history, branch=branch)


def request_in_copy(request: RunRequest, copy: Path) -> RunRequest:
    """Return the request for a `copy` of its checkout, after copying the programs of the checkout's environments."""
    copy_environments(request.programs or (), request.root, copy)
    return _request_at(request, copy)


@contextmanager
def committed_copy(
    request: RunRequest, cancellation: Cancellation, note: Callable[[str], None] = lambda _: None
) -> Iterator[Path]:
    """Copy the checkout as it is now and commit everything in the copy. `note` is called before slow parts. Signals
    stay held at the end."""
    with temporary_folder(request.root) as folder:
        copy = folder / "checkout"
        copy_checkout(request, copy, branch=_COPY, note=note)
        cancellation.hold()
        copied = replace(request, root=copy, original=request)
        with Toolbox.start(copy, options=options_at_root(copied)) as toolbox, cancellation.obeyed():
            commit_everything(toolbox)
        yield copy


@contextmanager
def toolbox_in_copy(
    request: RunRequest, cancellation: Cancellation, note: Callable[[str], None] = lambda _: None
) -> Iterator[Toolbox]:
    """Open a toolbox in a copy of the checkout as it is now, with the packages and the setup of a run. `note` is called
    before slow parts. Signals stay held at the end."""
    clock = SystemClock()
    with committed_copy(request, cancellation, note) as copy:
        copied = request_in_copy(request, copy)
        deadline = Deadline(clock=clock, at=clock.now() + request.inputs.limits.minutes * 60)
        journal = MemoryJournal(clock)
        with cancellation.obeyed():
            install(copied, journal, deadline)
        with (
            Toolbox.start(copy, options=toolbox_options(copied)) as toolbox,
            toolbox.interruptible(cancellation.waiting),
        ):
            set_up(TimelyCommands(commands=toolbox, deadline=deadline, redact=request.redactor), request, journal)
            yield toolbox


@contextmanager
def open_toolbox(workspace: Path, options: ToolboxOptions, cancellation: Cancellation) -> Iterator[Toolbox]:
    """Open a toolbox; inside the block a signal interrupts every wait for the tools.

    Signals stay held at the end. Raises `IsolationError` if a process may have survived.
    """
    cancellation.hold()
    with (
        Toolbox.start(workspace, options=options) as toolbox,
        toolbox.interruptible(cancellation.waiting),
    ):
        yield toolbox
        toolbox.remove_shared_memory()
    if not toolbox.ended_all:
        raise IsolationError(
            "A process of the tools may have survived the run.", hint="Run the job again on a fresh machine."
        )


class HostRecordingJournal:
    """A journal that records the hosts that the tools have asked for before each event."""

    def __init__(self, journal: Journal, egress: EgressProxy) -> None:
        self._journal, self._egress = journal, egress
        self._recorded: dict[str, HostRequests] = {}

    def append(self, event: Event) -> object:
        """Record the new hosts, then the event."""
        self.record_hosts()
        return self._journal.append(event)

    def record_hosts(self) -> None:
        """Record the hosts that were asked for since the last time, if any."""
        requests = {each.host: each for each in self._egress.requests()}
        if new := [self._since_last(each) for each in requests.values() if each != self._recorded.get(each.host)]:
            self._journal.append(HostsRequested(hosts=new))
            self._recorded = requests

    def _since_last(self, now: HostRequests) -> HostRequests:
        before = self._recorded.get(now.host, HostRequests(host=now.host, allowed=0, refused=0))
        return replace(now, allowed=now.allowed - before.allowed, refused=now.refused - before.refused)


@contextmanager
def hosts_recorded(toolbox: Toolbox, journal: Journal) -> Iterator[Journal]:
    """Provide a journal that also records the hosts that the toolbox asks for; the last ones when the block ends."""
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
    """Open the toolbox together with the agent's MCP servers, if it has any. `request` has their secrets."""
    if not servers:
        yield toolbox
        return
    from stepflow.mcp.servers import OpenServers, ToolsWithServers  # noqa: PLC0415 - only for steps with servers

    access, redact = remote_access(servers, request), request.redactor
    with OpenServers(toolbox.start_server, access, cancellation.waiting, redact=redact) as opened:
        yield ToolsWithServers(
            toolbox,
            servers,
            opened,
            limit=lambda: min(toolbox.options.bash_timeout, deadline.seconds_left(GRACE)),
            redact=redact,
        )


def remote_access(servers: tuple[McpServer, ...], request: RunRequest) -> RemoteAccess:
    """Return the secrets and connections for remote servers. Raises `InputError` for a missing secret."""
    from stepflow.mcp.transports import RemoteAccess  # noqa: PLC0415 - costs time that most agents need not take

    secrets = request.inputs.mcp_secrets
    check_mcp_secrets(servers, secrets)
    return RemoteAccess(
        secrets={name: value.get_secret_value() for name, value in secrets.items()},
        connection_to=request.proxy_config.connection_to,
    )


def outside_of(request: RunRequest) -> Outside:
    """Return the places outside the toolbox that its tools must not reach."""
    return Outside(
        environment=request.environment,
        checkout=request.source,
        run_folder=request.folder,
        secrets=request.own_secrets(),
    )


def demand_nothing_in_reach(toolbox: Toolbox, outside: Outside, isolation: Isolation, journal: Journal) -> None:
    """Try to reach every place outside; raises `IsolationError` for one that can be reached but must not be."""
    report = try_canaries(toolbox, outside)
    journal.append(CanariesTried(canaries=dict(report.states)))
    report.demand(isolation)
    for warning in report.open:
        journal.append(Noted(level="warning", message=f"[Isolation] {warning}"))


#: Seconds that all of `apt-packages` may take, and all of `setup`.
INSTALL_TIMEOUT = 900.0
SETUP_TIMEOUT = 1800.0
#: Characters of a failed command's output in its message; the log has all of it.
SHOWN_TAIL = 1000


def install(request: RunRequest, journal: Journal, deadline: Deadline) -> None:
    """Install the packages that the workflow's author asks for, before anything else of the run is started."""
    names = request.inputs.apt_packages
    if not names:
        return
    journal.append(Noted(level="info", message=f"[Packages] installing {', '.join(names)}"))
    seconds = min(INSTALL_TIMEOUT, deadline.seconds_left(COMPLETION_GRACE))
    proxies = proxy_variables(request.environment)
    with activity(f"installing {', '.join(names)}"):
        result = install_packages(names, path=request.program_path, timeout=seconds, proxies=proxies)
    _record_output("[Packages] apt-get", result, journal)
    if result.exit_code != 0:
        output = excerpt(request.redactor(result.output), SHOWN_TAIL).strip()
        raise InputError(
            f"apt-get failed with exit code {result.exit_code}: {output}",
            hint="Check the names in the input apt-packages, and that the container reaches a package mirror.",
        )


def set_up(toolbox: Commands, request: RunRequest, journal: Journal) -> None:
    """Run the workflow author's setup commands once, where the tools will run. Raises `InputError` if they fail."""
    if (command := setup_command(request)) is None:
        return
    with activity("setup"):
        result = toolbox.run_command(command)
    _record_output("setup", result, journal)
    if result.exit_code != 0:
        output = request.redactor(readable_output(result.output))
        problem = result.error or excerpt(output, SHOWN_TAIL).strip().rstrip(".")
        raise InputError(
            f"The setup commands failed with exit code {result.exit_code}: {problem}.",
            hint="Correct the input setup; it runs in the sandbox, as the tools do.",
        )


def setup_command(request: RunRequest) -> CommandRequest | None:
    """Return the request to run the setup commands; None without any."""
    if not request.inputs.setup:
        return None
    script = "\n".join(("set -e", *request.inputs.setup))
    return CommandRequest(argv=("bash", "-c", script), timeout=SETUP_TIMEOUT)


def _record_output(name: str, result: CommandResult, journal: Journal) -> None:
    """Record how a command ended, with its output as data, which logs fold."""
    message = f"{name} ended with exit code {result.exit_code}"
    journal.append(Noted(level="info", message=message, data={"output": result.output.strip()}))
