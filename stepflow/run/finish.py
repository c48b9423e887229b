"""After the flow: plan what GitHub shall show, and write it.

Takes: a flow's result and the work it left. Gives: `Ending`.
May touch: nothing itself; the boundary writes, with the token that goes nowhere else (boundary.md).
"""

from __future__ import annotations

import re
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from stepflow.boundary.apply import apply_effects
from stepflow.boundary.bundle_push import BundlePush
from stepflow.boundary.failure import report_failure
from stepflow.boundary.patience import Patience
from stepflow.boundary.plan import plan_effects
from stepflow.boundary.planner import CommitsInfo
from stepflow.domain.effect import EffectKind, PushBranch, describe_effect
from stepflow.domain.event import EffectApplied, EffectPlanned, FailureReported, Noted
from stepflow.domain.figures import count
from stepflow.domain.guard import named
from stepflow.domain.words import Outcome
from stepflow.report.comment import removed_part
from stepflow.run.collect import collect_run, comment_text, guard_warnings, pushed_commit
from stepflow.run.ending import Ending
from stepflow.run.input_types import BoundaryMode
from stepflow.run.interruptible import clock_of_services
from stepflow.run.issue_cost import run_cost, tell_issue_cost
from stepflow.run.parts import boundary_settings

if TYPE_CHECKING:
    from stepflow.boundary.github_writer import GitHubWriter
    from stepflow.boundary.plan import Plan
    from stepflow.domain.decision import FlowResult
    from stepflow.domain.effect import Receipt
    from stepflow.domain.redact import Redactor
    from stepflow.domain.run import RunFacts
    from stepflow.domain.spent import Spent
    from stepflow.ports import Clock, Journal
    from stepflow.run.cancel import Cancellation
    from stepflow.run.prepare import Prepared
    from stepflow.run.work import Work


@dataclass(frozen=True, kw_only=True)
class Finish:
    """Everything that the end of a run works on. `done` are receipts of an earlier try."""

    prepared: Prepared
    facts: RunFacts
    work: Work
    journal: Journal
    cancellation: Cancellation
    clock: Clock
    done: tuple[Receipt, ...] = ()

    @cached_property
    def patience(self) -> Patience:
        """How long this end of a run waits for GitHub in all, counted from the first use."""
        clock = clock_of_services(self.clock, self.cancellation)
        return Patience.of(clock, self.prepared.limits.deadline, lambda message: _note(self, "warning", message))

    @cached_property
    def cost(self) -> Spent:
        """What this run has cost; no model is asked any more."""
        return run_cost(self.prepared)


def finish_run(finish: Finish, result: FlowResult) -> Ending:
    """Plan and apply after a completed flow; after any other, at most the report of the failure."""
    ending = Ending(outcome=result.outcome, reason=result.reason)
    writes = finish.prepared.request.inputs.boundary is BoundaryMode.GITHUB
    if result.outcome is Outcome.COMPLETED and finish.work.problem:
        return Ending(outcome=Outcome.REFUSED, reason=f"Completion loop: refused: {finish.work.problem}")
    if result.outcome is Outcome.COMPLETED:
        plan = _plan(finish, result, ending)
        ending = _refusal(finish, plan) or (_apply(finish, plan, ending) if writes else ending)
    return tell_failure(finish, ending)


def tell_failure(finish: Finish, ending: Ending) -> Ending:
    """Tell the issue that the run did not complete, where outcome and inputs want it; the ending stays as it is."""
    if finish.prepared.request.inputs.boundary is not BoundaryMode.GITHUB or ending.outcome is Outcome.COMPLETED:
        return ending
    so_far = collect_run(finish.prepared)
    with closing(_writer(finish)) as writer:
        told = report_failure(
            finish.prepared.agent,
            finish.facts,
            boundary_settings(finish.prepared.request),
            outcome=ending.outcome,
            lost=ending.untold and ending.begun,
            text=comment_text(so_far, ending, job_url=finish.prepared.request.job_url),
            writer=writer,
            pusher=_pusher(finish, writer),
            pushed_commit=pushed_commit(so_far),
            redactor=_redactor(finish),
            patience=finish.patience,
            cost=finish.cost,
        )
    if told is not None:
        tell_issue_cost(finish.prepared, finish.journal, told.spent, run=finish.cost)
        if told.branch:
            _note(finish, "info", f"the unfinished work is kept on the branch {told.branch}")
        finish.journal.append(FailureReported(detail=told.detail, url=told.url, branch=told.branch, commit=told.commit))
    return ending


def _plan(finish: Finish, result: FlowResult, ending: Ending) -> Plan:
    work, prepared = finish.work, finish.prepared
    so_far = collect_run(prepared)
    plan = plan_effects(
        prepared.agent,
        finish.facts,
        result,
        boundary_settings(prepared.request),
        summary=comment_text(so_far, ending, job_url=prepared.request.job_url),
        removed=removed_part(so_far),
        commits=CommitsInfo(
            count=work.commits,
            uncommitted=work.uncommitted,
            created_by_checks=work.created_by_checks,
            warnings=guard_warnings(so_far),
        ),
        redactor=_redactor(finish),
        cost=finish.cost,
    )
    for effect in plan.effects:
        finish.journal.append(EffectPlanned(kind=effect.kind, detail=describe_effect(effect)))
    _note(finish, "info", f"planned {count(len(plan.effects), 'effect')}")
    for warning in plan.warnings:
        _note(finish, "warning", warning)
    return plan


def _refusal(finish: Finish, plan: Plan) -> Ending | None:
    reason = plan.refusal or _unvalidated(finish.work, plan)
    return Ending(outcome=Outcome.REFUSED, reason=f"Completion loop: {reason}") if reason else None


def _unvalidated(work: Work, plan: Plan) -> str:
    """Why the commits are not what the validators saw, empty when they are or when nothing is pushed."""
    pushes = any(isinstance(effect, PushBranch) for effect in plan.effects)
    if not (pushes and work.is_checked and work.uncommitted):
        return ""
    return (
        f"refused: the checks ran beside files that no commit holds, so they do not speak for the commits: "
        f"{named(work.uncommitted)}. Let the agent commit them, remove them, or name them in .gitignore."
    )


def _apply(finish: Finish, plan: Plan, completed: Ending) -> Ending:
    with closing(_writer(finish)) as writer:
        applied = apply_effects(
            plan,
            writer=writer,
            pusher=_pusher(finish, writer),
            record=lambda receipt: _record(finish, receipt),
            patience=finish.patience,
            done=_believed(finish, plan),
        )
    tell_issue_cost(finish.prepared, finish.journal, applied.spent, run=finish.cost)
    if applied.outcome is Outcome.COMPLETED:
        _note(finish, "info", "applied")
        return completed
    _note(finish, "error", f"{'refused' if applied.outcome is Outcome.REFUSED else 'failed'}: {applied.reason}")
    return Ending(outcome=applied.outcome, reason=f"Completion loop: {applied.reason}")


def _believed(finish: Finish, plan: Plan) -> tuple[Receipt, ...]:
    """The receipts that can be ours: a folder may be forged, and what they name goes into our own comment."""
    site = f"{plan.settings.repository_url}/"
    branch = next((effect.branch for effect in plan.effects if isinstance(effect, PushBranch)), "")
    return tuple(
        receipt
        for receipt in finish.done
        if (not receipt.url or receipt.url.startswith(site))
        and (receipt.kind is not EffectKind.PUSH_BRANCH or re.fullmatch(rf"{re.escape(branch)}(-\d+)?", receipt.detail))
    )


def _record(finish: Finish, receipt: Receipt) -> None:
    finish.journal.append(EffectApplied(**vars(receipt)))
    # This effect is through and written down, and the next has not begun: the moment to obey a signal.
    finish.cancellation.check()


def _writer(finish: Finish) -> GitHubWriter:
    from stepflow.boundary.github_writer import GitHubWriter  # noqa: PLC0415 - costs time that a dry run need not pay

    return GitHubWriter(
        api_url=finish.prepared.request.inputs.github_api_url,
        repository=finish.facts.repository,
        token=_token(finish),
        redactor=_redactor(finish),
        patience=finish.patience,
        way=finish.prepared.request.outbound.way_to(finish.prepared.request.inputs.github_api_url),
    )


def _pusher(finish: Finish, writer: GitHubWriter) -> BundlePush | None:
    request, agent, work = finish.prepared.request, finish.prepared.agent, finish.work
    if work.bundle is None:
        return None
    server = request.inputs.github_server_url.rstrip("/")
    return BundlePush(
        remote_url=f"{server}/{request.repository}.git",
        present_url=lambda: f"{server}/{writer.full_name()}.git",
        token=_token(finish),
        bundle=work.bundle,
        folder=request.folder,
        base_commit=finish.facts.base_commit,
        run_id=request.run_id,
        agent=agent.name,
        issue=finish.facts.issue.number if finish.facts.issue else None,
        tree=work.tree,
        protected_paths=agent.github.protected_paths,
        redactor=_redactor(finish),
        way=request.outbound.way_to(server),
    )


def _token(finish: Finish) -> str:
    token = finish.prepared.request.inputs.github_token
    return token.get_secret_value() if token else ""


def _redactor(finish: Finish) -> Redactor:
    return finish.prepared.request.redactor


def _note(finish: Finish, level: str, message: str) -> None:
    finish.journal.append(Noted(level=level, message=f"[Boundary] {message}"))
