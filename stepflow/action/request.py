"""What a job asks for.

Takes: what the runner handed over. Gives: the trigger, the repository's folder, the `RunRequest`.
May touch: the job log, to mask what it finds; it looks for credentials in the checkout.
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING

from stepflow.definition.folder import find_agents
from stepflow.errors import InputError
from stepflow.run.request import RunRequest, Skip, Trigger, find_trigger, login_files_in, read_event
from stepflow.run.resume import chosen_folder
from stepflow.sandbox.credentials.stripped_credentials import find_credentials

if TYPE_CHECKING:
    from stepflow.action.job import Job
    from stepflow.action.runner import Runner


def trigger_of(runner: Runner) -> Trigger | Skip:
    """Which agent the event asks for, and on which issue."""
    agents = () if runner.inputs.label_prefix else find_agents(root_of(runner))
    event = read_event(runner.event)
    return find_trigger(runner.event_name, event, runner.inputs, actor=runner.actor, agents=agents)


def root_of(runner: Runner) -> Path:
    """The folder of the repository, or an `InputError`."""
    workspace = runner.workspace.resolve()
    root = (workspace / runner.inputs.working_directory).resolve()
    if not root.is_relative_to(workspace):
        raise InputError(
            f"The working directory {root} lies outside the workspace {workspace}.",
            hint="Give working-directory relative to the workspace, without leaving it.",
        )
    if not root.is_dir():
        raise InputError(
            f"The working directory {root} does not exist.",
            hint="Check out the repository first (actions/checkout), and check the input working-directory.",
        )
    return root


def request_of(runner: Runner, trigger: Trigger, job: Job) -> RunRequest:
    """The run of this job, with a run folder below the job\'s own. Credentials that are found become masked."""
    run_id = f"{runner.run_id}-{secrets.token_hex(3)}"
    folder = chosen_folder(runner.inputs, runner.temp / "stepflow" / run_id)
    root = root_of(runner)
    left = find_credentials(root, runner.temp, login_files_in(root, runner.login)).secrets
    job.mask(left)
    return RunRequest(
        run_id=run_id,
        inputs=runner.inputs,
        trigger=trigger,
        root=root,
        folder=folder.resolve(),
        host_folder=_on_host(folder, runner),
        repository=runner.repository,
        job_url=runner.job_url,
        environment=runner.environment,
        withheld=runner.withheld,
        credentials=(*runner.secrets, *left),
        login=runner.login,
        runner_temp=runner.temp,
    )


def _on_host(folder: Path, runner: Runner) -> str:
    """The folder's name outside the container: the runner translates input values, so one of them tells (action.md)."""
    host_temp = runner.inputs.host.removeprefix("host=")
    if not host_temp or not folder.is_relative_to(runner.temp):
        return str(folder)
    return str(Path(host_temp) / folder.relative_to(runner.temp))
