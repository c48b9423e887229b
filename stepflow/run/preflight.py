"""Everything that a run would ask first, asked without a run (cli.md `stepflow preflight`).

Takes: a run request. Gives: `Preflight`. Nothing is written to GitHub, no model turn paid, no run folder made.
May touch: the agent folder and the scenario, to read; what the sandbox's and the services' rows look at.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from stepflow.definition.arguments import check_arguments
from stepflow.definition.loading import load_agent, validate_agent
from stepflow.domain.preflight import Preflight
from stepflow.domain.problem import Severity, count_problems
from stepflow.domain.words import Outcome
from stepflow.run.addresses import told_ways
from stepflow.run.checks import check_boundary, check_request, unset_variables
from stepflow.run.input_types import BoundaryMode
from stepflow.run.preflight_sandbox import sandbox_checks
from stepflow.run.preflight_services import github_checks, model_checks
from stepflow.run.prepare import scenario_of
from stepflow.run.rows import failed, guarded, ok, warning
from stepflow.run.subject import issue_number

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stepflow.domain.definition import AgentDefinition
    from stepflow.domain.preflight import Check
    from stepflow.domain.problem import Problem
    from stepflow.run.cancel import Cancellation
    from stepflow.run.request import RunRequest


def run_preflight(request: RunRequest, cancellation: Cancellation) -> Preflight:
    """Look at everything; what fails keeps nothing else from being looked at."""
    redact = request.redactor
    checks = (replace(check, detail=redact(check.detail)) for check in _checks(request, cancellation))
    return Preflight(agent=request.trigger.agent, checks=tuple(checks))


def _checks(request: RunRequest, cancellation: Cancellation) -> Iterator[Check]:
    inputs = guarded("inputs", lambda: _inputs(request))
    yield from inputs
    agent = None
    # A name that is none must not be looked for in the file system (security.md case 10).
    if not any(check.outcome is Outcome.INVALID_DEFINITION for check in inputs):
        problems = _problems(request)
        yield _judged("definition", problems)
        agent = None if _has_errors(problems) else _agent(request)
    if agent:
        yield from guarded("run arguments", lambda: _arguments(request, agent))
        yield from model_checks(request, agent)
    yield from sandbox_checks(request, cancellation)
    with cancellation.obeyed():
        yield from guarded("boundary", lambda: _boundary(request))
        yield from github_checks(request, agent)


def _inputs(request: RunRequest) -> Iterator[Check]:
    check_request(request)
    unset = unset_variables(request)
    yield warning("inputs", " ".join(unset)) if unset else ok("inputs", "can work together")
    yield from (warning("network", note) for note in request.outbound.notes)
    yield from guarded("network", lambda: _ways(request))


def _ways(request: RunRequest) -> Iterator[Check]:
    if ways := tuple(told_ways(request)):
        yield ok("network", "; ".join(ways))


def _problems(request: RunRequest) -> tuple[Problem, ...]:
    inputs = request.inputs
    return validate_agent(
        request.trigger.agent,
        root=request.root,
        allow_spec_violations=inputs.allow_spec_violations,
        allow_custom_verdict=inputs.allow_custom_verdict,
    )


def _agent(request: RunRequest) -> AgentDefinition:
    inputs = request.inputs
    return load_agent(
        request.trigger.agent,
        root=request.root,
        allow_spec_violations=inputs.allow_spec_violations,
        allow_custom_verdict=inputs.allow_custom_verdict,
    )


def _arguments(request: RunRequest, agent: AgentDefinition) -> Iterator[Check]:
    scenario = scenario_of(request)
    given = {**(scenario.params if scenario else {}), **request.inputs.parameters}
    issue = issue_number(request, scenario)
    problems = check_arguments(agent, given, issue=issue)[1]
    if issue is None and _has_errors(problems):
        # The event of a real run brings the issue, which no preflight needs.
        told = "; ".join(problem.message for problem in problems)
        yield warning("run arguments", f"there is no issue here to run on: {told}")
    else:
        yield _judged("run arguments", problems)


def _boundary(request: RunRequest) -> Iterator[Check]:
    check_boundary(request)
    writes = request.inputs.boundary is BoundaryMode.GITHUB
    yield ok("boundary", f"writes to {request.repository}" if writes else "a dry run, which writes nothing")


def _judged(name: str, problems: tuple[Problem, ...]) -> Check:
    """The first problem in full; `stepflow validate` has the others."""
    counted = count_problems(problems)
    worth_telling = next((str(problem) for problem in problems if problem.severity is not Severity.NOTE), "")
    detail = f"{counted}; {worth_telling}" if worth_telling else counted
    if _has_errors(problems):
        return failed(name, detail, Outcome.INVALID_DEFINITION)
    return warning(name, detail) if worth_telling else ok(name, detail)


def _has_errors(problems: tuple[Problem, ...]) -> bool:
    return any(problem.severity is Severity.ERROR for problem in problems)
