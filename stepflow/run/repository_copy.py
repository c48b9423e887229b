"""Copies of the repository, so that its files and branches stay as they are: for a run at a terminal, on a branch of
its own, and for what only tries something (cli.md "run", "rehearse")."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from stepflow.errors import InputError
from stepflow.journal.writer import MemoryJournal
from stepflow.run.clock import Deadline, SystemClock
from stepflow.run.parts import toolbox_options
from stepflow.run.sandbox import install, set_up
from stepflow.run.subject.issue import present_url
from stepflow.sandbox.box import Toolbox
from stepflow.sandbox.copies import commit_everything, copy_checkout, copy_folder, start_branch
from stepflow.sandbox.credentials.survey import entry_of
from stepflow.sandbox.local_branch import clone_history, fetch_branch, local_branch
from stepflow.sandbox.programs import copy_environments, programs_of_copy

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from stepflow.run.clock import Cancellation
    from stepflow.run.prepare import Prepared
    from stepflow.run.request import RunRequest
    from stepflow.sandbox.options import ToolboxOptions

GIT, AGENTS = ".git", ".agent"


@dataclass(frozen=True, kw_only=True)
class RepositoryCopy:
    """A copy of the user's `repository` in a folder of its own. `request` is the run in it, with its `programs`."""

    request: RunRequest
    repository: Path
    programs: tuple[Path, ...]

    def fill(self, prepared: Prepared, cancellation: Cancellation) -> tuple[str, ...]:
        """Copy the repository and begin the run's branch. Gives the files whose uncommitted changes stay behind.
        Signals stay held at the end."""
        request, resumed_run, copy = prepared.request, prepared.resumed_run, prepared.request.root
        follow_up = request.follow_up
        begins = follow_up.head if follow_up else "HEAD"
        commit = resumed_run.started.base_commit if resumed_run else begins
        with cancellation.obeyed():
            copy_checkout(self.repository, copy, history=follow_up is None)
            copy_environments(self.programs, self.repository, copy)
            if follow_up:
                fetch_history(request, commit, follow_up.base, copy / GIT)
            elif not (copy / GIT).exists():
                clone_history(self.repository, copy / GIT)
        with (
            request.without_credentials(),
            Toolbox.start(copy, options=options_at_root(request)) as toolbox,
            cancellation.obeyed(),
        ):
            left_behind = start_branch(toolbox, branch_of(prepared), commit)
        # The agents are read where they are.
        return tuple(name for name in left_behind if not name.startswith(f"{AGENTS}/"))

    def fetch(self, prepared: Prepared) -> str:
        """Bring the commits of the run into the user's repository, as a new branch; its name, empty without commits."""
        bundle = bundle_of(prepared.request)
        return fetch_branch(self.repository, bundle, branch_of(prepared)) if bundle else ""


def bundle_of(request: RunRequest) -> Path | None:
    """The file with the commits of the run; None without any."""
    bundle = request.folder / "work.bundle"
    return bundle if bundle.exists() else None


def branch_of(prepared: Prepared) -> str:
    """The branch of the run's commits."""
    if prepared.request.follow_up:
        return prepared.request.follow_up.branch
    number = prepared.issue.number if prepared.issue else None
    return local_branch(prepared.agent.name, number, prepared.request.run_id)


#: So many commits of a pull request and its base are there for tools to look at.
DEPTH = 100


def fetch_history(request: RunRequest, commit: str, base: str, target: Path) -> None:
    """The newest history of the repository on GitHub as a `.git` folder of its own, with HEAD at the commit and the
    branch `base` as `origin/<base>`. The credential that reads it is not kept there."""
    from stepflow.boundary.git import Git, Remote, follow_move  # noqa: PLC0415 - loads requests, as PyGithub does

    server, token = request.inputs.github_server_url.rstrip("/"), request.inputs.read_token
    url = f"{server}/{request.repository}.git"
    git = Git(
        target,
        Remote(url=url, token=token.get_secret_value() if token else ""),
        object_format="sha256" if len(commit) == 64 else "sha1",
        redactor=request.redactor,
        connection=request.proxy_config.connection_to(server),
    )
    branch = f"+refs/heads/{base}:refs/remotes/origin/{base}"

    def fetch(url: str) -> bytes:
        fetched = ("fetch", "--quiet", "--no-tags", f"--depth={DEPTH}", url, commit, branch)
        return request.retry_policy.repeat(lambda: git.run_remote(*fetched))

    follow_move(url, lambda: present_url(request, token.get_secret_value() if token else None), fetch)
    git.run("update-ref", "--no-deref", "HEAD", commit)
    git.run("config", "core.bare", "false")
    # The folder is for tools, who may be somebody else.
    target.chmod(0o755)


def options_at_root(request: RunRequest) -> ToolboxOptions:
    """What the inputs say about the sandbox, for commands of our own, which start in the root of the repository."""
    return replace(toolbox_options(request), working_directory=".")


def demand_repository(root: Path) -> None:
    """Raises `InputError` for a folder that is not the top of a git repository."""
    if os.path.lexists(root / GIT):
        return
    hint = "Name the repository with --repo. In a new folder: run `git init` and commit what is there."
    if (top := entry_of(root).parent) != root:
        hint = f"Give `--repo {top} --working-directory {root.relative_to(top)}` for a run in a folder of a repository."
    raise InputError(f"{root} is not the top folder of a git repository, and a run works on a branch.", hint=hint)


@contextmanager
def repository_copy(request: RunRequest) -> Iterator[RepositoryCopy]:
    """A place for the copy, with nothing in it; it is removed with all that is there."""
    root = request.root.resolve()
    demand_repository(root)
    programs = request.programs
    with copy_folder() as folder:
        copy = folder / "checkout"
        copied = replace(request, root=copy, source=root, programs=programs and programs_of_copy(programs, root, copy))
        yield RepositoryCopy(request=copied, repository=root, programs=programs or ())


def request_in_copy(request: RunRequest, copy: Path) -> RunRequest:
    """The request for a `copy` of its checkout, with the programs of the checkout's environments copied as well."""
    if not request.programs:
        return replace(request, root=copy)
    copy_environments(request.programs, request.root, copy)
    return replace(request, root=copy, programs=programs_of_copy(request.programs, request.root, copy))


@contextmanager
def committed_copy(request: RunRequest, cancellation: Cancellation) -> Iterator[Path]:
    """The checkout as it is now, all of it committed, as a copy without credentials. Signals stay held at the end."""
    with copy_folder() as folder:
        copy = folder / "checkout"
        copy_checkout(request.root, copy)
        cancellation.hold()
        # The runner's own files of credentials are away as well, as long as any tool in the copy lives.
        with request.without_credentials(copy):
            copied = replace(request, root=copy)
            with Toolbox.start(copy, options=options_at_root(copied)) as toolbox, cancellation.obeyed():
                commit_everything(toolbox)
            yield copy


@contextmanager
def toolbox_in_copy(request: RunRequest, cancellation: Cancellation) -> Iterator[Toolbox]:
    """A toolbox in a copy of the checkout as it is now, with the packages and the set-up that a run would have. Signals
    stay held at the end."""
    clock = SystemClock()
    with committed_copy(request, cancellation) as copy:
        copied = request_in_copy(request, copy)
        deadline = Deadline(clock=clock, at=clock.now() + request.inputs.timeout_minutes * 60)
        journal = MemoryJournal(clock)
        with cancellation.obeyed():
            install(copied, journal, deadline)
        with (
            Toolbox.start(copy, options=toolbox_options(copied)) as toolbox,
            toolbox.interruptible(cancellation.waiting),
        ):
            set_up(toolbox, request, journal)
            yield toolbox
