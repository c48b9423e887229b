"""What is there before a run's first step: packages, and what the workflow's author has the tools' place set up with.

Takes: the inputs `apt-packages` and `setup`, a deadline. Gives: nothing or an `InputError`; log entries.
May touch: nothing itself; packages are installed and commands are run by the toolbox.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepflow.domain.command import CommandRequest
from stepflow.domain.event import Noted
from stepflow.errors import InputError
from stepflow.run.deadline import COMPLETION_GRACE, Deadline
from stepflow.run.outbound import proxy_variables
from stepflow.sandbox.packages import install_packages

if TYPE_CHECKING:
    from stepflow.domain.command import CommandResult
    from stepflow.domain.json import JsonObject
    from stepflow.ports import Commands, Journal
    from stepflow.run.request import RunRequest

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
