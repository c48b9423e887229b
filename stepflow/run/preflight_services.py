"""The rows of a preflight about the model and about GitHub.

Takes: a run request, and the agent where it is sound. Gives: rows.
May touch: the model's service, asked for entries of models, which costs nothing; GitHub, to read, with `read-token`.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from stepflow.boundary.actor import check_actor
from stepflow.domain.figures import usd
from stepflow.domain.words import Outcome, Provider
from stepflow.model.models import UnlistedModel, resolve_model
from stepflow.model.prices import is_priced
from stepflow.run.access import open_anthropic
from stepflow.run.checks import check_budget
from stepflow.run.input_types import BoundaryMode
from stepflow.run.parts import boundary_settings
from stepflow.run.prepare import scenario_of
from stepflow.run.rows import failed, guarded, ok, unknown, warning
from stepflow.run.subject import github_reader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stepflow.domain.definition import AgentDefinition
    from stepflow.domain.preflight import Check
    from stepflow.run.request import RunRequest

_MAY_OPEN = "Actions may create pull requests"
_SCOPES = "scopes of github-token"


def model_checks(request: RunRequest, agent: AgentDefinition) -> tuple[Check, ...]:
    """Whether the models of this agent answer, and what a turn of them costs."""
    if request.inputs.provider is Provider.SCRIPTED:
        return guarded("model", lambda: _scripted(request))
    models = _models(request, agent)
    return (
        *guarded("model", lambda: _reachable(request, models)),
        *guarded("price", lambda: _priced(request, agent, models)),
    )


def github_checks(request: RunRequest, agent: AgentDefinition | None) -> tuple[Check, ...]:
    """What `read-token` lets us know, and what no token may ask."""
    token, writes = request.inputs.read_token, request.inputs.boundary is BoundaryMode.GITHUB
    if token is None:
        return tuple(_unasked(request)) if writes else ()
    told = guarded("read-token", lambda: _read(request, agent, token.get_secret_value()))
    return (*told, *(_unaskable(request) if writes else ()))


def _scripted(request: RunRequest) -> Iterator[Check]:
    scenario = scenario_of(request)
    if scenario:
        yield ok("model", f"scripted, no key needed: {request.inputs.scenario}")
        yield ok("price", "scripted turns cost nothing")


def _models(request: RunRequest, agent: AgentDefinition) -> tuple[str, ...]:
    default = request.inputs.model or agent.default_model
    asked = (step.model or default for step in agent.steps.values() if step.command is None)
    return tuple(dict.fromkeys(resolve_model(name, request.inputs.provider) for name in asked))


def _reachable(request: RunRequest, models: tuple[str, ...]) -> Iterator[Check]:
    with open_anthropic(request) as service:
        for model in models:
            fault = service.probe(model)
            if fault is None:
                yield ok("model", f"{model} answers at {service.base_url}")
            elif isinstance(fault, UnlistedModel):
                yield unknown("model", f"the first turn will tell: {service.base_url} has no list of models")
            else:
                yield failed("model", f"{fault.reason} {fault.hint}".strip(), Outcome.MODEL_FAILED)


def _priced(request: RunRequest, agent: AgentDefinition, models: tuple[str, ...]) -> Iterator[Check]:
    check_budget(agent, request.inputs)
    unpriced = [model for model in models if not is_priced(model, request.inputs.provider)]
    if unpriced:
        tokens = f"budget-tokens ({request.inputs.budget_tokens:,}) holds instead of budget-usd"
        yield warning("price", f"of {', '.join(unpriced)} unknown; {tokens}")
    else:
        yield ok("price", f"known; budget-usd is {usd(request.inputs.budget_usd)}")


def _unasked(request: RunRequest) -> Iterator[Check]:
    yield unknown(
        "actor", "whether whoever starts a run may write is asked in the boundary, or before with `read-token`"
    )
    yield unknown("labels", f"see {_address(request)}/labels, or give `read-token`")
    yield from _unaskable(request)


def _read(request: RunRequest, agent: AgentDefinition | None, token: str) -> Iterator[Check]:
    with closing(github_reader(request, token)) as reader:
        refusal = check_actor(reader, boundary_settings(request))
        there = reader.labels()
    held = f"{request.trigger.actor} has `{request.inputs.min_permission}` or more"
    yield failed("actor", refusal, Outcome.REFUSED) if refusal else ok("actor", held)
    yield _labels(request, agent, {name.casefold() for name in there})


def _labels(request: RunRequest, agent: AgentDefinition | None, there: set[str]) -> Check:
    trigger = request.inputs.trigger_label or f"{request.inputs.label_prefix}{request.trigger.agent}"
    wanted = dict.fromkeys((trigger, *(agent.github.labels_add if agent else ())))
    if missing := [name for name in wanted if name.casefold() not in there]:
        return warning("labels", f"not in the repository, see {_address(request)}/labels: {', '.join(missing)}")
    return ok("labels", f"there: {', '.join(wanted)}")


def _unaskable(request: RunRequest) -> Iterator[Check]:
    where = f"{_address(request)}/settings/actions"
    yield unknown(_MAY_OPEN, f"see {where}, 'Allow GitHub Actions to create and approve pull requests'")
    yield unknown(_SCOPES, "see `permissions:` of the job: it takes contents, issues and pull-requests, each `write`")


def _address(request: RunRequest) -> str:
    return f"{request.inputs.github_server_url.rstrip('/')}/{request.repository or 'OWNER/REPOSITORY'}"
