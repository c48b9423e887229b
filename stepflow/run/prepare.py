"""Everything that can be known to be wrong before a token is spent.

Takes: a run request. Gives: `Prepared`, or an `InputError`/`DefinitionError` that says what to change.
May touch: the agent folder, once, through `load/`; the scenario file; GitHub, to read, where the inputs allow it.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from stepflow.domain.problem import Severity
from stepflow.domain.run import Limits
from stepflow.domain.words import CHECK_DIALECT_LIMIT, Dialect
from stepflow.errors import DefinitionError, InputError
from stepflow.llm import AnthropicModel, RecordingModel, ScriptedModel, load_scenario
from stepflow.load import check_arguments, load_agent
from stepflow.prompt.intake import Taken
from stepflow.run.checks import check_boundary, check_budget, check_request, unset_variables
from stepflow.run.clock import RehearsalClock, SystemClock
from stepflow.run.context import issue_text
from stepflow.run.input_types import Provider
from stepflow.run.own_verdict import open_verdict
from stepflow.run.subject import issue_number, read_subject

if TYPE_CHECKING:
    from stepflow.domain.definition import AgentDefinition
    from stepflow.domain.json import JsonObject
    from stepflow.domain.run import Issue
    from stepflow.domain.spent import Spent
    from stepflow.llm import Scenario
    from stepflow.ports import Clock, CustomVerdict, Model
    from stepflow.run.inputs import Inputs
    from stepflow.run.request import RunRequest
    from stepflow.run.subject import Subject


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A run that may begin. `model` has answered nothing yet; `args` are the checked run arguments; the deadline among
    the `limits` counts from now; `told` is what the model is told of the issue; `notes` are warnings for the log;
    `resources` are given back when the run is over; `spent` is what other runs on the issue were seen to have cost."""

    request: RunRequest
    agent: AgentDefinition
    args: JsonObject
    issue: Issue | None
    model: Model
    recording: RecordingModel | None
    limits: Limits
    resources: ExitStack
    told: Taken = field(default_factory=Taken)
    notes: tuple[str, ...] = ()
    verdict: CustomVerdict | None = None
    spent: Spent | None = None


def prepare_run(request: RunRequest, *, now: float) -> Prepared:
    """Load the agent, check arguments, inputs, model and actor. Nothing has been started and nothing written after
    this."""
    inputs = request.inputs
    check_request(request)
    agent = load_agent(
        request.trigger.agent,
        root=request.root,
        allow_spec_violations=inputs.allow_spec_violations,
        allow_custom_verdict=inputs.allow_custom_verdict,
    )
    scenario = scenario_of(request)
    given = {**(scenario.params if scenario else {}), **inputs.parameters}
    args, problems = check_arguments(agent, given, issue=issue_number(request, scenario))
    if any(problem.severity is Severity.ERROR for problem in problems):
        raise DefinitionError(f'the run arguments do not fit agent "{agent.name}".', problems=problems)
    check_boundary(request)
    check_budget(agent, inputs)
    with ExitStack() as opened:
        model = ScriptedModel(scenario) if scenario else _anthropic_model(inputs, opened)
        subject = read_subject(request, scenario)
        root = str(request.root)
        recording = RecordingModel(model, params=args, issue=subject.issue, root=root) if inputs.record else None
        return Prepared(
            request=_with_fetched_issue(request, subject),
            agent=replace(agent, problems=(*agent.problems, *problems)),
            args=args,
            issue=subject.issue,
            told=issue_text(subject.issue, subject.discussion, otherwise=inputs.issue_text or ""),
            notes=(*unset_variables(request), *subject.notes),
            model=recording or model,
            recording=recording,
            limits=limits_of(agent, inputs, now=now, spent=subject.spent),
            verdict=open_verdict(agent, args),
            spent=subject.spent,
            resources=opened.pop_all(),
        )


def clock_for(inputs: Inputs) -> Clock:
    """The clock that fits the model: nobody waits for a scripted one."""
    return RehearsalClock() if inputs.provider is Provider.SCRIPTED else SystemClock()


def limits_of(agent: AgentDefinition, inputs: Inputs, *, now: float, spent: Spent | None = None) -> Limits:
    """The limits of a run that starts now; the input replaces the agent's iteration limit (flow.md §3). `spent`: by
    other runs on the issue, where that is known."""
    usd, before = inputs.budget_usd, None
    if spent and inputs.budget_usd_per_issue is not None and inputs.budget_usd_per_issue - spent.usd < usd:
        # What was overdrawn leaves nothing, and the reason shall name the budget as it was given.
        usd, before = inputs.budget_usd_per_issue - spent.usd, spent.usd
    iterations = inputs.max_iterations or agent.verdict.max_iterations
    if agent.dialect is Dialect.CHECK:
        iterations = min(iterations, CHECK_DIALECT_LIMIT)
    return Limits(
        iterations=iterations,
        visits=inputs.max_visits_per_step,
        turns=inputs.max_turns_per_step,
        tokens=inputs.budget_tokens,
        usd=usd,
        spent_before=before,
        deadline=now + inputs.timeout_minutes * 60,
    )


def _with_fetched_issue(request: RunRequest, subject: Subject) -> RunRequest:
    """From here on an issue that was read counts like one that the event brought: later edits of it are noticed."""
    return replace(request, trigger=replace(request.trigger, issue=subject.issue)) if subject.fetched else request


def _anthropic_model(inputs: Inputs, resources: ExitStack) -> Model:
    return resources.enter_context(AnthropicModel(anthropic_key(inputs), inputs.anthropic_base_url))


def anthropic_key(inputs: Inputs) -> str:
    """The key, or an `InputError` that says how to give one."""
    if inputs.anthropic_api_key is None:
        raise InputError(
            "there is no API key: the input anthropic-api-key is empty.",
            hint="Pass `anthropic-api-key: ${{ secrets.ANTHROPIC_API_KEY }}` (on the command line: set "
            "ANTHROPIC_API_KEY), or run without a key with `provider: scripted`.",
        )
    return inputs.anthropic_api_key.get_secret_value()


def scenario_of(request: RunRequest) -> Scenario | None:
    """What a scripted model answers; None when a real one does."""
    if request.inputs.provider is not Provider.SCRIPTED:
        return None
    if request.inputs.scenario is None:
        raise InputError(
            "provider scripted needs a scenario.",
            hint="Set `scenario` to a YAML file of the repository, such as .agent/<agent>/scenarios/<name>.yaml.",
        )
    return load_scenario(request.root / request.inputs.scenario)
