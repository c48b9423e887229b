"""The comment about a proof on its pull request."""

from __future__ import annotations

from contextlib import closing

from stepflow.boundary.apply import EffectWriter
from stepflow.boundary.github_failures import RetryPolicy
from stepflow.boundary.output_filter import OutputFilter, filter_text
from stepflow.boundary.plan import Plan
from stepflow.domain.run import Issue
from stepflow.ports import Clock
from stepflow.run.finish import UNPREPARED_SECONDS, open_writer
from stepflow.run.inputs import BoundaryMode
from stepflow.run.readiness import check_addresses
from stepflow.run.request import RunRequest, boundary_settings

#: No agent can have this name.
_AUTHOR = "mode.prove"


def proof_comment_problem(request: RunRequest) -> str:
    """Return why no comment can be written here; empty if it can."""
    if request.inputs.boundary is not BoundaryMode.GITHUB:
        return "`boundary: dry-run` writes nothing."
    if request.inputs.github_token is None:
        return "It needs the input `github-token`."
    return ""


def write_proof_comment(request: RunRequest, number: int, text: str, clock: Clock) -> str:
    """Post the comment on the pull request, or update the one of an earlier job, after all trials are over. Returns its
    URL. Raises `BoundaryError` where GitHub does not allow it, and `InputError` for a wrong address."""
    check_addresses(request.inputs)
    settings = boundary_settings(request)
    output_filter = OutputFilter(allowed_hosts=settings.link_hosts(()), redactor=request.redactor)
    plan = Plan(
        run_id=request.run_id,
        agent=_AUTHOR,
        settings=settings,
        output_filter=output_filter,
        issue=Issue(number=number),
    )
    policy = RetryPolicy.of(clock, clock.now() + UNPREPARED_SECONDS, lambda _: None)
    with closing(open_writer(request, policy)) as writer:
        effects = EffectWriter(plan, writer, None)
        return effects.write_comment(filter_text(text, output_filter), effects.own_comment(), commit="").url
