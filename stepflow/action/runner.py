"""What a GitHub runner hands to a container action, and the run that it asks for."""

from __future__ import annotations

import re
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex

from stepflow.definition import builtin
from stepflow.definition.diagnostics import did_you_mean
from stepflow.definition.folder import find_agents
from stepflow.domain.json import JsonObject
from stepflow.domain.run import ANY_NAME
from stepflow.domain.secrets import SHORTEST_SECRET, holds_login, login_of, logs_in
from stepflow.errors import InputError
from stepflow.run.inputs import (
    NO_INPUTS,
    RECORDED,
    SECRET_INPUTS,
    Inputs,
    in_dashes,
    read_inputs,
    secret_values,
)
from stepflow.run.request import RunRequest, agents_folder, locate_repository
from stepflow.run.resume import chosen_folder
from stepflow.run.trigger import Skip, Trigger, find_trigger, read_event, read_event_file

PREFIX = "INPUT_"
#: What the runner says of GitHub's server.
_ADDRESSES = {"github-api-url": "GITHUB_API_URL", "github-server-url": "GITHUB_SERVER_URL"}
_REPOSITORY = re.compile(r"(?!\.\.?/)[\w.-]+/(?!\.\.?\Z)[\w.-]+", re.ASCII)
#: Addresses and tokens of the job's cache, artifacts and identity; nothing of them is for anything that a run starts.
SERVICES = "ACTIONS_"

#: What the job's own programs would accept as a credential, beside what logs in to a cloud or to the model's service.
#: The inputs are taken out by their prefix.
CREDENTIALS = ("GITHUB_TOKEN", "ACTIONS_RUNTIME_TOKEN", "GH_TOKEN", "STEPFLOW_READ_TOKEN")


@dataclass(frozen=True, kw_only=True)
class Runner:
    """The runner's side of the contract. Paths are as this process sees them; empty files mean that there is none.

    `warnings` are about inputs that the action does not declare. `environment` is what is left of it without the inputs
    and without the variables `withheld`, which hold one of the `secrets` or lead to one. `login` is what the services
    of models may read.
    """

    inputs: Inputs
    warnings: tuple[str, ...]
    event_name: str
    event: JsonObject
    actor: str
    repository: str
    job_url: str
    run_id: str
    workspace: Path
    temp: Path
    debug: bool
    environment: Mapping[str, str]
    withheld: frozenset[str]
    login: Mapping[str, str] = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)


def read_runner(environ: MutableMapping[str, str]) -> Runner:
    """Read everything once, and leave no secret behind in `environ`."""
    secrets, login = secrets_in(environ), login_of(environ)
    given, warnings = _take_inputs(environ)
    addresses = {name: environ[variable] for name, variable in _ADDRESSES.items() if environ.get(variable)}
    # Runners set more than they promise: one of them repeats every input under its bare name.
    withheld = secret_variables(environ, secrets)
    for name in withheld:
        del environ[name]
    debug = environ.get("RUNNER_DEBUG") == "1"
    inputs = read_inputs({**given, **addresses, "record": RECORDED if debug else ""})
    return Runner(
        inputs=inputs,
        warnings=warnings,
        event_name=environ.get("GITHUB_EVENT_NAME", ""),
        event=read_event_file(environ.get("GITHUB_EVENT_PATH", ""), named_by="GITHUB_EVENT_PATH"),
        actor=environ.get("GITHUB_TRIGGERING_ACTOR") or environ.get("GITHUB_ACTOR", ""),
        repository=_repository(environ.get("GITHUB_REPOSITORY", "")),
        job_url=_job_url(environ),
        run_id="-".join((environ.get("GITHUB_RUN_ID") or "local", environ.get("GITHUB_RUN_ATTEMPT") or "1")),
        workspace=Path(environ.get("GITHUB_WORKSPACE") or "."),
        temp=Path(environ.get("RUNNER_TEMP") or "/tmp"),  # noqa: S108 - only where no runner names a place
        debug=debug,
        environment=dict(environ),
        withheld=withheld,
        login=login,
        secrets=secrets,
    )


def secrets_in(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Every value that nobody may see: the inputs that are secrets, and the job's own credentials."""
    given = ((name, environ.get(f"{PREFIX}{name.upper()}", "")) for name in SECRET_INPUTS)
    inputs = (value for name, text in given for value in secret_values(name, text) if value)
    # A stand-in such as `test`, for a service that a job starts itself, is an ordinary word.
    own = (name for name, value in environ.items() if holds_login(name) and len(value) >= SHORTEST_SECRET)
    return (*inputs, *(environ[name] for name in (*CREDENTIALS, *own) if environ.get(name)))


def secret_variables(environ: Mapping[str, str], secrets: tuple[str, ...]) -> frozenset[str]:
    """The variables that hold an input, one of the secrets, or a way to the job's own services or to a login."""
    return frozenset(
        name
        for name, value in environ.items()
        if name.startswith((PREFIX, SERVICES))
        or name in CREDENTIALS
        or logs_in(name)
        or any(value == secret or (len(secret) >= SHORTEST_SECRET and secret in value) for secret in secrets)
    )


def _take_inputs(environ: MutableMapping[str, str]) -> tuple[dict[str, str], tuple[str, ...]]:
    # The runner keeps the dashes of an input's name and writes it in capitals.
    inputs = {name: environ.pop(name) for name in tuple(environ) if name.startswith(PREFIX)}
    given = {name.removeprefix(PREFIX).lower().replace(" ", "_"): value for name, value in inputs.items()}
    known = {in_dashes(name) for name in Inputs.model_fields} - NO_INPUTS
    unknown = sorted(given.keys() - known)
    return (
        {name: value for name, value in given.items() if name in known},
        tuple(f'The action has no input "{name}"{did_you_mean(name, known)}; it is ignored.' for name in unknown),
    )


def _repository(name: str) -> str:
    """Addresses are made of it, so nothing in it may lead elsewhere."""
    if name and not _REPOSITORY.fullmatch(name):
        raise InputError(
            "GITHUB_REPOSITORY names no repository.", hint="It must be owner/name, as GitHub's runner sets it."
        )
    return name


def _job_url(environ: Mapping[str, str]) -> str:
    parts = tuple(environ.get(name, "") for name in ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "GITHUB_RUN_ID"))
    return "{}/{}/actions/runs/{}".format(*parts) if all(parts) else ""


def read_trigger(runner: Runner) -> Trigger | Skip:
    """Which agent the event asks for, and on which issue."""
    shipped = (runner.inputs.agent or "").removeprefix(builtin.PREFIX)
    agents = (
        ()
        if ANY_NAME not in runner.inputs.trigger_labels
        else (*find_agents(agents_folder(*find_repository(runner))), shipped)
    )
    event = read_event(runner.event)
    return find_trigger(runner.event_name, event, runner.inputs, actor=runner.actor, agents=agents)


def find_repository(runner: Runner) -> tuple[Path, Inputs]:
    """The root of the repository, and the inputs with the working directory relative to it; or an `InputError`."""
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
    return locate_repository(root, workspace, runner.inputs)


def make_request(runner: Runner, trigger: Trigger) -> RunRequest:
    """The run of this job, with a run folder below the job's own."""
    run_id = f"{runner.run_id}-{token_hex(3)}"
    folder = chosen_folder(runner.inputs, runner.temp / "stepflow" / run_id)
    root, inputs = find_repository(runner)
    return RunRequest(
        run_id=run_id,
        inputs=inputs,
        trigger=trigger,
        root=root,
        folder=folder.resolve(),
        host_folder=_on_host(folder, runner),
        repository=runner.repository,
        job_url=runner.job_url,
        environment=runner.environment,
        withheld=runner.withheld,
        credentials=runner.secrets,
        login=runner.login,
        runner_temp=runner.temp,
    )


def _on_host(folder: Path, runner: Runner) -> str:
    """The folder's name outside the container: the runner translates input values, so one of them tells."""
    host_temp = runner.inputs.host.removeprefix("host=")
    if not host_temp or not folder.is_relative_to(runner.temp):
        return str(folder)
    return str(Path(host_temp) / folder.relative_to(runner.temp))
