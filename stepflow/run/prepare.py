"""Everything that can be known to be wrong before a token is spent."""

from __future__ import annotations

import re
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import TYPE_CHECKING

from stepflow.definition.agent import find_effort_misfit
from stepflow.definition.builtin import PREFIX
from stepflow.definition.folder import find_agents
from stepflow.definition.loading import load_agent
from stepflow.definition.parameters import check_arguments
from stepflow.domain.figures import Spent
from stepflow.domain.problem import Severity
from stepflow.domain.secrets import SHORTEST_SECRET
from stepflow.domain.words import Permission, Provider
from stepflow.engine.prompt.intake.sanitize import SanitizedText
from stepflow.errors import DefinitionError, InputError
from stepflow.model.models import is_priced
from stepflow.model.scenario import RecordingModel, ScriptedModel
from stepflow.run.clock import RehearsalClock, SystemClock
from stepflow.run.inputs import BoundaryMode
from stepflow.run.parts import LoadedSchemas, check_addresses, open_anthropic, open_verdict
from stepflow.run.readiness import check_readiness
from stepflow.run.resume import OWN_FILES, check_reply, find_previous_run, resumed_request
from stepflow.run.sandbox import check_mcp_secrets
from stepflow.run.scenarios import load_scenario
from stepflow.run.subject.follow_up import read_feedback
from stepflow.run.subject.images import read_images
from stepflow.run.subject.issue import issue_number, issue_text, join_texts, read_again, read_subject
from stepflow.sandbox.environment import check_pass_env
from stepflow.sandbox.packages import check_packages

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from stepflow.domain.decision import FlowResult
    from stepflow.domain.definition import AgentDefinition
    from stepflow.domain.json import JsonObject, JsonValue
    from stepflow.domain.problem import Problem
    from stepflow.domain.run import Issue, IssueImage, Limits, RunFacts
    from stepflow.model.scenario import Scenario
    from stepflow.ports import Clock, Commands, CustomVerdict, Model, Schemas, Tools
    from stepflow.run.ending import Ending
    from stepflow.run.inputs import Inputs
    from stepflow.run.recorded import PreviousRun
    from stepflow.run.request import RunRequest


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A run that may begin. `model` has answered nothing yet; `args` are the checked run arguments; the deadline among
    the `limits` counts from now; `context` and `images` are what the model is shown of the issue; `notes` are warnings;
    `resources` are given back when the run is over; `spent` is what other runs on the issue were seen to have cost;
    `previous` is the run in the folder: the one that goes on, unless it has a `problem`. A program that runs an agent
    itself gives how its run shall `finish` once the flow has ended, and may give `schemas`, `tools` and `commands`; the
    sandbox stands for what it does not give."""

    request: RunRequest
    agent: AgentDefinition
    args: JsonObject
    issue: Issue | None
    model: Model
    limits: Limits
    recording: RecordingModel | None = None
    resources: ExitStack = field(default_factory=ExitStack)
    context: SanitizedText = field(default_factory=SanitizedText)
    images: tuple[IssueImage, ...] = ()
    notes: tuple[str, ...] = ()
    verdict: CustomVerdict | None = None
    spent: Spent | None = None
    previous: PreviousRun | None = None
    schemas: Schemas = field(default_factory=LoadedSchemas)
    tools: Tools | None = None
    commands: Commands | None = None
    finish: Callable[[RunFacts, FlowResult], Ending] | None = None

    @property
    def resumed_run(self) -> PreviousRun | None:
        """The earlier run that goes on; None for a new one."""
        return self.previous if self.previous and not self.previous.problem else None


def prepare_run(request: RunRequest, *, now: float) -> Prepared:
    """Load the agent, and check arguments, inputs, model and actor. It starts nothing and writes nothing."""
    inputs = request.inputs
    check_request(request)
    agent = load_requested(request)
    scenario = scenario_of(request)
    issue = issue_number(request, scenario)
    args, problems = run_arguments(agent, {**(scenario.params if scenario else {}), **inputs.parameters}, issue)
    _check_inputs(request, agent)
    previous = find_previous_run(request, agent, args, issue)
    resumed_run = previous if previous and not previous.problem else None
    approver = check_reply(request, agent, resumed_run) if resumed_run else Permission.NONE
    with ExitStack() as opened:
        model: Model
        if scenario:
            model = ScriptedModel(scenario, position=resumed_run.position(scenario) if resumed_run else None)
        else:
            model = opened.enter_context(open_anthropic(request))
        if resumed_run:
            # A resumed run keeps what the model was shown of the issue at first.
            context, images = SanitizedText(text=resumed_run.started.context_text), resumed_run.images
            request, before = resumed_request(resumed_run.started, request), resumed_run.turns()
            subject = read_again(request, resumed_run.started.subject, approver)
        else:
            subject, before = read_subject(request, scenario), ()
            context = issue_text(subject.issue, subject.discussion, otherwise=inputs.issue_text or "")
            if subject.fetched:
                # From here on it counts like one that the event brought: later edits of it are noticed.
                request = replace(request, trigger=replace(request.trigger, issue=subject.issue, locked=subject.locked))
            if request.follow_up and request.trigger.pull_request:
                feedback = read_feedback(request, request.follow_up, request.trigger.pull_request)
                context = join_texts((context, feedback.text))
                request = replace(request, follow_up=replace(request.follow_up, threads=feedback.threads))
            context, images = read_images(request, subject.issue, context)
        warnings = check_readiness(request, agent)
        # The agent's own code is loaded after the actor was asked about.
        verdict, recording = open_verdict(agent, args), None
        if verdict and resumed_run:
            resumed_run.feed(verdict)
        if inputs.record:
            recording = RecordingModel(model, params=args, issue=subject.issue, root=str(request.root), before=before)
        network = (f"[Network] {note}" for note in request.proxy_config.notes)
        return Prepared(
            request=request,
            agent=replace(agent, problems=(*agent.problems, *problems)),
            args=args,
            issue=subject.issue,
            context=context,
            images=images,
            notes=(*unset_variables(request), *network, *subject.notes, *warnings),
            model=recording or model,
            recording=recording,
            limits=limits_of(agent, inputs, now=now, spent=subject.spent or (Spent() if resumed_run else None)),
            verdict=verdict,
            spent=subject.spent,
            resources=opened.pop_all(),
            previous=previous,
        )


def _check_inputs(request: RunRequest, agent: AgentDefinition) -> None:
    """What the inputs say must fit the agent."""
    check_boundary(request)
    check_budget(agent, request.inputs)
    check_effort(agent, request.inputs)
    check_mcp_secrets(agent.mcp_servers, request.inputs.mcp_secrets)


def load_requested(request: RunRequest) -> AgentDefinition:
    """The agent that was asked for. Raises `DefinitionError` with everything that is wrong with it."""
    inputs = request.inputs
    return load_agent(
        requested_agent(request),
        root=request.definition_root,
        allow_spec_violations=inputs.allow_spec_violations,
        allow_custom_verdict=inputs.allow_custom_verdict,
        checks=inputs.checks,
    )


def requested_agent(request: RunRequest) -> str:
    """The agent's name; with `builtin/` before it for the shipped one that the input `agent` names, unless the
    repository has one of this name itself."""
    name, given = request.trigger.agent, request.inputs.agent or ""
    own = name.removeprefix(PREFIX)
    if given != f"{PREFIX}{own}":
        return name
    return own if own in find_agents(request.definition_root) else given


def run_arguments(
    agent: AgentDefinition, given: Mapping[str, JsonValue | str], issue: int | None
) -> tuple[JsonObject, tuple[Problem, ...]]:
    """The run arguments, and what is only warned of. Raises `DefinitionError` for those that do not fit."""
    args, problems = check_arguments(agent, given, issue=issue)
    if any(problem.severity is Severity.ERROR for problem in problems):
        raise DefinitionError(f'The run arguments do not fit agent "{agent.name}".', problems=problems)
    return args, problems


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
    own = agent.verdict.limits
    return replace(
        own,
        iterations=agent.cap(inputs.max_iterations or own.iterations),
        tokens=inputs.budget_tokens,
        usd=usd,
        spent_before=before,
        deadline=now + inputs.timeout_minutes * 60,
    )


def scenario_of(request: RunRequest) -> Scenario | None:
    """What a scripted model answers; None when a real one does."""
    if request.inputs.provider is not Provider.SCRIPTED:
        return None
    if request.inputs.scenario is None:
        raise InputError(
            "The provider `scripted` needs a scenario.",
            hint="Set `scenario` to a YAML file of the repository, such as .agent/<agent>/scenarios/<name>.yaml.",
        )

    return load_scenario(request.inputs.scenario, root=request.definition_root)


#: registry.md §1.
AGENT_NAME = re.compile(r"[a-z][a-z0-9-]*")


def check_request(request: RunRequest) -> None:
    """Everything that is known to be wrong before the agent is loaded."""
    _check_name(request)
    folder, record = request.folder.resolve(), request.inputs.record
    # A folder where the tools cannot write and no validator finds it.
    if any(folder.is_relative_to(root.resolve()) for root in (request.root, request.source or request.root)):
        raise InputError(
            f"The run folder {folder} lies inside the repository, where the tools could change it.",
            hint="Name a folder outside the repository in run-folder, for example below ${{ runner.temp }}.",
        )
    path = PurePath(record) if record is not None else None
    if path and (path.is_absolute() or ".." in path.parts or not path.parts or path.parts[0] in OWN_FILES):
        raise InputError(
            f"record: {record!r} is no place for a scenario in the run folder.",
            hint="Give a relative path without `..` that the run does not use itself, such as `recorded.yaml`.",
        )
    check_addresses(request.inputs)
    # Reading it is what checks proxy and certificates.
    request.proxy_config  # noqa: B018
    _check_pass_env(request)
    check_packages(request.inputs.apt_packages, path=request.program_path)


def check_boundary(request: RunRequest) -> None:
    """A run that shall write must know where to, as whom and for whom; to ask about the actor, who that is."""
    inputs = request.inputs
    writes = inputs.boundary is BoundaryMode.GITHUB
    if writes and inputs.github_token is None:
        raise InputError(
            "The input github-token is empty.",
            hint="Pass `github-token: ${{ github.token }}`, or set `boundary: dry-run` to plan without writing.",
        )
    if writes and not request.repository:
        raise InputError(
            "It is not known which repository to write to.",
            hint="Set GITHUB_REPOSITORY to owner/name, or set `boundary: dry-run` to plan without writing.",
        )
    if (writes or inputs.read_token is not None) and not request.trigger.actor:
        raise InputError(
            "It is not known who started this run, and whoever did needs write access.",
            hint="Set GITHUB_ACTOR to your GitHub login, or set `boundary: dry-run` and leave out read-token.",
        )


def check_budget(agent: AgentDefinition, inputs: Inputs) -> None:
    """A budget in dollars holds only where the price is known (action.md "Inputs")."""
    if inputs.provider is Provider.SCRIPTED or inputs.budget_tokens is not None:
        return
    models = {rung.model for ladder in agent.ladders(inputs.model).values() for rung in ladder.rungs}
    if unpriced := sorted(model for model in models if not is_priced(model, inputs.provider)):
        raise InputError(
            f"The price of the model {', '.join(unpriced)} is not known, so budget-usd cannot be kept.",
            hint="Set budget-tokens as well, or choose a model with a known price.",
        )


def check_effort(agent: AgentDefinition, inputs: Inputs) -> None:
    """The model that a run is given must take the efforts that the agent says for its own ones."""
    for step_id in agent.ladders(None) if inputs.model else ():
        step = agent.steps[step_id]
        if step.models or not (misfit := find_effort_misfit(inputs.model or "", step.effort)):
            continue
        raise InputError(
            f'The input model cannot be used: {misfit.message}, which step "{step_id}" has from the agent.',
            hint="Choose another model for this run, or let the agent say the effort behind its own models, such as "
            '"models": ["opus:high"].',
        )


def unset_variables(request: RunRequest) -> tuple[str, ...]:
    """Warnings about names in `pass-env` that nothing stands behind."""
    unset = (name for name in request.inputs.pass_env if name not in request.environment)
    return tuple(f"pass-env: {name} is not set, so the tools will not see it." for name in unset)


def _check_name(request: RunRequest) -> None:
    """A label or a comment names an agent, never a path to one (security.md case 10)."""
    name = requested_agent(request)
    given = request.inputs.agent or ""
    is_builtin = name.startswith(PREFIX) and name == given
    if request.inputs.checks and (not given.startswith(PREFIX) or given == f"{PREFIX}{name}"):
        raise InputError(
            f"The input checks belongs to a shipped agent, and {name[:100]} is one of this repository.",
            hint=f"Leave checks out: the validators in .agent/{name[:100]}/steps_registry.json count.",
        )
    if not is_builtin and not AGENT_NAME.fullmatch(name):
        known = ", ".join(find_agents(request.definition_root)) or "none"
        raise InputError(
            f'"{name[:100]}" is no agent name (SF101).',
            hint=f"A name has lower-case letters, digits and dashes. The agents of this repository: {known}.",
            code="SF101",
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
