"""The real parts that a run is made of, and the addresses at which it reaches the model and GitHub."""

from __future__ import annotations

import importlib
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Protocol, cast
from urllib.parse import urlsplit

from stepflow.boundary.commit_check import CommitRules
from stepflow.boundary.settings import BoundarySettings
from stepflow.domain.connection import address_problem, is_loopback
from stepflow.domain.definition import guidance_files
from stepflow.domain.event import RunStarted
from stepflow.domain.words import Commits, Provider, VerdictType
from stepflow.errors import DefinitionError, InputError
from stepflow.model.access import ModelAccess, WorkloadIdentity
from stepflow.model.anthropic_model import AnthropicModel
from stepflow.model.logins import address_of
from stepflow.model.scenario import RecordingModel
from stepflow.run.inputs import BoundaryMode
from stepflow.sandbox.egress.allowed_hosts import parse_allowed_hosts
from stepflow.sandbox.environment import variables_for
from stepflow.sandbox.options import ToolboxOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from stepflow.domain.conversation import ModelFault, ModelRequest, ModelTurn
    from stepflow.domain.definition import AgentDefinition, Step
    from stepflow.domain.json import JsonObject
    from stepflow.domain.run import RunFacts
    from stepflow.ports import Model
    from stepflow.run.clock import Cancellation
    from stepflow.run.inputs import Inputs
    from stepflow.run.request import RunRequest
    from stepflow.sandbox.box import Toolbox


class LoadedSchemas:
    """Gives each step the schema that was resolved at load: nothing on disk can change it any more."""

    def resolve(self, step: Step) -> JsonObject | None:
        """The step's own answer schema."""
        return step.schema


def run_started(agent: AgentDefinition, facts: RunFacts, isolation: Mapping[str, str]) -> RunStarted:
    """The first event of a run."""
    return RunStarted(
        run_id=facts.run_id,
        agent=agent.name,
        dialect=agent.dialect,
        definition_digest=agent.digest,
        verdict_type=agent.verdict.type,
        entry_step=agent.entry_for(facts.follow_up.kind if facts.follow_up else None),
        max_iterations=facts.limits.iterations,
        repository=facts.repository,
        issue=facts.issue.number if facts.issue else None,
        base_commit=facts.base_commit,
        isolation=dict(isolation),
        args=facts.args,
        subject=facts.issue,
        context_text=facts.context_text,
        nonce=facts.nonce,
        base_branch=facts.base_branch,
        root=facts.root,
        follow_up=facts.follow_up,
        guidance=guidance_files(agent.all_guidance),
    )


def commit_rules(request: RunRequest, agent: AgentDefinition) -> CommitRules:
    """What the commits of a run must keep to."""
    github = agent.github
    return CommitRules(
        protected_paths=github.protected_paths,
        allowed_secret_paths=github.allowed_secret_paths,
        most_files=github.pull_request.max_files,
        most_bytes=github.pull_request.max_bytes,
        by_api=request.inputs.commits is Commits.VERIFIED,
    )


def toolbox_options(request: RunRequest) -> ToolboxOptions:
    """What the inputs say about the sandbox."""
    inputs, environment = request.inputs, request.environment
    passed = {name: environment[name] for name in inputs.pass_env if name in environment}
    programs = request.programs
    passed = {**variables_for(programs or (), environment), **passed}
    return ToolboxOptions(
        isolation=inputs.isolation,
        network=inputs.network,
        allowed_hosts=parse_allowed_hosts(inputs.allowed_hosts),
        connection_to=request.proxy_config.connection_to,
        pass_env=passed,
        working_directory=inputs.working_directory,
        home_programs=bool(inputs.setup),
        # What lies in the workspace can be changed by tools, and must not stand in for another program.
        programs=programs and tuple(folder for folder in programs if not folder.is_relative_to(request.root)),
        private_root=request.root.parent if request.source else None,
    )


def boundary_settings(request: RunRequest) -> BoundarySettings:
    """What the inputs and the event say about writing."""
    inputs, trigger = request.inputs, request.trigger
    return BoundarySettings(
        repository=request.repository,
        actor=trigger.actor,
        actor_is_bot=trigger.actor_is_bot,
        server_url=inputs.github_server_url,
        trigger_labels=inputs.trigger_labels,
        started_by_label=trigger.label,
        min_permission=inputs.min_permission,
        allow_bots=inputs.allow_bots,
        on_failure=inputs.on_failure,
        issue_text_from_event=trigger.issue is not None,
    )


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


def check_addresses(inputs: Inputs) -> None:
    """Raises `InputError` where a token would travel unencrypted, or to a server that it is not for."""
    api, server = inputs.github_api_url, inputs.github_server_url
    for name, url in (("github-api-url", api), ("github-server-url", server)):
        if problem := address_problem(url, secret="the token"):  # noqa: S106 - what it is called
            shown = url.rpartition("@")[2]
            raise InputError(f"{name} ({shown!r}) cannot be used: {problem}.", hint="Give an address with https://.")
    api, server = _host(api), _host(server)
    # The API is at the server's own name or below it, as `api.github.com` is; a tunnel ends on this machine.
    if not (api in (server, f"api.{server}") or is_loopback(api) or is_loopback(server)):
        raise InputError(
            f"GitHub's API is at {api} and its server at {server}: these are two servers.",
            hint="Give both addresses, such as https://HOST/api/v3 and https://HOST, so that no token reaches a "
            "server that it is not for.",
        )


def describe_connections(request: RunRequest, agent: AgentDefinition | None = None) -> Iterator[str]:
    """What the log shows of the ways that this run's calls will go."""
    inputs = request.inputs
    urls = [address_of(model_access(request))] if inputs.provider is not Provider.SCRIPTED else []
    if inputs.boundary is BoundaryMode.GITHUB or inputs.read_token is not None:
        urls += [inputs.github_api_url, inputs.github_server_url]
    urls += [server.url for server in agent.mcp_servers if server.url] if agent else []
    yield from request.proxy_config.describe(urls)


def _host(url: str) -> str:
    return urlsplit(url).hostname or ""


@dataclass(frozen=True, kw_only=True)
class ServiceCache:
    """Implements the port `PromptCache`: the cache of the service that a run asks, while the sandbox works."""

    model: AnthropicModel
    toolbox: Toolbox
    cancellation: Cancellation

    def while_waiting(self, look: Callable[[], None]) -> AbstractContextManager[None]:
        """Look now and then while something runs in the sandbox."""
        return self.toolbox.while_waiting(look)

    def renew(self, request: ModelRequest, number: int) -> ModelTurn | ModelFault | None:
        """Renew once; raises `RunCancelled` when a signal comes."""
        with self.cancellation.waiting():
            return self.model.renew(request, number)


def open_cache(model: Model, toolbox: Toolbox, cancellation: Cancellation) -> ServiceCache | None:
    """The cache behind a model; None behind one that has none, such as a scripted one."""
    asked = model.model if isinstance(model, RecordingModel) else model
    if not isinstance(asked, AnthropicModel):
        return None
    return ServiceCache(model=asked, toolbox=toolbox, cancellation=cancellation)
