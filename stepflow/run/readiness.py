"""What a run needs of the checkout, of this machine and of GitHub's server at its end: a run asks before the model is
asked, and a preflight asks the same."""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from stepflow.boundary.target_branch import ServerCheck, branch_of, branch_problem
from stepflow.domain.effect import AllowedEffect
from stepflow.errors import BoundaryError, InputError
from stepflow.run.inputs import BoundaryMode
from stepflow.run.subject.issue import present_url
from stepflow.sandbox.host_git import ask_git, check_branch, head_commit, local_branch, read_settings
from stepflow.sandbox.workspace import GIT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from stepflow.domain.definition import AgentDefinition
    from stepflow.run.request import RunRequest
    from stepflow.sandbox.host_git import Setting

    #: Warnings; None where the run needs nothing of the kind. Raises `StepflowError` for what would end the run after
    #: everything is paid.
    Check = Callable[[RunRequest, AgentDefinition], tuple[str, ...] | None]

#: Free space, in bytes, without which no run begins: journal, snapshots and commits need some.
LEAST_SPACE = 64 * 1024 * 1024
#: Git's words for a setting that is on.
ON = (None, "true", "yes", "on", "1")


def check_readiness(request: RunRequest, agent: AgentDefinition) -> tuple[str, ...]:
    """The warnings of all checks. Raises the first `StepflowError`."""
    return tuple(warning for check in CHECKS.values() for warning in check(request, agent) or ())


def _check_repository(request: RunRequest, agent: AgentDefinition) -> tuple[str, ...] | None:
    """Commits need a repository whose root is seen, and a commit to begin at."""
    # A rehearsal's copy stands already, with a repository even where the checkout has none.
    root = request.root if os.path.lexists(request.root / GIT) else request.checkout
    if not request.at_terminal and not agent.github.pushes:
        return None
    if not os.path.lexists(root / GIT):
        raise InputError(
            f"{root} is not in a git repository: neither it nor a folder above it in the workspace holds `.git`. The "
            "agent's commits could not be pushed.",
            hint="Check the repository out before this step, with `actions/checkout`; in a container that needs git "
            "in the image. At a terminal, run `git init` and commit what is there.",
        )
    try:
        ask_git(root, "rev-parse", "--absolute-git-dir")
    except BoundaryError as exc:
        raise InputError(
            f"The repository {root} cannot be worked on: {exc.message}",
            hint="Correct what git complains of, or check the repository out again.",
        ) from exc
    if not head_commit(root):
        raise InputError(
            f"The repository {root} cannot be worked on: it has no commit to begin at.",
            hint="Commit what is there, and push it.",
        )
    return ()


def _check_local_branch(request: RunRequest, agent: AgentDefinition) -> tuple[str, ...] | None:
    """A run at a terminal brings its commits back as a branch, one in place where it cannot move the user's."""
    if not request.at_terminal or not os.path.lexists(request.checkout / GIT):
        return None
    check_branch(request.checkout, local_branch(agent.name, request.trigger.issue_number, request.run_id))
    return ()


def _check_branch_name(request: RunRequest, agent: AgentDefinition) -> tuple[str, ...] | None:
    """An invalid name would be found only when the pull request is planned, at the end of the run."""
    if request.follow_up or not agent.github.pushes:
        return None
    if problem := branch_problem(_branch(request, agent), request.base_branch(agent)):
        raise InputError(problem)
    return ()


def _branch(request: RunRequest, agent: AgentDefinition) -> str:
    number = request.trigger.issue_number
    return branch_of(agent, f"issue-{number}" if number else f"run-{request.run_id}")


def _check_filters(request: RunRequest, agent: AgentDefinition) -> tuple[str, ...] | None:
    """Without the program of a required filter git cannot add or check out a file that goes through it."""
    root = request.checkout
    if not agent.github.pushes:
        return None
    filters = [each for each in read_settings(root) if each.section == "filter"]
    required = {each.subsection for each in filters if each.name == "required" and _is_on(each)}
    path = os.pathsep.join(map(str, request.programs or request.program_path))
    missing = {
        each.subsection: program
        for each in filters
        if each.subsection in required and (program := _program(each)) and not shutil.which(program, path=path)
    }
    warnings = []
    for name in _filters_used(root, (name for name in missing if name)):
        message = (
            f"Files of this repository go through the git filter `{name}`, which is required, and its program "
            f"`{missing[name]}` is not installed where the tools run: git could neither add nor check them out."
        )
        if not (request.inputs.apt_packages or request.inputs.setup):
            hint = "Install it with the input `apt-packages` or `setup`, or check out without it."
            raise InputError(message, hint=hint)
        warnings.append(f"{message} Let `setup` or `apt-packages` install it.")
    return tuple(warnings)


def _is_on(setting: Setting) -> bool:
    return (setting.value and setting.value.lower()) in ON


def _program(setting: Setting) -> str:
    """What git starts for the filter, empty for another setting or where only a shell can tell."""
    if setting.name not in ("clean", "smudge", "process"):
        return ""
    try:
        return next((word for word in shlex.split(setting.value or "") if "=" not in word), "")
    except ValueError:
        return ""


def _filters_used(root: Path, names: Iterable[str]) -> Iterator[str]:
    """Of these filters, those that a file of the repository goes through."""
    for name in names:
        if ask_git(root, "ls-files", "--", f":(attr:filter={name})", may_fail=True):
            yield name


def _check_space(request: RunRequest, _agent: AgentDefinition) -> tuple[str, ...]:
    """A disk that is full ends a run in the middle."""
    for place in dict.fromkeys((_existing(request.folder), Path(tempfile.gettempdir()))):
        try:
            free = shutil.disk_usage(place).free
        except OSError:
            continue
        if free < LEAST_SPACE:
            raise InputError(
                f"Only {free // 1024**2} MiB are free on the disk of {place}, and a run needs "
                f"{LEAST_SPACE // 1024**2} MiB at least.",
                hint="Free space there, or name another folder in run-folder or TMPDIR.",
            )
    return ()


def _existing(folder: Path) -> Path:
    return next(each for each in (folder.resolve(), *folder.resolve().parents) if each.exists())


def check_issue(request: RunRequest, agent: AgentDefinition) -> tuple[str, ...] | None:
    """Only people with write access can comment on a locked issue, and the job's token is not one of them."""
    github, number = agent.github, request.trigger.issue_number
    comments = github.enabled and github.comment and AllowedEffect.COMMENT in github.allowed_effects
    if request.inputs.boundary is not BoundaryMode.GITHUB or not comments or request.trigger.locked is None:
        return None
    if request.trigger.locked:
        raise InputError(
            f"Issue #{number} is locked, so GitHub takes no comment of the run on it.",
            hint="Unlock the conversation on the issue's page, then start the agent again.",
        )
    return ()


def _check_server(request: RunRequest, agent: AgentDefinition) -> tuple[str, ...] | None:
    """The server must have the commit where the run begins, room for its branch, and let the token push. A follow-up
    has read its commit and its branch there."""
    token, follow_up = request.inputs.github_token, request.follow_up
    commit, branch = (follow_up.head, follow_up.branch) if follow_up else (request.base_commit, _branch(request, agent))
    asks = request.inputs.boundary is BoundaryMode.GITHUB and agent.github.pushes
    if not asks or token is None or not request.repository or not commit:
        return None

    server = request.inputs.github_server_url.rstrip("/")

    check = ServerCheck(
        url=f"{server}/{request.repository}.git",
        token=token.get_secret_value(),
        redactor=request.redactor,
        connection=request.proxy_config.connection_to(server),
        present_url=lambda: present_url(request, token.get_secret_value()),
    )
    base = request.base_branch(agent)
    return check.check(commit=commit, branch=branch, base=base, is_there=follow_up is not None)


#: In the order in which they are asked, by the name of the preflight's row.
CHECKS: Mapping[str, Check] = {
    "repository": _check_repository,
    "branch name": _check_branch_name,
    "local branch": _check_local_branch,
    "git filters": _check_filters,
    "disk": _check_space,
    "issue": check_issue,
    "git server": _check_server,
}
