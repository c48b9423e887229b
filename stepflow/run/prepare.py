"""Everything that can be known to be wrong before a token is spent.

Takes: a run request. Gives: `Prepared`, or an `InputError`/`DefinitionError` that says what to change.
May touch: the agent folder, once, through `load/`; the scenario file.
"""

from __future__ import annotations

import re
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from stepflow.domain.problem import Severity
from stepflow.domain.run import Issue, Limits
from stepflow.domain.words import Dialect
from stepflow.errors import DefinitionError, InputError
from stepflow.llm import AnthropicModel, RecordingModel, ScriptedModel, is_priced, load_scenario
from stepflow.load import check_arguments, find_agents, load_agent
from stepflow.run.clock import RehearsalClock, SystemClock
from stepflow.run.input_types import BoundaryMode, Network, Provider

if TYPE_CHECKING:
    from pathlib import Path

    from stepflow.domain.definition import AgentDefinition
    from stepflow.domain.json import JsonObject
    from stepflow.llm import Scenario
    from stepflow.ports import Clock, Model
    from stepflow.run.inputs import Inputs
    from stepflow.run.request import RunRequest

#: registry.md §1.
AGENT_NAME = re.compile(r"[a-z][a-z0-9-]*")

#: registry.md §6.3: more steps than this are never executed in the check dialect.
CHECK_DIALECT_LIMIT = 100


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A run that may begin. `model` has answered nothing yet; `args` are the checked run arguments; the deadline among
    the `limits` counts from now; `resources` are given back when the run is over."""

    request: RunRequest
    agent: AgentDefinition
    args: JsonObject
    issue: Issue | None
    model: Model
    recording: RecordingModel | None
    limits: Limits
    resources: ExitStack


def prepare_run(request: RunRequest, *, now: float) -> Prepared:
    """Load the agent, check arguments, inputs and model. Nothing has been started and nothing written after this."""
    inputs = request.inputs
    _check_supported(inputs)
    _check_name(request)
    agent = load_agent(
        request.trigger.agent,
        root=request.root,
        allow_spec_violations=inputs.allow_spec_violations,
        allow_custom_verdict=inputs.allow_custom_verdict,
    )
    scenario = load_scenario(_scenario_path(request)) if inputs.provider is Provider.SCRIPTED else None
    issue = _issue(request, scenario)
    given = {**(scenario.params if scenario else {}), **inputs.parameters}
    args, problems = check_arguments(agent, given, issue=issue.number if issue else None)
    if any(problem.severity is Severity.ERROR for problem in problems):
        raise DefinitionError(f'the run arguments do not fit agent "{agent.name}".', problems=problems)
    _check_boundary(request)
    _check_budget(agent, inputs)
    resources = ExitStack()
    model = ScriptedModel(scenario) if scenario else _anthropic_model(inputs, resources)
    recording = RecordingModel(model, params=args, issue=issue) if inputs.record else None
    return Prepared(
        request=request,
        agent=replace(agent, problems=(*agent.problems, *problems)),
        args=args,
        issue=issue,
        model=recording or model,
        recording=recording,
        limits=limits_of(agent, inputs, now=now),
        resources=resources,
    )


def clock_for(inputs: Inputs) -> Clock:
    """The clock that fits the model: nobody waits for a scripted one."""
    return RehearsalClock() if inputs.provider is Provider.SCRIPTED else SystemClock()


def limits_of(agent: AgentDefinition, inputs: Inputs, *, now: float) -> Limits:
    """The limits of a run that starts now; the input replaces the agent's iteration limit (flow.md §3)."""
    iterations = inputs.max_iterations or agent.verdict.max_iterations
    if agent.dialect is Dialect.CHECK:
        iterations = min(iterations, CHECK_DIALECT_LIMIT)
    return Limits(
        iterations=iterations,
        visits=inputs.max_visits_per_step,
        turns=inputs.max_turns_per_step,
        tokens=inputs.budget_tokens,
        usd=inputs.budget_usd,
        deadline=now + inputs.timeout_minutes * 60,
    )


def _check_name(request: RunRequest) -> None:
    """A label or a comment names an agent, never a path to one (security.md case 10)."""
    name = request.trigger.agent
    if not AGENT_NAME.fullmatch(name):
        known = ", ".join(find_agents(request.root)) or "none"
        raise InputError(
            f'"{name[:100]}" is no agent name (SF101).',
            hint=f"A name has lower-case letters, digits and dashes. The agents of this repository: {known}.",
        )


def _check_supported(inputs: Inputs) -> None:
    """Refuse what this version cannot do, instead of doing something else."""
    wants = {
        "network: none": inputs.network is Network.NONE,
        f"provider: {inputs.provider}": inputs.provider in (Provider.BEDROCK, Provider.VERTEX, Provider.FOUNDRY),
        "anthropic-federation-rule-id": inputs.anthropic_federation_rule_id is not None,
        f"resume: {inputs.resume}": inputs.resume not in ("auto", "never"),
        "budget-usd-per-issue": inputs.budget_usd_per_issue is not None,
    }
    if asked := [name for name, wanted in wants.items() if wanted]:
        raise InputError(f"this version does not support {', '.join(asked)}.", hint="Leave that input out.")


def _check_boundary(request: RunRequest) -> None:
    if request.inputs.boundary is BoundaryMode.DRY_RUN:
        return
    if request.inputs.github_token is None:
        raise InputError(
            "the input github-token is empty.",
            hint="Pass `github-token: ${{ github.token }}`, or set `boundary: dry-run` to plan without writing.",
        )
    if not request.repository:
        raise InputError(
            "it is not known which repository to write to.",
            hint="Set GITHUB_REPOSITORY to owner/name, or set `boundary: dry-run` to plan without writing.",
        )


def _check_budget(agent: AgentDefinition, inputs: Inputs) -> None:
    """A budget in dollars holds only where the price is known (action.md "Inputs")."""
    if inputs.provider is not Provider.ANTHROPIC or inputs.budget_tokens is not None:
        return
    default = inputs.model or agent.default_model
    models = {step.model or default for step in agent.steps.values() if step.command is None}
    if unpriced := sorted(model for model in models if not is_priced(model)):
        raise InputError(
            f"the price of the model {', '.join(unpriced)} is not known, so budget-usd cannot be kept.",
            hint="Set budget-tokens as well, or choose a model with a known price.",
        )


def _issue(request: RunRequest, scenario: Scenario | None) -> Issue | None:
    """The issue of the event, else of the inputs, else of the scenario."""
    trigger = request.trigger
    if trigger.issue is not None:
        return trigger.issue
    if trigger.issue_number is not None:
        return Issue(number=trigger.issue_number, body=request.inputs.issue_text or "")
    return scenario.issue.to_issue() if scenario and scenario.issue else None


def _anthropic_model(inputs: Inputs, resources: ExitStack) -> Model:
    if inputs.anthropic_api_key is None:
        raise InputError(
            "there is no API key: the input anthropic-api-key is empty.",
            hint="Pass `anthropic-api-key: ${{ secrets.ANTHROPIC_API_KEY }}` (on the command line: set "
            "ANTHROPIC_API_KEY), or rehearse without a key with `provider: scripted`.",
        )
    key = inputs.anthropic_api_key.get_secret_value()
    return resources.enter_context(AnthropicModel(key, inputs.anthropic_base_url))


def _scenario_path(request: RunRequest) -> Path:
    if request.inputs.scenario is None:
        raise InputError(
            "provider scripted needs a scenario.",
            hint="Set `scenario` to a YAML file of the repository, such as .agent/<agent>/scenarios/<name>.yaml.",
        )
    return request.root / request.inputs.scenario
