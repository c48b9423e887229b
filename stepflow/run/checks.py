"""What inputs and request say that cannot work, without looking at the agent or at anything outside."""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import TYPE_CHECKING

from stepflow.definition.folder import find_agents
from stepflow.domain.secrets import SHORTEST_SECRET
from stepflow.domain.words import Provider
from stepflow.errors import InputError
from stepflow.model.models import is_priced
from stepflow.run.connections import check_addresses
from stepflow.run.inputs import BoundaryMode
from stepflow.sandbox.environment import check_pass_env
from stepflow.sandbox.packages import check_packages

if TYPE_CHECKING:
    from stepflow.domain.definition import AgentDefinition
    from stepflow.run.inputs import Inputs
    from stepflow.run.request import RunRequest

#: registry.md §1.
AGENT_NAME = re.compile(r"[a-z][a-z0-9-]*")
#: What the run itself writes into its folder.
OWN_FILES = frozenset(
    {
        "journal.jsonl",
        "log.jsonl",
        *("report.json", "report.json.part"),
        *("report.html", "report.html.part"),
        *("effects.json", "effects.json.part"),
        "work.bundle",
        "snapshots",
    }
)


def check_request(request: RunRequest) -> None:
    """Everything that is known to be wrong before the agent is loaded."""
    _check_name(request)
    _check_run_folder(request)
    _check_record(request.inputs.record)
    check_addresses(request.inputs)
    # Reading it is what checks proxy and certificates.
    request.proxy_config  # noqa: B018
    _check_pass_env(request)
    check_packages(request.inputs.apt_packages, path=request.program_path)


def check_boundary(request: RunRequest) -> None:
    """A run that shall write must know where to, as whom and for whom; to ask about the actor, who that is."""
    if request.inputs.boundary is BoundaryMode.GITHUB:
        _check_writing(request)
    _check_actor(request)


def _check_writing(request: RunRequest) -> None:
    if request.inputs.github_token is None:
        raise InputError(
            "The input github-token is empty.",
            hint="Pass `github-token: ${{ github.token }}`, or set `boundary: dry-run` to plan without writing.",
        )
    if not request.repository:
        raise InputError(
            "It is not known which repository to write to.",
            hint="Set GITHUB_REPOSITORY to owner/name, or set `boundary: dry-run` to plan without writing.",
        )


def check_budget(agent: AgentDefinition, inputs: Inputs) -> None:
    """A budget in dollars holds only where the price is known (action.md "Inputs")."""
    if inputs.provider is Provider.SCRIPTED or inputs.budget_tokens is not None:
        return
    default = inputs.model or agent.default_model
    models = {step.model or default for step in agent.steps.values() if step.command is None}
    if unpriced := sorted(model for model in models if not is_priced(model, inputs.provider)):
        raise InputError(
            f"The price of the model {', '.join(unpriced)} is not known, so budget-usd cannot be kept.",
            hint="Set budget-tokens as well, or choose a model with a known price.",
        )


def unset_variables(request: RunRequest) -> tuple[str, ...]:
    """Warnings about names in `pass-env` that nothing stands behind."""
    unset = (name for name in request.inputs.pass_env if name not in request.environment)
    return tuple(f"pass-env: {name} is not set, so the tools will not see it." for name in unset)


def _check_actor(request: RunRequest) -> None:
    asks = request.inputs.boundary is BoundaryMode.GITHUB or request.inputs.read_token is not None
    if asks and not request.trigger.actor:
        raise InputError(
            "It is not known who started this run, and whoever did needs write access.",
            hint="Set GITHUB_ACTOR to your GitHub login, or set `boundary: dry-run` and leave out read-token.",
        )


def _check_name(request: RunRequest) -> None:
    """A label or a comment names an agent, never a path to one (security.md case 10)."""
    name = request.trigger.agent
    if not AGENT_NAME.fullmatch(name):
        known = ", ".join(find_agents(request.root)) or "none"
        raise InputError(
            f'"{name[:100]}" is no agent name (SF101).',
            hint=f"A name has lower-case letters, digits and dashes. The agents of this repository: {known}.",
            code="SF101",
        )


def _check_run_folder(request: RunRequest) -> None:
    """A folder where the tools cannot write and no validator finds it."""
    folder = request.folder.resolve()
    if folder.is_relative_to(request.root.resolve()):
        raise InputError(
            f"The run folder {folder} lies inside the repository, where the tools could change it.",
            hint="Name a folder outside the repository in run-folder, for example below ${{ runner.temp }}.",
        )


def _check_record(record: str | None) -> None:
    if record is None:
        return
    path = PurePath(record)
    if path.is_absolute() or ".." in path.parts or not path.parts or path.parts[0] in OWN_FILES:
        raise InputError(
            f"record: {record!r} is no place for a scenario in the run folder.",
            hint="Give a relative path without `..` that the run does not use itself, such as `recorded.yaml`.",
        )


def _check_pass_env(request: RunRequest) -> None:
    names, environment = request.inputs.pass_env, request.environment
    check_pass_env({name: environment.get(name, "") for name in names})
    secrets = [secret.strip() for secret in request.own_secrets() if len(secret.strip()) >= SHORTEST_SECRET]
    for name in names:
        value = environment.get(name, "")
        if name in request.withheld or any(secret in value for secret in secrets):
            raise InputError(
                f"pass-env: `{name}` holds a secret of this run, which no tool may see.",
                hint="Remove it from pass-env; tools and validators must do without that secret.",
            )
