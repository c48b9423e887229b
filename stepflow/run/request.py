"""The request for one run: its trigger, its inputs and its folders."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from stepflow.boundary.commit_check import CommitRules
from stepflow.boundary.git import Remote
from stepflow.boundary.github_failures import RetryPolicy
from stepflow.boundary.settings import BoundarySettings
from stepflow.definition.folder import AGENTS
from stepflow.definition.rule_of_two import Circumstances
from stepflow.domain.agent.definition import AgentDefinition
from stepflow.domain.run import FollowUp, ReviewedPull
from stepflow.domain.secrets import Redactor, login_files
from stepflow.domain.words import Commits, Network
from stepflow.errors import InputError
from stepflow.ports import Clock
from stepflow.run.proxy_config import ProxyConfig, proxy_passwords, read_proxy_config
from stepflow.run.start.input_values import NetworkAccess
from stepflow.run.start.inputs import BoundaryMode, Inputs
from stepflow.run.start.trigger import Trigger
from stepflow.sandbox.child.git import BRANCHES
from stepflow.sandbox.copying import CopiedFiles, copied_files
from stepflow.sandbox.egress.allowed_hosts import parse_allowed_hosts
from stepflow.sandbox.environment import SYSTEM_PATH, variables_for
from stepflow.sandbox.host_git import head_commit, pushed_branch
from stepflow.sandbox.isolation import ToolboxOptions

#: Variables and folders that say where the job's other steps can write. `/github` is where the runner mounts its files
#: into a container, and `/proc` shows a process's own variables as files.
_WRITABLE_FOLDERS = ("GITHUB_WORKSPACE", "RUNNER_TEMP")
_WRITABLE_FILES = ("GITHUB_EVENT_PATH", "GITHUB_OUTPUT", "GITHUB_ENV", "GITHUB_STEP_SUMMARY")
_WRITABLE = ("/github", "/proc", "/sys", "/dev")


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """Everything that is known about a run before it is prepared."""

    run_id: str
    inputs: Inputs
    trigger: Trigger
    #: The root of the repository; once a workspace exists, the root of the workspace.
    root: Path
    #: The run folder on this machine, and the same folder as the workflow's next step sees it.
    folder: Path
    host_folder: str = ""
    #: `owner/name`; empty when unknown.
    repository: str = ""
    repository_id: int | None = None
    #: Address of the job; empty when unknown.
    job_url: str = ""
    #: The variables that the input `pass-env` may name.
    environment: Mapping[str, str] = field(default_factory=dict)
    #: Names of variables that were removed from `environment` because they hold secrets.
    withheld: frozenset[str] = frozenset()
    #: The job's secrets that are not inputs.
    credentials: tuple[str, ...] = field(default=(), repr=False)
    #: The job's variables that a model provider's login may read.
    login: Mapping[str, str] = field(default_factory=dict, repr=False)
    #: None on a person's own machine.
    runner_temp: Path | None = None
    #: Where the system's own programs are found.
    program_path: tuple[str, ...] = SYSTEM_PATH
    #: The folders in which tools find their programs; None for the fixed ones.
    programs: tuple[Path, ...] | None = None
    #: Whether of what git does not track only what was installed is copied.
    only_installed: bool = False
    #: Patterns of ignored files that are copied however large they are.
    kept: tuple[str, ...] = ()
    #: The request for the checkout that the workspace `root` was made from; None before there is a workspace.
    original: RunRequest | None = field(default=None, repr=False)
    #: The copy of the checkout with the commit that a rehearsal starts from.
    committed_copy: Path | None = None
    #: Whether the run works on its own branch, without uncommitted changes.
    own_branch: bool = False
    #: Whether the branch that is checked out moves to the run's commits.
    in_place: bool = False
    #: Whether uncommitted files keep the run from starting.
    demand_clean: bool = False
    #: Whether steps that need approval run without waiting for it.
    approvals_given: bool = False
    #: The pull request by stepflow that this run continues, from its head commit.
    follow_up: FollowUp | None = None
    #: The pull request that this run reviews, from its merge commit.
    reviewed: ReviewedPull | None = None
    #: Whether the agent's definition lets people without the permission start a run.
    anyone_may_start: bool = False
    #: The commit at which the resumed run began; empty for a new run.
    resumed_from: str = ""
    #: For requests to GitHub before the run begins.
    retry_policy: RetryPolicy = field(default_factory=RetryPolicy)

    @property
    def definition_root(self) -> Path:
        """The folder from which agents and scenarios are read: always in the checkout, never in the workspace."""
        return agents_folder(self.checkout, self.inputs)

    @property
    def base_commit(self) -> str:
        """The commit that the run's own commits build on; empty without one."""
        return self.resumed_from or head_commit(self.checkout)

    @cached_property
    def branch(self) -> str:
        """The branch that the run's commits build on: the checked-out branch if the server has it too, otherwise the
        branch that the workflow was started on. Empty for a tag, or when neither is known."""
        ref = self.environment.get("GITHUB_REF", "")
        started_on = ref.removeprefix(BRANCHES) if ref.startswith(BRANCHES) else ""
        return pushed_branch(self.checkout) or started_on

    def base_branch(self, agent: AgentDefinition) -> str:
        """Return the base branch of the run's pull request; empty when unknown."""
        if pull := self.follow_up or self.reviewed:
            return pull.base
        return agent.github.pull_request.base or self.branch or self.trigger.default_branch

    @property
    def reads_with_writing_token(self) -> bool:
        """Whether `read-token` is the token that the boundary writes with, so that what it may do can be asked."""
        token = self.inputs.github_token
        return self.inputs.boundary is BoundaryMode.GITHUB and token is not None and token == self.inputs.read_token

    @property
    def at_terminal(self) -> bool:
        """Whether the commits go into the user's own repository instead of only being pushed."""
        return self.own_branch or self.in_place

    @property
    def source(self) -> Path | None:
        """The checkout that the workspace was made from; None before there is a workspace."""
        return self.original.root if self.original else None

    @property
    def checkout(self) -> Path:
        """The user's checkout, which no tool ever touches."""
        return self.source or self.root

    @cached_property
    def of_checkout(self) -> RunRequest:
        """The same request before there was a workspace."""
        return replace(self.original, kept=self.kept) if self.original else self

    @property
    def base_repository(self) -> Path:
        """The repository with the commit that the run starts from, which no tool has touched. That of a pull
        request is fetched from GitHub."""
        return (
            self.root.with_name("history") if self.follow_up or self.reviewed else self.committed_copy or self.checkout
        )

    @cached_property
    def copied_files(self) -> CopiedFiles:
        """What a workspace has of the checkout. Raises `InputError` for a name that cannot be left out."""
        if self.original:
            return self.of_checkout.copied_files
        return copied_files(self.root, only_installed=self.only_installed, kept=self.kept)

    @property
    def login_files(self) -> tuple[Path, ...]:
        """The credential files that earlier steps left in the checkout, relative to it."""
        return login_files_in(self.checkout, self.login)

    def secrets(self) -> tuple[str, ...]:
        """Return every secret value, none of which may appear in anything that the run writes."""
        return (*self.own_secrets(), *proxy_passwords(self.environment))

    def own_secrets(self) -> tuple[str, ...]:
        """Return all secrets except proxy passwords, which the workflow's author may pass to tools."""
        return (*self.inputs.secrets(), *self.credentials)

    @cached_property
    def proxy_config(self) -> ProxyConfig:
        """The proxy and certificates for this run's own calls. Raises `InputError` if they cannot be used."""
        return proxy_config_of(self.inputs, self.environment, self.root)

    @cached_property
    def redactor(self) -> Redactor:
        """The redactor that every output of this run goes through."""
        return Redactor(self.secrets())


def with_retries(request: RunRequest, clock: Clock, note: Callable[[str], None]) -> RunRequest:
    """Return the request with a policy that retries calls to GitHub until the deadline of a run that starts now."""
    deadline = clock.now() + request.inputs.limits.minutes * 60
    return replace(request, retry_policy=RetryPolicy.of(clock, deadline, note))


def chosen_folder(inputs: Inputs, default: Path) -> Path:
    """Return the run folder: the one that `resume` names, otherwise `run-folder`, otherwise the default."""
    run_folder = Path(inputs.run_folder).resolve() if inputs.run_folder else None
    if not inputs.names_run:
        return run_folder or default
    resumed = Path(inputs.resume).resolve()
    if run_folder not in (None, resumed):
        raise InputError(
            f"The input resume names the run folder {resumed}, but run-folder names another one: {run_folder}.",
            hint="A run is resumed in its own folder: leave out run-folder, or set `resume: auto`.",
        )
    return resumed


def locate_repository(folder: Path, within: Path, inputs: Inputs) -> tuple[Path, Inputs]:
    """Return the root of the repository around a working directory, and the inputs with the working directory relative
    to that root. The search stops at `within`; a folder outside any repository is its own root."""
    above = (folder, *folder.parents)
    root = next((each for each in above if each.is_relative_to(within) and os.path.lexists(each / ".git")), folder)
    return root, inputs.model_copy(update={"working_directory": str(folder.relative_to(root))})


def agents_folder(root: Path, inputs: Inputs) -> Path:
    """Return the folder whose agents are used: the working directory if it has any, otherwise the repository's root."""
    folder = root / inputs.working_directory
    return folder if (folder / AGENTS).is_dir() else root


def proxy_config_of(inputs: Inputs, environment: Mapping[str, str], root: Path) -> ProxyConfig:
    """Return the proxy and certificates for a job's own calls. Raises `InputError` if they cannot be used."""
    folders = (environment.get(name) for name in _WRITABLE_FOLDERS)
    files = (environment.get(name) for name in _WRITABLE_FILES)
    written = (*(path for path in (*folders, *_WRITABLE) if path), *(str(Path(path).parent) for path in files if path))
    return read_proxy_config(environment, inputs.ca_certificates or "", writable=(root, *map(Path, written)))


def login_files_in(root: Path, login: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the login files that are in the checkout, relative to it."""
    checkout = root.resolve()
    files = (Path(checkout, name).resolve() for name in login_files(login))
    return tuple(dict.fromkeys(path.relative_to(checkout) for path in files if path.is_relative_to(checkout)))


def commit_rules(request: RunRequest, agent: AgentDefinition) -> CommitRules:
    """Return the rules that the run's commits must follow."""
    github = agent.github
    return CommitRules(
        protected_paths=github.protected_paths,
        allowed_secret_paths=github.allowed_secret_paths,
        most_files=github.pull_request.max_files,
        most_bytes=github.pull_request.max_bytes,
        by_api=request.inputs.commits is Commits.VERIFIED,
    )


def git_remote(request: RunRequest, token: str) -> Remote:
    """Return the repository on the server, as git reaches it with this token."""
    server = request.inputs.github_server_url.rstrip("/")
    return Remote(
        url=f"{server}/{request.repository}.git",
        token=token,
        redactor=request.redactor,
        connection=request.proxy_config.connection_to(server),
    )


def circumstances_of(request: RunRequest) -> Circumstances:
    """Return what the rule of two needs to know about the run."""
    from_fork = request.reviewed is not None and request.reviewed.is_from_fork
    return Circumstances(private=request.trigger.private, from_fork=from_fork, network=request.inputs.network.reach)


def narrow_network(request: RunRequest, agent: AgentDefinition) -> RunRequest:
    """Return the request with the narrower of the input `network` and the agent's own. Raises `InputError` if the agent
    limits its tools to hosts, and the inputs have none."""
    inputs = request.inputs
    reach = inputs.network.reach.narrowed_to(agent.network)
    if reach is Network.ALLOW and not inputs.network.hosts:
        raise InputError(
            f'"network" in agent.json of {agent.name} is `allow`, but the input `network` lists no hosts.',
            hint="List the hosts in the input `network`, such as `network: pypi`, or set it to `none`.",
        )
    hosts = inputs.network.hosts if reach is Network.ALLOW else ()
    narrowed = inputs.model_copy(update={"network": NetworkAccess(reach=reach, hosts=hosts)})
    # Trials on copies of the checkout begin with the request for it.
    return replace(request, inputs=narrowed, original=request.original and narrow_network(request.original, agent))


def describe_network(request: RunRequest, agent: AgentDefinition) -> str:
    """Say what the agent's own `network` comes to; empty if it has none."""
    if agent.network is None:
        return ""
    network = request.inputs.network.reach.narrowed_to(agent.network)
    decides = "agent.json" if network is agent.network else f"the input; agent.json would allow `{agent.network}`"
    return f"`network` is `{network}` for the tools, set by {decides}"


def toolbox_options(request: RunRequest) -> ToolboxOptions:
    """Return the sandbox's options, taken from the inputs."""
    inputs, environment = request.inputs, request.environment
    passed = {name: environment[name] for name in inputs.pass_env if name in environment}
    programs = request.programs
    passed = {**variables_for(programs or (), environment), **passed}
    return ToolboxOptions(
        isolation=inputs.isolation,
        network=inputs.network.reach,
        allowed_hosts=parse_allowed_hosts(inputs.network.hosts) if inputs.network.hosts else (),
        connection_to=request.proxy_config.connection_to,
        pass_env=passed,
        working_directory=inputs.working_directory,
        home_programs=bool(inputs.setup),
        # Tools can change what is in the workspace, so nothing there may replace another program.
        programs=programs and tuple(folder for folder in programs if not folder.is_relative_to(request.root)),
        interpreters=request.copied_files.installed.interpreters if request.source else (),
        private_root=request.root.parent if request.source else None,
    )


def boundary_settings(request: RunRequest) -> BoundarySettings:
    """Return the settings of the boundary, taken from the inputs and the event."""
    inputs, trigger = request.inputs, request.trigger
    return BoundarySettings(
        repository=request.repository,
        repository_id=request.repository_id,
        actor=trigger.actor,
        actor_is_bot=trigger.actor_is_bot,
        server_url=inputs.github_server_url,
        trigger_labels=inputs.start.labels,
        started_by_label=trigger.label,
        min_permission=inputs.start.min_permission,
        allow_bots=inputs.start.bots,
        anyone_may_start=request.anyone_may_start,
        on_failure=inputs.on_failure,
        ci_workflow=inputs.ci_workflow or "",
        issue_text_from_event=trigger.issue is not None,
    )
