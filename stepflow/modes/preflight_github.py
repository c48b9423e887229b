"""Checks before a run what `read-token` can read on GitHub, and names what no token can read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from stepflow.boundary.settings import branch_of, check_actor
from stepflow.domain.agent.agent_settings import IssueContext
from stepflow.domain.agent.definition import AgentDefinition
from stepflow.domain.reports.report import PreflightCheck
from stepflow.domain.run import label_of
from stepflow.domain.words import Commits, Outcome
from stepflow.errors import StepflowError
from stepflow.modes.preflight_rows import failed_row, guard_rows, ok, unknown, warning
from stepflow.run.issue import demand_scopes, github_reader
from stepflow.run.readiness import check_issue
from stepflow.run.request import RunRequest, boundary_settings
from stepflow.run.start.inputs import BoundaryMode

if TYPE_CHECKING:
    from stepflow.boundary.github_api import GitHubReader


def github_checks(request: RunRequest, agent: AgentDefinition | None) -> Iterator[PreflightCheck]:
    """Check what `read-token` can read, and name what no token can read."""
    token, writes = request.inputs.read_token, request.inputs.boundary is BoundaryMode.GITHUB
    if token is not None:
        yield from guard_rows("read-token", lambda: _read(request, agent, token.get_secret_value()))
    elif writes:
        yield unknown("actor", "without `read-token`, the event that starts a run must show that its actor may write")
        yield unknown("git server", "whether the commits can be pushed is asked with `read-token`")
        yield unknown("labels", f"see {_address(request)}/labels, or give `read-token`")
    if writes:
        where = f"{_address(request)}/settings/actions"
        allows = "Allow GitHub Actions to create and approve pull requests"
        yield unknown("Actions may create pull requests", f"see {where}, '{allows}'")
        actions = ", actions" if request.inputs.ci_workflow else ""
        takes = f"it takes contents{actions}, issues and pull-requests, each `write`"
        yield unknown("scopes of github-token", f"see `permissions:` of the job: {takes}")


def _read(request: RunRequest, agent: AgentDefinition | None, token: str) -> Iterator[PreflightCheck]:
    with closing(github_reader(request, token)) as reader:
        refusal = check_actor(reader, boundary_settings(request))
        demand_scopes(reader, request)
        issue = guard_rows("issue", lambda: _issue(request, agent, reader)) if agent else ()
        there = reader.labels()
        signatures = tuple(_signatures(request, agent, reader))
    held = f"{request.trigger.actor} has `{request.inputs.start.min_permission}` or more"
    yield failed_row("actor", refusal, Outcome.REFUSED) if refusal else ok("actor", held)
    yield from issue
    known = {name.casefold() for name in there}
    yield _labels(request, agent, known)
    yield from _choices(request, agent, known) if agent else ()
    yield from signatures


def _issue(request: RunRequest, agent: AgentDefinition, reader: GitHubReader) -> Iterator[PreflightCheck]:
    """If only the issue's number is known, check that the issue exists and accepts comments."""
    number = request.trigger.issue_number
    if number is None or request.trigger.locked is not None:
        return
    now = reader.issue(number)
    if check_issue(replace(request, trigger=replace(request.trigger, locked=now.locked)), agent) is not None:
        yield ok("issue", f"#{number} is {now.state} and takes comments")


def _signatures(request: RunRequest, agent: AgentDefinition | None, reader: GitHubReader) -> Iterator[PreflightCheck]:
    """Check whether a rule rejects commits that git pushes, for the branch of the pull request or for the run's own
    branch."""
    if request.inputs.commits is not Commits.GIT or request.inputs.boundary is not BoundaryMode.GITHUB or not agent:
        return
    branches = (agent.github.pull_request.base or "", branch_of(agent, f"issue-{request.trigger.issue_number or 1}"))
    try:
        demanding = [name or "the default branch" for name in branches if reader.demands_signatures(name)]
    except StepflowError:
        yield unknown("commits", f"whether a rule requires signed ones: see {_address(request)}/settings/rules")
        return
    if demanding:
        yield warning("commits", f"a rule of {' and '.join(demanding)} requires signed ones: set `commits: verified`")


def _labels(request: RunRequest, agent: AgentDefinition | None, there: set[str]) -> PreflightCheck:
    agent_name = agent.name if agent else request.trigger.agent
    triggers = (label_of(agent_name, pattern) for pattern in request.inputs.start.labels)
    wanted = dict.fromkeys((*triggers, *(agent.github.labels.completion.add if agent else ())))
    if missing := [name for name in wanted if name.casefold() not in there]:
        return warning("labels", f"not in the repository, see {_address(request)}/labels: {', '.join(missing)}")
    return ok("labels", f"there: {', '.join(wanted)}")


def _choices(request: RunRequest, agent: AgentDefinition, there: set[str]) -> Iterator[PreflightCheck]:
    """Name the labels that an agent may choose from those of the repository, where none of this name is."""
    github = agent.github
    allowed = github.allowed_labels or () if IssueContext.LABELS in github.context else ()
    if missing := [glob for glob in allowed if not any(fnmatchcase(name, glob.casefold()) for name in there)]:
        where = f"not in the repository, see {_address(request)}/labels, so the agent never adds them"
        yield warning("allowedLabels", f"{where}: {', '.join(missing)}")


def _address(request: RunRequest) -> str:
    return f"{request.inputs.github_server_url.rstrip('/')}/{request.repository or 'OWNER/REPOSITORY'}"
