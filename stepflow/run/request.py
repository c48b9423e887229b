"""What one run is asked for: its trigger, its inputs and its folders (action.md)."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from stepflow.boundary.github_failures import RetryPolicy
from stepflow.definition.folder import AGENTS
from stepflow.domain.secrets import Redactor, login_files
from stepflow.run.proxies import ProxyConfig, proxy_passwords, read_proxy_config
from stepflow.sandbox.environment import SYSTEM_PATH
from stepflow.sandbox.host_git import HEADS, head_commit, pushed_branch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from stepflow.domain.definition import AgentDefinition
    from stepflow.domain.run import FollowUp
    from stepflow.ports import Clock
    from stepflow.run.inputs import Inputs
    from stepflow.run.trigger import Trigger

#: Where the job's other steps write: folders, files of the runner in folders of its own, where it mounts them into a
#: container, and what is made of a process's own variables.
_WRITABLE_FOLDERS = ("GITHUB_WORKSPACE", "RUNNER_TEMP")
_WRITABLE_FILES = ("GITHUB_EVENT_PATH", "GITHUB_OUTPUT", "GITHUB_ENV", "GITHUB_STEP_SUMMARY")
_WRITABLE = ("/github", "/proc", "/sys", "/dev")


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """One run. `root` is the repository's root, `folder` the run folder on this machine and `host_folder` the same
    place as the workflow's next step sees it; `repository` is `owner/name` and `job_url` leads to the job,
    both empty when unknown. Of the `environment` the input `pass-env` may name variables; those `withheld` were taken
    out of it because they hold secrets. `credentials` are the job's secrets that are no input. `login` is what the
    services of models may read of the job's variables. `runner_temp` is None on a person's own machine. `program_path`
    is where the system's own programs are looked for, and `programs` are the folders in which tools find theirs, None
    for the fixed ones. `source` is the checkout that `root`, the run's workspace, is made from; None before there is
    one. A run with its `own_branch` begins there, without what is uncommitted; one that is `in_place` moves the branch
    that is checked out to its commits, and with `demand_clean` it begins only where no file is uncommitted. With
    `approvals_given` no step waits for approval. A `follow_up` begins at the head of a pull request of ours.
    `resumed_from` is the commit where a run began that goes on. What GitHub is asked before the run has a
    `retry_policy`."""

    run_id: str
    inputs: Inputs
    trigger: Trigger
    root: Path
    folder: Path
    host_folder: str = ""
    repository: str = ""
    job_url: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    withheld: frozenset[str] = frozenset()
    credentials: tuple[str, ...] = field(default=(), repr=False)
    login: Mapping[str, str] = field(default_factory=dict, repr=False)
    runner_temp: Path | None = None
    program_path: tuple[str, ...] = SYSTEM_PATH
    programs: tuple[Path, ...] | None = None
    source: Path | None = None
    own_branch: bool = False
    in_place: bool = False
    demand_clean: bool = False
    approvals_given: bool = False
    follow_up: FollowUp | None = None
    resumed_from: str = ""
    retry_policy: RetryPolicy = field(default_factory=RetryPolicy)

    @property
    def definition_root(self) -> Path:
        """Where agents and scenarios are read: in the checkout itself, as they stand there."""
        return agents_folder(self.checkout, self.inputs)

    @property
    def base_commit(self) -> str:
        """The commit that the run's own build on; empty where there is none."""
        return self.resumed_from or head_commit(self.checkout)

    @cached_property
    def branch(self) -> str:
        """The branch that the run's commits build on: the one that is checked out and that the server has too, else the
        one that the workflow was started on; empty for a tag or where neither is known."""
        ref = self.environment.get("GITHUB_REF", "")
        started_on = ref.removeprefix(HEADS) if ref.startswith(HEADS) else ""
        return pushed_branch(self.checkout) or started_on

    def base_branch(self, agent: AgentDefinition) -> str:
        """The branch that the run's pull request goes to; empty where it is not known."""
        if self.follow_up:
            return self.follow_up.base
        return agent.github.pull_request.base or self.branch or self.trigger.default_branch

    @property
    def at_terminal(self) -> bool:
        """Whether the commits come into the user's own repository, and are not only pushed."""
        return self.own_branch or self.in_place

    @property
    def checkout(self) -> Path:
        """The user's checkout, which no tool ever touches."""
        return self.source or self.root

    @property
    def login_files(self) -> tuple[Path, ...]:
        """The files with credentials that steps before left in the checkout, relative to it."""
        return login_files_in(self.checkout, self.login)

    def secrets(self) -> tuple[str, ...]:
        """Every value that nothing of this run may hold."""
        return (*self.own_secrets(), *proxy_passwords(self.environment))

    def own_secrets(self) -> tuple[str, ...]:
        """The same but for passwords of proxies, which the workflow's author may lend to tools."""
        return (*self.inputs.secrets(), *self.credentials)

    @cached_property
    def proxy_config(self) -> ProxyConfig:
        """How this run's own calls leave the machine. Raises `InputError` for what cannot be used."""
        return proxy_config_of(self.inputs, self.environment, self.root)

    @cached_property
    def redactor(self) -> Redactor:
        """The one redactor of this run, for every sink."""
        return Redactor(self.secrets())


def with_retries(request: RunRequest, clock: Clock, note: Callable[[str], None]) -> RunRequest:
    """The request of a run that begins now, whose questions to GitHub are asked again until its deadline."""
    deadline = clock.now() + request.inputs.timeout_minutes * 60
    return replace(request, retry_policy=RetryPolicy.of(clock, deadline, note))


def locate_repository(folder: Path, within: Path, inputs: Inputs) -> tuple[Path, Inputs]:
    """The root of the repository that a working directory lies in, which does not lie above `within`, and the inputs
    with the working directory relative to it. A folder that lies in none stands for itself."""
    above = (folder, *folder.parents)
    root = next((each for each in above if each.is_relative_to(within) and os.path.lexists(each / ".git")), folder)
    return root, inputs.model_copy(update={"working_directory": str(folder.relative_to(root))})


def agents_folder(root: Path, inputs: Inputs) -> Path:
    """The folder whose agents count: the working directory, if it has some, else the root of the repository."""
    folder = root / inputs.working_directory
    return folder if (folder / AGENTS).is_dir() else root


def proxy_config_of(inputs: Inputs, environment: Mapping[str, str], root: Path) -> ProxyConfig:
    """How a job's own calls leave the machine. Raises `InputError` for what cannot be used."""
    folders = (environment.get(name) for name in _WRITABLE_FOLDERS)
    files = (environment.get(name) for name in _WRITABLE_FILES)
    written = (*(path for path in (*folders, *_WRITABLE) if path), *(str(Path(path).parent) for path in files if path))
    return read_proxy_config(environment, inputs.ca_certificates or "", writable=(root, *map(Path, written)))


def login_files_in(root: Path, login: Mapping[str, str]) -> tuple[Path, ...]:
    """Of the files that log in, those in the checkout, relative to it."""
    checkout = root.resolve()
    files = (Path(checkout, name).resolve() for name in login_files(login))
    return tuple(dict.fromkeys(path.relative_to(checkout) for path in files if path.is_relative_to(checkout)))
