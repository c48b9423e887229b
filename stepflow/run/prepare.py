"""Prepare a run: find everything that can be wrong before a token is spent, and read what an agent is shown of the
repository around its issue: labels, similar issues, and issue forms."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from stepflow.boundary.github_types import SimilarIssue
from stepflow.definition.agent import check_arguments
from stepflow.definition.builtin import PREFIX, NewCheck
from stepflow.definition.folder import FileRefused, find_agents, read_below, text_of, walk_files
from stepflow.definition.loading import load_agent
from stepflow.definition.parsing import YamlFault, read_yaml
from stepflow.domain.agent.agent_settings import IssueContext
from stepflow.domain.agent.definition import AgentDefinition, Step
from stepflow.domain.agent.validation import PROOF
from stepflow.domain.effect import AllowedEffect
from stepflow.domain.json import JsonObject, JsonValue, value_at
from stepflow.domain.run import Issue, IssueImage, Limits
from stepflow.domain.text import Spent
from stepflow.domain.words import BaseChecks, Permission, Provider
from stepflow.engine.prompt.sanitize import SanitizedText, sanitize, sanitize_line, sanitize_plain
from stepflow.errors import BoundaryError, DefinitionError, InputError, Problem, Severity
from stepflow.model.anthropic_model import AnthropicModel
from stepflow.model.logins import ModelAccess, WorkloadIdentity, address_of
from stepflow.model.scenario import RecordingModel, Scenario, ScriptedModel
from stepflow.ports import Clock, Commands, Model, Schemas, Tools
from stepflow.run.caps import check_caps
from stepflow.run.clock import RehearsalClock, SystemClock
from stepflow.run.issue import (
    Subject,
    follow_repository,
    issue_number,
    issue_text,
    join_texts,
    new_mark,
    quote,
    read_again,
    read_images,
    read_subject,
    repository_reader,
)
from stepflow.run.pull_request.follow_up import demand_default_branch, open_reader, read_feedback
from stepflow.run.pull_request.review import read_pull_request
from stepflow.run.readiness import (
    check_agent_name,
    check_inputs,
    check_policy,
    check_readiness,
    check_request,
    requested_agent,
)
from stepflow.run.recorded import PreviousRun
from stepflow.run.request import RunRequest, circumstances_of, describe_network, narrow_network
from stepflow.run.resume import check_reply, find_previous_run, resumed_request
from stepflow.run.scenarios import load_scenario
from stepflow.run.start.inputs import BoundaryMode, Inputs
from stepflow.run.start.trigger import PullRequestEvent
from stepflow.run.taken_back import check_start

MOST_LABELS = 100
MOST_SIMILAR = 20
#: Characters of the text of a similar issue, of a label with its description, and of all issue forms.
LONGEST_EXCERPT = 300
LONGEST_LABEL = 150
LONGEST_FORMS = 4_000
FORMS = ".github/ISSUE_TEMPLATE"
KEY_IN_WORKFLOW = (
    "Pass `anthropic-api-key: ${{ secrets.ANTHROPIC_API_KEY }}`, log in with `model.workload-identity`, or run "
    "without a model with a `scenario`."
)
KEY_AT_TERMINAL = (
    "Set ANTHROPIC_API_KEY. Without a key, `stepflow rehearse` plays the agent's scenarios, and `--scenario FILE` "
    "runs one on an issue."
)
_LARGEST_FORM = 64 * 1024


def add_issue_context(
    request: RunRequest, agent: AgentDefinition, subject: Subject, context: SanitizedText
) -> tuple[SanitizedText, Subject]:
    """Add what the agent's definition asks for to the data for the model, and to the notes of the subject what cannot
    be read."""
    issue, token, wanted = subject.issue, request.inputs.read_token, agent.github.context
    parts, warnings = [context], list[str]()
    if issue is None or not wanted:
        return context, subject
    mark = new_mark()
    if IssueContext.ISSUE_FORMS in wanted:
        parts.append(_section("issue forms", mark, _forms(request, issue)))
    asked = [each for each in (IssueContext.LABELS, IssueContext.SIMILAR_ISSUES) if each in wanted]
    if asked and token is None and request.inputs.model.provider is not Provider.SCRIPTED:
        warnings.append(f"Without `read-token` the agent is not shown: {', '.join(asked)}.")
    elif asked and token:
        with closing(repository_reader(request, token.get_secret_value())) as reader:
            try:
                if IssueContext.LABELS in asked:
                    parts.append(_section("labels", mark, _labels(reader.labels(), agent)))
                if IssueContext.SIMILAR_ISSUES in asked:
                    found = reader.similar_issues(issue.title, most=MOST_SIMILAR + 1)
                    others = [each for each in found if each.number != issue.number][:MOST_SIMILAR]
                    parts.append(_section("similar issues", mark, map(_excerpt, others)))
            except (BoundaryError, InputError) as error:
                warnings.append(f"The agent is not shown all of {', '.join(asked)}: {error.message}")
    return join_texts(parts), replace(subject, notes=(*subject.notes, *warnings))


def _section(name: str, mark: str, lines: Iterable[SanitizedText]) -> SanitizedText:
    """Put the lines below a marked heading; empty without any line. What was hidden in them is not this issue's."""
    whole = SanitizedText(text="\n".join(line.text for line in lines))
    return quote(SanitizedText(text=f"{name} of the repository"), whole, mark) if whole.text else SanitizedText()


def _labels(labels: dict[str, str], agent: AgentDefinition) -> Iterator[SanitizedText]:
    """Yield the labels that the agent may add."""
    allowed = agent.github.allowed_labels
    names = (
        name
        for name in labels
        if allowed is None or any(fnmatchcase(name.casefold(), glob.casefold()) for glob in allowed)
    )
    for name, _ in zip(names, range(MOST_LABELS), strict=False):
        yield sanitize_line(f"{name}: {labels[name]}".rstrip(": ")[:LONGEST_LABEL], "label")


def _excerpt(issue: SimilarIssue) -> SanitizedText:
    title, where = sanitize_line(issue.title, "similar issue"), f"similar issue #{issue.number}"
    body = sanitize(issue.body, where, limit=LONGEST_EXCERPT)
    return SanitizedText(
        text=f"#{issue.number} ({issue.state}): {title.text}\n  {' '.join(body.text.split())}".rstrip()
    )


def _forms(request: RunRequest, issue: Issue) -> Iterator[SanitizedText]:
    """Yield the fields of the form that the issue was opened with, or of all forms if it has the headings of none."""
    forms = {name: [*_fields(form)] for name, form in _read_forms(request)}
    headings = {line.removeprefix("###").strip() for line in issue.body.splitlines() if line.startswith("###")}
    used = max(forms, key=lambda name: len(headings & {label for label, _ in forms[name]}), default="")
    if used and headings & {label for label, _ in forms[used]}:
        forms = {used: forms[used]}
    left = LONGEST_FORMS
    for name, fields in forms.items():
        required = [f"- {label}{' (required)' if is_required else ''}" for label, is_required in fields]
        text = "\n".join((f"{name} asks for:", *required))[:left]
        left -= len(text)
        if text:
            yield sanitize_plain(text, "issue form")


def _read_forms(request: RunRequest) -> Iterator[tuple[str, JsonObject]]:
    """Yield the issue forms of the checkout by their names. Files that are no forms are left out."""
    root = request.checkout
    for file in sorted(walk_files(root / FORMS)):
        if not file.endswith((".yml", ".yaml")) or file.startswith("config."):
            continue
        try:
            _, form = read_yaml(text_of(read_below(root, f"{FORMS}/{file}", limit=_LARGEST_FORM)))
        except (FileRefused, YamlFault):
            continue
        if isinstance(form, dict):
            yield str(form.get("name") or file), form


def _fields(form: JsonObject) -> Iterator[tuple[str, bool]]:
    """Yield the label of each field of a form, and whether it is required."""
    body = form.get("body")
    fields: list[JsonValue] = body if isinstance(body, list) else []
    for entry in fields:
        label = value_at(entry, "attributes.label") if isinstance(entry, dict) else None
        if isinstance(entry, dict) and isinstance(label, str):
            yield label, value_at(entry, "validations.required") is True


class LoadedSchemas:
    """Returns the schema that was resolved when the agent was loaded, so that later changes on disk have no effect."""

    def resolve(self, step: Step) -> JsonObject | None:
        """Return the step's own answer schema."""
        return step.schema


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A run that is ready to start."""

    request: RunRequest
    agent: AgentDefinition
    #: The checked run arguments.
    args: JsonObject
    issue: Issue | None
    #: Has not been asked anything yet.
    model: Model
    #: Their deadline counts from the preparation.
    limits: Limits
    recording: RecordingModel | None = None
    #: Released when the run is over.
    resources: ExitStack = field(default_factory=ExitStack)
    #: The text and images of the issue that the model is shown.
    context: SanitizedText = field(default_factory=SanitizedText)
    images: tuple[IssueImage, ...] = ()
    #: Warnings.
    notes: tuple[str, ...] = ()
    #: The cost of other runs on the issue, as far as it could be seen; None if nobody looked.
    spent: Spent | None = None
    #: The run that is in the run folder; it is resumed unless it has a `problem`.
    previous: PreviousRun | None = None
    #: A program that runs an agent itself may supply these three. By default, schemas come from the definition, and
    #: tools and commands from the sandbox.
    schemas: Schemas = field(default_factory=LoadedSchemas)
    tools: Tools | None = None
    commands: Commands | None = None
    #: More `{uv-…}` for the prompts, and the text for `{input_text}`.
    variables: JsonObject = field(default_factory=dict)
    input_text: str | None = None

    @property
    def resumed_run(self) -> PreviousRun | None:
        """The run that is resumed; None for a new run."""
        return self.previous if self.previous and not self.previous.problem else None


def prepare_run(request: RunRequest, *, now: float) -> Prepared:
    """Load the agent and check arguments, inputs, model and actor, without starting or writing anything."""
    check_policy(request)
    check_request(request)
    agent = load_requested(request)
    request = replace(
        narrow_network(request, agent), anyone_may_start=agent.anyone_may_start, kept=agent.keep_for_checks
    )
    scenario = scenario_of(request)
    request = require_base_checks(request, scenario)
    inputs = request.inputs
    issue = issue_number(request, scenario)
    args, problems = run_arguments(agent, {**(scenario.params if scenario else {}), **inputs.parameters}, issue)
    check_inputs(request, agent)
    # A new run folder has nothing to resume.
    may_resume = inputs.names_run or request.folder.exists()
    previous = find_previous_run(request, agent, args, issue) if may_resume else None
    resumed_run = previous if previous and not previous.problem else None
    approver = check_reply(request, agent, resumed_run) if resumed_run else Permission.NONE
    with ExitStack() as opened:
        model = opened.enter_context(_open_model(request, scenario, resumed_run))
        # A run on a pull request has done so before it read that.
        request = request if request.follow_up or request.reviewed else follow_repository(request)
        if inputs.limits.sum_runs or agent.anyone_may_start:
            check_caps(request, agent, now, is_resumed=resumed_run is not None)
        if resumed_run:
            # A resumed run keeps the text and images that the model saw at first.
            context, images = SanitizedText(text=resumed_run.started.context_text), resumed_run.images
            request, before = resumed_request(resumed_run.started, request), resumed_run.turns()
            subject = read_again(request, resumed_run.started.subject, approver)
        else:
            subject, before = read_subject(request, scenario), ()
            check_start(request, agent)
            request, context, subject = read_context(request, subject)
            context, images = read_images(request, subject.issue, context)
            context, subject = add_issue_context(request, agent, subject, context)
        warnings = check_readiness(request, agent)
        recording = None
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
            limits=inputs.run_limits(agent, now=now, spent=subject.spent or (Spent() if resumed_run else None)),
            spent=subject.spent,
            resources=opened.pop_all(),
            previous=previous,
        )


@contextmanager
def _open_model(request: RunRequest, scenario: Scenario | None, resumed_run: PreviousRun | None) -> Iterator[Model]:
    if scenario:
        yield ScriptedModel(scenario, position=resumed_run.position(scenario) if resumed_run else None)
        return
    with open_anthropic(request) as model:
        yield model


def read_context(request: RunRequest, subject: Subject) -> tuple[RunRequest, SanitizedText, Subject]:
    """Return the text about the issue or the pull request that the model is shown, the request with what was read for
    it, and the subject with notes about what could not be read."""
    event, kind = request.trigger.pull_request, "Pull request" if request.reviewed else "Issue"
    context = issue_text(subject.issue, subject.discussion, kind=kind, otherwise=request.inputs.issue_text or "")
    if subject.fetched:
        # Treat it like the issue of an event, so that later edits of it are noticed.
        request = replace(request, trigger=replace(request.trigger, issue=subject.issue, locked=subject.locked))
    if request.reviewed and event:
        reviewed, text = read_pull_request(request, request.reviewed, event)
        return replace(request, reviewed=reviewed), join_texts((context, text)), subject
    if request.follow_up and event:
        follow_up, text, subject = read_feedback(request, request.follow_up, event, subject)
        return replace(request, follow_up=follow_up), join_texts((context, text)), subject
    return request, context, subject


def load_requested(request: RunRequest) -> AgentDefinition:
    """Load the requested agent, as far as the policy allows it. Raises `DefinitionError` with all of its problems."""
    inputs, name = request.inputs, requested_agent(request)
    agent = load_agent(
        name,
        root=request.definition_root,
        allow_spec_violations=inputs.allow_spec_violations,
        checks=inputs.checks,
        proof=NewCheck(name=PROOF, command=inputs.prove.command, proof=inputs.prove.settings) if inputs.prove else None,
        circumstances=circumstances_of(request),
    )
    return inputs.policy.narrow_agent(agent, name, inputs.model.name, inputs.model.provider) if inputs.policy else agent


def reviews_pull_requests(request: RunRequest, event: PullRequestEvent) -> bool:
    """Return whether the event names an agent that reviews pull requests of others.

    Raises `InputError` if the checkout, which the agent is read from, is not of the default branch."""
    name = requested_agent(request)
    is_known = name.startswith(PREFIX) or name in find_agents(request.definition_root)
    # Of a name that no agent has, a follow-up says whose work the pull request is.
    if not name or (event.kind and not is_known):
        return False
    if not is_known:
        check_agent_name(request)
    with open_reader(request) as reader:
        demand_default_branch(request, reader)
    return AllowedEffect.REVIEW in load_requested(request).github.allowed_effects


def run_arguments(
    agent: AgentDefinition, values: Mapping[str, JsonValue | str], issue: int | None
) -> tuple[JsonObject, tuple[Problem, ...]]:
    """Check the run arguments and return them with warnings. Raises `DefinitionError` if they do not fit the agent."""
    args, problems = check_arguments(agent, values, issue=issue)
    if any(problem.severity is Severity.ERROR for problem in problems):
        raise DefinitionError(f'The run arguments do not fit agent "{agent.name}".', problems=problems)
    return args, problems


def clock_for(inputs: Inputs) -> Clock:
    """Return the clock that fits the model: a scripted one never needs waiting."""
    return RehearsalClock() if inputs.model.provider is Provider.SCRIPTED else SystemClock()


def scenario_of(request: RunRequest) -> Scenario | None:
    """Load the scenario for a scripted model; None for a real one."""
    if request.inputs.model.provider is not Provider.SCRIPTED:
        return None
    if request.inputs.scenario is None:
        raise InputError(
            "The provider `scripted` needs a scenario.",
            hint="Set `scenario` to a YAML file of the repository, such as .agent/<agent>/scenarios/<name>.yaml.",
        )

    return load_scenario(request.inputs.scenario, root=request.definition_root)


def require_base_checks(request: RunRequest, scenario: Scenario | None) -> RunRequest:
    """Return the request with the checks that the scenario requires before it is played, unless they are skipped."""
    if scenario is None or scenario.base_checks is None or request.inputs.base_checks is BaseChecks.SKIP:
        return request
    required = {"base_checks": BaseChecks(scenario.base_checks)}
    return replace(request, inputs=request.inputs.model_copy(update=required))


def unset_variables(request: RunRequest) -> tuple[str, ...]:
    """Return a warning for each variable in `pass-env` that is not set."""
    unset = (name for name in request.inputs.pass_env if name not in request.environment)
    return tuple(f"pass-env: {name} is not set, so the tools will not see it." for name in unset)


def open_anthropic(request: RunRequest) -> AnthropicModel:
    """Open the requested model; the caller closes it. Raises `InputError` without a key or another way to log in."""
    access, at_terminal = model_access(request), request.runner_temp is None
    if access.provider is Provider.ANTHROPIC and access.api_key is None and not access.identity:
        raise InputError("There is no API key.", hint=KEY_AT_TERMINAL if at_terminal else KEY_IN_WORKFLOW)
    # At a terminal a refused connection means a mistyped address or a server that is not running: waiting is no help.
    return AnthropicModel(
        access=access, connection_to=request.proxy_config.connection_to, wait_when_refused=not at_terminal
    )


def model_access(request: RunRequest) -> ModelAccess:
    """Return the address of the model and the credentials for it, as far as the inputs have them."""
    inputs = request.inputs
    key, identity = inputs.anthropic_api_key, inputs.model.workload_identity
    return ModelAccess(
        provider=inputs.model.provider,
        api_key=key.get_secret_value() if key else None,
        base_url=inputs.model.base_url,
        identity=WorkloadIdentity(**identity.model_dump()) if identity else None,
        login=request.login,
    )


def describe_connections(request: RunRequest, agent: AgentDefinition | None = None) -> Iterator[str]:
    """Yield lines for the log that say how this run's calls reach the network."""
    inputs = request.inputs
    urls = [address_of(model_access(request))] if inputs.model.provider is not Provider.SCRIPTED else []
    if inputs.boundary is BoundaryMode.GITHUB or inputs.read_token is not None:
        urls += [inputs.github_api_url, inputs.github_server_url]
    urls += [inputs.telemetry.endpoint] if inputs.telemetry.endpoint else []
    urls += [server.url for server in agent.mcp_servers if server.url] if agent else []
    if agent and (network := describe_network(request, agent)):
        yield network
    yield from request.proxy_config.describe(urls)
