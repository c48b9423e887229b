"""The end of a run: collect its work, plan its effects and write them to GitHub, or report its failure."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING

from stepflow.boundary.apply import apply_effects
from stepflow.boundary.bundle_push import BundlePush, read_bundle
from stepflow.boundary.failure import SILENT_OUTCOMES, FailedRun, confirm_receipts, find_waiting_run, report_failure
from stepflow.boundary.github_failures import RetryPolicy
from stepflow.boundary.plan import plan_effects
from stepflow.boundary.settings import MOST_BUNDLE_BYTES, WORK_IS_KEPT, CommitsInfo, Plan, unfinished_branch
from stepflow.domain.agent.agent_settings import GitHubSettings
from stepflow.domain.checkout import BundleInfo, TreeState
from stepflow.domain.connection import is_loopback
from stepflow.domain.effect import PushBranch, Receipt, SuggestionResults, describe_effect, text_of
from stepflow.domain.event import (
    EffectApplied,
    EffectPlanned,
    FailureReported,
    FlowEnded,
    IssueCostSummed,
    Noted,
    WorkCollected,
)
from stepflow.domain.flow import Violation, fold
from stepflow.domain.reports.report import RunReport
from stepflow.domain.run import Issue, RunFacts
from stepflow.domain.secrets import UnsearchablePack, pack_holds_secret, secrets_to_find
from stepflow.domain.text import Spent, count, name_some, usd
from stepflow.domain.words import Commits, OnFailure, Outcome
from stepflow.errors import BoundaryError, StepflowError
from stepflow.journal import iter_journal
from stepflow.ports import Clock, Journal
from stepflow.report.summary import comment_summary, failure_summary, removed_text, verification
from stepflow.run.clock import Cancellation, Deadline, InterruptibleClock, clock_of_services
from stepflow.run.ending import Ending, collect_run, guard_warnings, pushed_commit, without_names
from stepflow.run.issue import github_reader, open_github
from stepflow.run.prepare import Prepared, load_requested
from stepflow.run.recorded import JOURNAL, PreviousRun
from stepflow.run.request import RunRequest, boundary_settings, commit_rules, git_remote
from stepflow.run.start.inputs import BoundaryMode
from stepflow.run.start.server import host_of
from stepflow.sandbox.box import Toolbox

if TYPE_CHECKING:
    from stepflow.boundary.github_writer import GitHubWriter


@dataclass(frozen=True, kw_only=True)
class Work:
    """What the run did in the workspace."""

    #: Why the commits cannot be taken out of the workspace; empty if they can.
    problem: str = ""
    #: Number of commits.
    commits: int = 0
    #: The last commit, with the files that no commit has.
    closing: TreeState = field(default_factory=TreeState)
    #: Whether the validators ran on this commit.
    is_checked: bool = False
    #: The file that contains the commits; None without any.
    bundle: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run that has begun, with everything that its stages need."""

    prepared: Prepared
    #: Without a base commit until the workspace is opened.
    facts: RunFacts
    journal: Journal
    clock: Clock
    cancellation: Cancellation
    work: Work = field(default_factory=Work)
    #: Receipts of an earlier attempt to write.
    done: tuple[Receipt, ...] = ()
    #: What became of the suggestions of a review; None without any.
    tried: SuggestionResults | None = None
    #: Replaces the end of the run for a program that runs an agent itself.
    finish: Callable[[Run, FlowEnded], Ending] | None = None

    @property
    def request(self) -> RunRequest:
        """The request of the run."""
        return self.prepared.request

    @property
    def resumed_run(self) -> PreviousRun | None:
        """The earlier run that is resumed; None for a new one."""
        return self.prepared.resumed_run

    @property
    def deadline(self) -> Deadline:
        """The deadline of the run, on a clock whose waits end when a signal comes."""
        return Deadline(clock=InterruptibleClock(self.clock, self.cancellation), at=self.facts.limits.deadline)

    @cached_property
    def retry_policy(self) -> RetryPolicy:
        """Limits how long the end of this run waits for GitHub in all, counted from the first use."""
        clock = clock_of_services(self.clock, self.cancellation)
        return RetryPolicy.of(
            clock, self.prepared.limits.deadline, lambda message: self.note("warning", f"[Boundary] {message}")
        )

    def note(self, level: str, message: str) -> None:
        """Record a message for the log."""
        self.journal.append(Noted(level=level, message=message))

    @cached_property
    def cost(self) -> Spent:
        """The cost of this run with all its resumed parts; read it only after the last model call."""
        return cost_so_far(self.request)


def cost_so_far(request: RunRequest) -> Spent:
    """Return the cost of the run so far, by its journal."""
    state = fold(entry.event for entry in iter_journal(request.folder / JOURNAL))
    return Spent(usd=state.cost_usd, at_least=state.unpriced)


def collect_work(run: Run, toolbox: Toolbox, closing: TreeState | None) -> Work:
    """Take the commits out of the workspace, after everything in it was stopped: up to the commit of the `closing` that
    the validators checked, or without validators up to HEAD."""
    toolbox.end_step()
    if closing is None or not closing.commit:
        closing, is_checked = toolbox.tree(), False
    else:
        is_checked = True
    path = run.request.folder / "work.bundle"
    # A bundle of an earlier part of the run may still be there.
    path.unlink(missing_ok=True)
    bundle = None
    problem = ""
    base_commit = run.facts.base_commit
    if base_commit and closing.commit != base_commit:
        try:
            # The run folder may be uploaded in any case, so keep the commits out of it until they were searched.
            with tempfile.TemporaryFile(buffering=0) as file:
                bundle = stream_commits(toolbox, file, base_commit, closing.commit)
                problem = find_unkeepable(file, run.request) if bundle else ""
                if bundle and not problem:
                    file.seek(0)
                    with path.open("wb") as copy:
                        shutil.copyfileobj(file, copy)
        except BoundaryError as error:
            # The outcome of the flow stays the same; the boundary decides whether the problem matters.
            problem = str(error)
        except OSError as error:
            problem = f"The commits cannot be kept in {path}: {error.strerror}."
        if problem:
            bundle = None
            path.unlink(missing_ok=True)
            run.note("warning", f"[Work] {problem}")
    commits = bundle.commits if bundle else 0
    run.journal.append(
        WorkCollected(
            head_commit=closing.commit,
            commits=commits,
            tree=closing.tree if bundle else "",
            changes=bundle.changes if bundle else None,
            uncommitted=list(closing.uncommitted),
        )
    )
    kept = path if bundle else None
    return Work(problem=problem, commits=commits, closing=closing, is_checked=is_checked, bundle=kept)


def stream_commits(toolbox: Toolbox, file: IO[bytes], base_commit: str, commit: str = "") -> BundleInfo | None:
    """Write the commits since the base, by default up to HEAD, into the file as a bundle; returns None if there are
    none. Raises `BoundaryError` if they are too large or unreadable, and `OSError` if the file cannot be written."""
    bundle = toolbox.stream_bundle(base_commit, file.write, max_bytes=MOST_BUNDLE_BYTES, commit=commit)
    file.seek(0)
    return bundle


def find_unkeepable(file: IO[bytes], request: RunRequest) -> str:
    """Say why the commits of a bundle may be neither kept nor pushed; empty if they may."""
    try:
        read_bundle(file)
        if not pack_holds_secret(file, secrets_to_find(request.secrets())):
            return ""
    except (UnsearchablePack, BoundaryError) as exc:
        return f"The commits cannot be searched for secrets: {exc}."
    return (
        "A commit contains a secret of this run, in a file, a name or a message, so the commits are neither kept nor "
        "pushed. It counts even if a later commit removes it."
    )


#: Dollars; the marker in a comment keeps six digits.
ROUNDING = 0.00001


def _report_issue_cost(run: Run, spent: Spent | None) -> None:
    """Record the cost of all runs on an issue that has a budget. `spent` is None if nobody looked."""
    budget = run.request.inputs.limits.usd_per_issue
    if budget is None or spent is None:
        return
    run.journal.append(IssueCostSummed(usd=spent.usd, at_least=spent.at_least, most_usd=budget))
    before = spent.usd - run.cost.usd
    seen_before = run.prepared.spent
    if seen_before is not None and before > seen_before.usd + ROUNDING:
        seen = f"{usd(seen_before.usd)} of the {usd(before)} that other runs cost was known before the flow"
        causes = (
            "read-token belongs to another account than github-token, another run has ended since, or this run was "
            "resumed from an older folder"
        )
        run.note("warning", f"[Budget] only {seen}: {causes}")


def finish_run(run: Run, result: FlowEnded) -> Ending:
    """Plan and apply the effects of a completed flow; after any other outcome, only report the failure."""
    ending = Ending(outcome=result.outcome, stage=result.stage, reason=result.reason)
    writes, is_pushed = run.request.inputs.boundary is BoundaryMode.GITHUB, False
    if result.outcome is Outcome.COMPLETED:
        plan = _plan(run, result, ending)
        if plan.no_changes:
            ending = Ending(outcome=Outcome.NO_CHANGES, reason=plan.no_changes)
        if refusal := _refusal(run, plan):
            ending = refusal
        elif writes:
            ending, is_pushed = _apply(run, plan, ending)
    return report_run_failure(run, ending, is_pushed=is_pushed)


def report_run_failure(run: Run, ending: Ending, *, is_pushed: bool = False) -> Ending:
    """Comment on the issue that the run did not complete, if outcome and inputs ask for it. Work that `is_pushed` is
    not pushed again. Returns the ending unchanged."""
    if run.request.inputs.boundary is not BoundaryMode.GITHUB or ending.outcome in SILENT_OUTCOMES:
        return ending
    agent, report = run.prepared.agent, collect_run(run.prepared, ending)
    failed = FailedRun(
        run_id=run.facts.run_id,
        agent=agent.name,
        github=agent.github,
        settings=boundary_settings(run.request),
        issue=run.facts.issue,
        outcome=ending.outcome,
        text=comment_summary(report, run_url=run.request.job_url),
        text_below=failure_summary(report),
        redactor=run.request.redactor,
        branch=unfinished_branch(agent, run.facts),
        pushed_commit=pushed_commit(report),
        cost=run.cost,
        digest=agent.digest,
        seconds=report.seconds,
    )
    with closing(open_writer(run.request, run.retry_policy)) as writer:
        reported = report_failure(failed, writer, pusher=None if is_pushed else _pusher(run, writer))
    if reported is not None:
        _report_issue_cost(run, reported.spent)
        if reported.branch:
            run.note("info", f"[Boundary] the unfinished work is kept on the branch {reported.branch}")
        run.journal.append(reported)
    return ending


#: Recommended by GitHub ("Best practices for using the REST API").
SECONDS_BETWEEN_WRITES = 1.0
#: Seconds to wait for GitHub when no run has begun.
UNPREPARED_SECONDS = 60.0


def report_unprepared(request: RunRequest, report: RunReport, clock: Clock) -> FailureReported | None:
    """Comment on the issue about a run that could not be prepared, with the text of its report.

    An agent that cannot be loaded cannot opt out of the comment. Raises `InputError` if the token would be sent to the
    wrong server."""
    number = request.trigger.issue_number
    silent = request.inputs.boundary is not BoundaryMode.GITHUB or request.inputs.on_failure is OnFailure.NOTHING
    if silent or number is None or not _token(request):
        return None
    policy = RetryPolicy.of(clock, clock.now() + UNPREPARED_SECONDS, lambda _: None)
    with closing(open_writer(request, policy)) as writer:
        if not request.trigger.agent:
            # A reply to a run that is not in the folder: only the comment on the issue says which run it was.
            waiting = find_waiting_run(writer, number)
            if waiting is None:
                return None
            request = replace(request, run_id=waiting.run, trigger=replace(request.trigger, agent=waiting.agent))
            report = replace(report, agent=waiting.agent)
        try:
            github = load_requested(request).github
        except StepflowError:
            github = GitHubSettings()
        failed = FailedRun(
            run_id=request.run_id,
            agent=request.trigger.agent,
            github=github,
            settings=boundary_settings(request),
            issue=request.trigger.issue or Issue(number=number),
            outcome=report.outcome,
            text=comment_summary(report, run_url=request.job_url),
            redactor=request.redactor,
            adds=request.trigger.reply is not None,
        )
        return report_failure(failed, writer)


def _plan(run: Run, result: FlowEnded, ending: Ending) -> Plan:
    work, prepared = run.work, run.prepared
    report = collect_run(prepared, ending)
    plan = plan_effects(
        prepared.agent,
        run.facts,
        result,
        boundary_settings(prepared.request),
        summary=comment_summary(report, run_url=prepared.request.job_url),
        removed=removed_text(report),
        verified=verification(report, run_url=prepared.request.job_url),
        commits=CommitsInfo(
            count=work.commits,
            uncommitted=work.closing.uncommitted,
            warnings=guard_warnings(report),
        ),
        redactor=run.request.redactor,
        cost=run.cost,
        tried=run.tried,
    )
    is_dry_run = prepared.request.inputs.boundary is BoundaryMode.DRY_RUN
    for effect in plan.effects:
        text = text_of(effect) if is_dry_run else ""
        run.journal.append(EffectPlanned(kind=effect.kind, detail=describe_effect(effect), text=text))
    run.note("debug", f"[Boundary] planned {count(len(plan.effects), 'effect')}")
    for warning in plan.warnings:
        run.note("warning", f"[Boundary] {warning}")
    return replace(plan, seconds=report.seconds)


def _refusal(run: Run, plan: Plan) -> Ending | None:
    """Return the ending if the plan is refused, or if the validators did not check exactly these commits."""
    reason, work = plan.refusal, run.work
    pushes = any(isinstance(effect, PushBranch) for effect in plan.effects)
    if not reason and pushes and work.is_checked and work.closing.untracked:
        violation = uncommitted_files(work.closing.untracked)
        reason = f"{violation.message}. {violation.hint}"
    return Ending(outcome=Outcome.REFUSED, reason=reason) if reason else None


def uncommitted_files(files: Sequence[str]) -> Violation:
    """Return the violation for checks that ran with these files present, which the commits lack."""
    return Violation(
        message="the checks ran with files that are not committed, so they prove nothing about the commits: "
        + name_some(files),
        advice="Commit these files, remove them, or name them in .gitignore and commit that.",
        hint="Let the agent commit them, remove them, or name them in .gitignore.",
    )


def _apply(run: Run, plan: Plan, completed: Ending) -> tuple[Ending, bool]:
    """Apply the plan; returns the ending, and whether the commits were pushed."""

    confirmed: list[Receipt] = []

    def record(receipt: Receipt) -> None:
        confirmed.append(receipt)
        if receipt not in run.done:
            run.journal.append(EffectApplied(**vars(receipt)))
        # This effect is done and recorded, and the next has not begun: the right moment to obey a signal.
        run.cancellation.check()

    with closing(open_writer(run.request, run.retry_policy)) as writer:
        done = _confirm_planned(run, plan, writer)
        confirmed += done
        applied = apply_effects(plan, writer=writer, pusher=_pusher(run, writer), record=record, done=done)
    _report_issue_cost(run, applied.spent)
    for warning in applied.warnings:
        run.note("warning", f"[Boundary] {warning}")
    if applied.outcome is Outcome.COMPLETED:
        run.note("info", "[Boundary] applied")
        return replace(completed, confirmed=tuple(confirmed)), applied.is_pushed
    reason = applied.reason
    if run.work.bundle and not applied.is_pushed:
        reason = f"{reason} {WORK_IS_KEPT}"
    run.note("error", f"[Boundary] {'refused' if applied.outcome is Outcome.REFUSED else 'failed'}: {reason}")
    ending = Ending(outcome=applied.outcome, reason=reason, confirmed=tuple(confirmed))
    return ending, applied.is_pushed


def _confirm_planned(run: Run, plan: Plan, writer: GitHubWriter) -> tuple[Receipt, ...]:
    """Return the earlier receipts of effects that are still planned, as far as GitHub confirms them."""
    if not run.done:
        return ()
    branch = next((effect.branch for effect in plan.effects if isinstance(effect, PushBranch)), "")
    planned = re.compile(rf"({re.escape(branch)}(-\d+)?)?")
    receipts = [receipt for receipt in run.done if planned.fullmatch(receipt.branch)]
    issue = run.facts.issue.number if run.facts.issue else None
    facts, agent = run.facts, run.prepared.agent.name
    return confirm_receipts(writer, receipts, run=facts.run_id, agent=agent, issue=issue, follow_up=facts.follow_up)


def with_confirmed_names(report: RunReport, request: RunRequest) -> RunReport:
    """Return the report of a run that was already complete, with only the branch, pull request and comment that GitHub
    confirms, and without a failure report."""
    event, follow_up = request.trigger.pull_request, report.follow_up
    if follow_up and event and event.number == follow_up.pull_request:
        follow_up = replace(follow_up, url=f"{boundary_settings(request).repository_url}/pull/{event.number}")
    else:
        follow_up = None
    report = replace(report, follow_up=follow_up, failure_report=None, kept_branch="", kept_commit="")
    confirmed: tuple[Receipt, ...] = ()
    if token := request.inputs.github_token:
        with closing(github_reader(request, token.get_secret_value())) as reader:
            confirmed = confirm_receipts(
                reader,
                report.effects,
                run=report.run_id,
                agent=report.agent,
                issue=report.issue,
                follow_up=follow_up,
            )
    return without_names(report, [receipt for receipt in report.effects if receipt not in confirmed])


def open_writer(request: RunRequest, retry_policy: RetryPolicy) -> GitHubWriter:
    """Open GitHub for writing; the caller closes it."""
    from stepflow.boundary.github_writer import GitHubWriter  # noqa: PLC0415 - costs time that a dry run need not pay

    writer = open_github(GitHubWriter, request, _token(request))
    writer.retry_policy = retry_policy
    # A server on this machine needs no pause between writes.
    if not is_loopback(host_of(request.inputs.github_api_url)):
        writer.seconds_between_writes = SECONDS_BETWEEN_WRITES
    return writer


def _pusher(run: Run, writer: GitHubWriter) -> BundlePush | None:
    request, agent, work = run.request, run.prepared.agent, run.work
    if work.bundle is None:
        return None
    return BundlePush(
        remote=git_remote(request, _token(request)),
        bundle=work.bundle,
        folder=request.folder,
        base_commit=run.facts.base_commit,
        run_id=request.run_id,
        agent=agent.name,
        issue=run.facts.issue.number if run.facts.issue else None,
        tree=work.closing.tree,
        rules=commit_rules(request, agent),
        signer=writer if request.inputs.commits is Commits.VERIFIED else None,
    )


def _token(request: RunRequest) -> str:
    token = request.inputs.github_token
    return token.get_secret_value() if token else ""
