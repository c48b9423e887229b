"""The toolbox in a checkout without credentials, lent and taken back (security.md "Start-up")."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepflow.domain.checkout import CommandRequest
from stepflow.domain.event import CanariesTried, Noted
from stepflow.errors import InputError, IsolationError
from stepflow.run.clock import COMPLETION_GRACE, Deadline
from stepflow.run.proxies import proxy_variables
from stepflow.sandbox.box import Toolbox
from stepflow.sandbox.canaries import Outside
from stepflow.sandbox.packages import install_packages
from stepflow.sandbox.selftest import try_canaries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from stepflow.domain.checkout import CommandResult
    from stepflow.domain.json import JsonObject
    from stepflow.domain.words import Isolation
    from stepflow.ports import Commands, Journal
    from stepflow.run.clock import Cancellation
    from stepflow.run.request import RunRequest
    from stepflow.sandbox.options import ToolboxOptions
    from stepflow.sandbox.restore import CheckoutRestore


@dataclass(frozen=True, kw_only=True)
class Sandbox:
    """What a run works in. `credentials` says how many stood where."""

    toolbox: Toolbox
    credentials: str

    @property
    def isolation(self) -> Mapping[str, str]:
        """Each layer's state, for the report."""
        return {**self.toolbox.isolation, "credentials": self.credentials}


@contextmanager
def open_sandbox(
    root: Path,
    credentials: AbstractContextManager[CheckoutRestore],
    options: ToolboxOptions,
    cancellation: Cancellation,
    *,
    warn: Callable[[str], None],
) -> Iterator[Sandbox]:
    """Open it for the block, in which a signal interrupts every wait for the tools. `credentials` takes those of the
    checkout away; what of them does not come back afterwards is passed to `warn`.

    Signals stay held at the end: no signal may strike while something is given back. Raises `IsolationError` when a
    process may have survived.
    """
    cancellation.hold()
    restore = None
    try:
        with (
            credentials as restore,
            Toolbox.start(root, options=options, restore=restore) as toolbox,
            toolbox.interruptible(cancellation.waiting),
        ):
            yield Sandbox(toolbox=toolbox, credentials=restore.state)
    finally:
        for note in restore.notes if restore else ():
            warn(note)
    if not toolbox.ended_all:
        raise IsolationError(
            "A process of the tools may have survived the run.",
            hint="Nothing in the checkout was touched any more; check the repository out again on a fresh machine.",
        )


def outside_of(request: RunRequest) -> Outside:
    """What the request knows of the machine around the toolbox."""
    return Outside(environment=request.environment, run_folder=request.folder, secrets=request.own_secrets())


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
        raise InputError(
            f"apt-get failed with exit code {result.exit_code}: {result.stdout.strip()[-SHOWN_TAIL:]}",
            hint="Check the names in the input apt-packages, and that the container reaches a package mirror.",
        )


def set_up(toolbox: Commands, commands: tuple[str, ...], journal: Journal) -> None:
    """Run the workflow author's own commands once, where the tools will run (action.md, input `setup`)."""
    if not commands:
        return
    script = "\n".join(("set -e", *commands))
    result = toolbox.run_command(CommandRequest(argv=("bash", "-c", script), timeout=SETUP_TIMEOUT))
    journal.append(Noted(level="info", message=f"setup ended with exit code {result.exit_code}", data=_said(result)))
    if result.exit_code != 0:
        said = (result.error or result.stderr or result.stdout).strip().rstrip(".")[-SHOWN_TAIL:]
        raise InputError(
            f"The setup commands failed with exit code {result.exit_code}: {said}.",
            hint="Correct the input setup; it runs in the sandbox, as the tools do.",
        )


def _said(result: CommandResult) -> JsonObject:
    """What a command printed, as data that logs fold away."""
    return {"output": "\n".join(text.strip() for text in (result.stdout, result.stderr) if text.strip())}
