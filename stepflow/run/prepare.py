"""Everything that can be known to be wrong before a token is spent."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Protocol, cast

from stepflow.definition.agent import check_arguments
from stepflow.definition.loading import load_agent
from stepflow.domain.definition import AgentDefinition, Step
from stepflow.domain.json import JsonObject, JsonValue
from stepflow.domain.problem import Problem, Severity
from stepflow.domain.run import Issue, IssueImage, Limits
from stepflow.domain.text import Spent
from stepflow.domain.words import Permission, Provider, VerdictType
from stepflow.engine.prompt.intake.sanitize import SanitizedText
from stepflow.errors import DefinitionError, InputError
from stepflow.model.access import ModelAccess, WorkloadIdentity
from stepflow.model.anthropic_model import AnthropicModel
from stepflow.model.logins import address_of
from stepflow.model.scenario import RecordingModel, Scenario, ScriptedModel
from stepflow.ports import Clock, Commands, CustomVerdict, Model, Schemas, Tools
from stepflow.run.clock import RehearsalClock, SystemClock
from stepflow.run.follow_up import read_feedback
from stepflow.run.inputs import BoundaryMode, Inputs
from stepflow.run.issue import issue_number, issue_text, join_texts, read_again, read_images, read_subject
from stepflow.run.readiness import (
    _check_inputs,
    check_readiness,
    check_request,
    requested_agent,
)
from stepflow.run.recorded import PreviousRun
from stepflow.run.request import RunRequest
from stepflow.run.resume import check_reply, find_previous_run, resumed_request
from stepflow.run.scenarios import load_scenario


class LoadedSchemas:
    """Gives each step the schema that was resolved at load: nothing on disk can change it any more."""

    def resolve(self, step: Step) -> JsonObject | None:
        """The step's own answer schema."""
        return step.schema


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A run that may begin. `model` has answered nothing yet; `args` are the checked run arguments; the deadline among
    the `limits` counts from now; `context` and `images` are what the model is shown of the issue; `notes` are warnings;
    `resources` are given back when the run is over; `spent` is what other runs on the issue were seen to have cost;
    `previous` is the run in the folder: the one that goes on, unless it has a `problem`. A program that runs an agent
    itself may give `schemas`, `tools` and `commands`; the sandbox stands for what it does not give."""

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
    """The limits of a run that starts now; the input replaces the agent's iteration limit. `spent`: by
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


def unset_variables(request: RunRequest) -> tuple[str, ...]:
    """Warnings about names in `pass-env` that nothing stands behind."""
    unset = (name for name in request.inputs.pass_env if name not in request.environment)
    return tuple(f"pass-env: {name} is not set, so the tools will not see it." for name in unset)


class Handler(Protocol):
    """What the agent's `build(definition, args)` gives back. It may also have a text `criteria` for the prompts."""

    def feed(self, iteration: int, texts: tuple[str, ...], answer: JsonObject | None) -> None:
        """Take in one iteration: its number, all texts of the model, and the answer object if there is one."""
        ...

    def is_finished(self) -> bool:
        """Whether the work is done."""
        ...


@dataclass(frozen=True, kw_only=True)
class OwnVerdict:
    """Implements the port `CustomVerdict` around a handler; what the handler raises ends the run with its words."""

    path: str
    handler: Handler

    @property
    def criteria(self) -> str:
        """The handler's own sentence, if it has one."""
        text = getattr(self.handler, "criteria", "")
        return text if isinstance(text, str) else ""

    def is_finished(self, iteration: int, texts: tuple[str, ...], answer: JsonObject | None) -> bool:
        """Feed the handler with one iteration, and ask it."""
        with _foreign_code(self.path, f"in iteration {iteration}"):
            self.handler.feed(iteration, texts, answer)
            return bool(self.handler.is_finished())


def open_verdict(agent: AgentDefinition, args: JsonObject) -> OwnVerdict | None:
    """The agent's own verdict; None when its verdict type is another one."""
    if agent.verdict.type is not VerdictType.META_CUSTOM:
        return None
    path, source = str(agent.verdict.config.get("handlerPath")), agent.verdict.handler
    with _foreign_code(path, "while it was loaded"):
        if source is None:
            module = importlib.import_module(path)
        else:
            # The text that was read at load.
            module = ModuleType("stepflow_own_verdict")
            exec(compile(source.text, source.file, "exec"), module.__dict__)  # noqa: S102 - the author's code, asked for by name
        build = getattr(module, "build", None)
        handler = build(agent, dict(args)) if callable(build) else None
    missing = (f"`{name}`" for name in ("feed", "is_finished") if not callable(getattr(handler, name, None)))
    if lacking := " and ".join(missing):
        raise DefinitionError(
            f'The verdict\'s handler "{path}" gives no `build(definition, args)` whose result has {lacking}.',
            hint="Define `build`; it returns an object with feed(iteration, texts, answer) and is_finished().",
        )
    return OwnVerdict(path=path, handler=cast("Handler", handler))


@contextmanager
def _foreign_code(path: str, when: str) -> Iterator[None]:
    """Code of the agent's author may raise anything; the run then ends with what it said, not as a bug of ours."""
    try:
        yield
    except Exception as exc:
        raise DefinitionError(
            f'The verdict\'s handler "{path}" failed {when}: {type(exc).__name__}: {exc}.',
            hint="Fix the handler, or use another verdict type.",
        ) from exc


def open_anthropic(request: RunRequest) -> AnthropicModel:
    """The model of the inputs, on the way that leads there; close it at the end. Raises `InputError` where nothing
    logs in there."""
    access = model_access(request)
    if access.provider is Provider.ANTHROPIC and access.api_key is None and not access.identity:
        raise InputError(
            "There is no API key: the input anthropic-api-key is empty.",
            hint="Pass `anthropic-api-key: ${{ secrets.ANTHROPIC_API_KEY }}` (on the command line: set "
            "ANTHROPIC_API_KEY), log in without a key by the workload identity inputs, or run without a model with "
            "`provider: scripted`.",
        )
    # A person at a terminal has mistyped the address, or forgotten to start the server.
    at_terminal = request.runner_temp is None
    return AnthropicModel(
        access=access, connection_to=request.proxy_config.connection_to, wait_when_refused=not at_terminal
    )


def model_access(request: RunRequest) -> ModelAccess:
    """Where the model is and what logs in there, as far as it is given."""
    inputs = request.inputs
    key, identity = inputs.anthropic_api_key, inputs.anthropic_workload_identity
    return ModelAccess(
        provider=inputs.provider,
        api_key=key.get_secret_value() if key else None,
        base_url=inputs.anthropic_base_url,
        identity=WorkloadIdentity(**identity.model_dump()) if identity else None,
        login=request.login,
    )


def describe_connections(request: RunRequest, agent: AgentDefinition | None = None) -> Iterator[str]:
    """What the log shows of the ways that this run's calls will go."""
    inputs = request.inputs
    urls = [address_of(model_access(request))] if inputs.provider is not Provider.SCRIPTED else []
    if inputs.boundary is BoundaryMode.GITHUB or inputs.read_token is not None:
        urls += [inputs.github_api_url, inputs.github_server_url]
    urls += [server.url for server in agent.mcp_servers if server.url] if agent else []
    yield from request.proxy_config.describe(urls)
