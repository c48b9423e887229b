"""Where a run works: a workspace made from the user's checkout, which stays as it is."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from stepflow.boundary.git import Git, Remote, follow_move
from stepflow.definition.folder import AGENTS
from stepflow.errors import InputError
from stepflow.journal.file import MemoryJournal
from stepflow.run.clock import Deadline, SystemClock
from stepflow.run.parts import toolbox_options
from stepflow.run.sandbox import install, set_up
from stepflow.run.subject.issue import present_url
from stepflow.sandbox.box import Toolbox
from stepflow.sandbox.environment import copy_environments, programs_of_copy
from stepflow.sandbox.host_git import ask_git, bring_branch, checked_out, local_branch, move_branch
from stepflow.sandbox.workspace import GIT, make_workspace, temporary_folder, write_repository
from stepflow.sandbox.workspace_git import commit_everything, start_branch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from stepflow.domain.report import RunReport
    from stepflow.run.clock import Cancellation
    from stepflow.run.prepare import Prepared
    from stepflow.run.request import RunRequest
    from stepflow.sandbox.host_git import CheckedOut
    from stepflow.sandbox.options import ToolboxOptions


@dataclass(frozen=True, kw_only=True)
class Workspace:
    """A place for the run's files, empty until `fill`. `request` is the run in it, with its `programs`;
    `before` is what the user's repository had checked out, for a run `in_place`."""

    request: RunRequest
    programs: tuple[Path, ...]
    before: CheckedOut | None

    def fill(
        self, prepared: Prepared, cancellation: Cancellation, note: Callable[[str], None] = lambda _: None
    ) -> tuple[str, ...]:
        """Copy the checkout, and begin the run's branch where it has one. Gives the files whose uncommitted changes
        stay behind. What takes long is said by `note`. Signals stay held at the end."""
        request, follow_up = prepared.request, prepared.request.follow_up
        cancellation.hold()
        with cancellation.obeyed():
            make_workspace(
                request.checkout,
                request.root,
                without=request.login_files,
                with_history=follow_up is None,
                note=note,
            )
            copy_environments(self.programs, request.checkout, request.root)
            if follow_up:
                history = request.root.with_name("history")
                fetch_history(request, first_commit(prepared), follow_up.base, history)
                write_repository(history, request.root / GIT)
        if not (follow_up or request.own_branch):
            return ()
        with Toolbox.start(request.root, options=options_at_root(request)) as toolbox, cancellation.obeyed():
            left_behind = start_branch(toolbox, branch_of(prepared), first_commit(prepared))
        # The agents are read where they are.
        return tuple(name for name in left_behind if not name.startswith(f"{AGENTS}/"))


def bring_back(request: RunRequest, report: RunReport, before: CheckedOut | None) -> tuple[str, bool]:
    """Bring the commits of a complete run into the user's repository: to the branch that is checked out, where it still
    stands as `before`, else as a new branch. Gives the branch, empty without commits, and whether it was moved."""
    bundle = bundle_of(request)
    if bundle is None:
        return "", False
    if before and (moved := move_branch(request.checkout, bundle, before)):
        return moved, True
    own = local_branch(report.agent, report.issue, report.run_id)
    return bring_branch(request.checkout, bundle, report.follow_up.branch if report.follow_up else own), False


def first_commit(prepared: Prepared) -> str:
    """The commit at which the run begins."""
    if prepared.resumed_run:
        return prepared.resumed_run.started.base_commit
    return prepared.request.follow_up.head if prepared.request.follow_up else "HEAD"


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
    if top := ask_git(root, "rev-parse", "--show-cdup", may_fail=True):
        above = (root / top).resolve()
        hint = f"Give `--repo {above} --working-directory {root.relative_to(above)}` for a run in a folder of it."
    raise InputError(f"{root} is not the top folder of a git repository, and a run works on a branch.", hint=hint)


@contextmanager
def open_workspace(request: RunRequest) -> Iterator[Workspace]:
    """A place for the run's workspace; it is removed with all that is there."""
    root = request.root.resolve()
    if request.at_terminal:
        demand_repository(root)
    programs = request.programs
    with temporary_folder(root) as folder:
        copy = folder / "checkout"
        copied = replace(request, root=copy, source=root, programs=programs and programs_of_copy(programs, root, copy))
        yield Workspace(request=copied, programs=programs or (), before=checked_out(root) if request.in_place else None)


def request_in_copy(request: RunRequest, copy: Path) -> RunRequest:
    """The request for a `copy` of its checkout, with the programs of the checkout's environments copied as well."""
    copied = replace(request, root=copy, source=request.root)
    if not request.programs:
        return copied
    copy_environments(request.programs, request.root, copy)
    return replace(copied, programs=programs_of_copy(request.programs, request.root, copy))


@contextmanager
def committed_copy(request: RunRequest, cancellation: Cancellation) -> Iterator[Path]:
    """The checkout as it is now, all of it committed, as a copy. Signals stay held at the end."""
    with temporary_folder(request.root) as folder:
        copy = folder / "checkout"
        make_workspace(request.root, copy, without=request.login_files)
        cancellation.hold()
        copied = replace(request, root=copy, source=request.root)
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
