"""Reports on the issue that a run did not complete. It labels, closes and opens nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stepflow.boundary.apply import EffectWriter
from stepflow.boundary.bundle_push import BundlePush
from stepflow.boundary.output_filter import LONGEST_TEXT, OutputFilter, filter_text
from stepflow.boundary.own_texts import Marker, find_asking_comment, marker_word, without_marker
from stepflow.boundary.plan import Plan
from stepflow.boundary.settings import BoundarySettings, check_actor
from stepflow.boundary.target_branch import Pushed
from stepflow.domain.agent_settings import GitHubSettings
from stepflow.domain.effect import AllowedEffect, PushBranch
from stepflow.domain.run import Issue
from stepflow.domain.secrets import Redactor
from stepflow.domain.text import Spent
from stepflow.domain.words import OnFailure, Outcome
from stepflow.errors import BoundaryError

if TYPE_CHECKING:
    from stepflow.boundary.github_api import GitHubWriter

#: Outcomes that need no report: nothing was tried, or somebody stopped it.
SILENT_OUTCOMES = frozenset({Outcome.COMPLETED, Outcome.NO_CHANGES, Outcome.SKIPPED, Outcome.CANCELLED})

#: What may be said about the work that was kept.
LONGEST_WORK_NOTE = 4_000

#: Outcomes after which this run's comment may be written already.
BROKEN_OFF = frozenset({Outcome.BOUNDARY_FAILED, Outcome.INTERNAL_ERROR})


@dataclass(frozen=True, kw_only=True)
class FailedRun:
    """What is known of a run that did not complete. `agent` is its name, `branch` that of its work; `text` says what
    happened. `pushed_commit` is what the run had pushed before it failed: the marker must know our own tip. `cost` is
    what this run has cost. A text that `adds` stands below what the run wrote before; `text_below` is then enough,
    without what stands above already."""

    run_id: str
    agent: str
    github: GitHubSettings
    settings: BoundarySettings
    issue: Issue | None
    outcome: Outcome
    text: str
    redactor: Redactor
    branch: str = ""
    pushed_commit: str = ""
    cost: Spent = field(default_factory=Spent)
    adds: bool = False
    text_below: str = ""


@dataclass(frozen=True, kw_only=True)
class FailureReport:
    """What was done about a failed run. `detail` is one line for people; `url` leads to the comment, if one was
    written; `branch` and `commit` say where the work was kept; `spent` is what all runs on the issue have cost, None
    when nobody looked."""

    detail: str
    url: str = ""
    branch: str = ""
    commit: str = ""
    spent: Spent | None = None


def find_waiting_run(writer: GitHubWriter, issue: int) -> Marker | None:
    """The run that asks on the issue to approve its plan; None also where GitHub does not answer."""
    try:
        asking = find_asking_comment(writer.comments(issue), writer.viewer(), issue=issue)
    except BoundaryError:
        return None
    return asking.marker if asking else None


def report_failure(run: FailedRun, writer: GitHubWriter, *, pusher: BundlePush | None = None) -> FailureReport | None:
    """Update the run's one comment; None when there is nothing to do. Never raises for GitHub's sake.

    When the boundary was broken off, a comment that this run has already written is added to, not replaced: it may
    say which setting to change. Whoever may not start a run causes no comment either. `pusher` is used with
    `on-failure: push-branch` alone.
    """
    github, settings = run.github, run.settings
    waits = run.outcome is Outcome.AWAITING_APPROVAL
    if settings.on_failure is not OnFailure.PUSH_BRANCH or waits:
        pusher = None
    may_comment = github.comment.enabled and AllowedEffect.COMMENT in github.allowed_effects
    wanted = waits or settings.on_failure is not OnFailure.NOTHING
    comments = wanted and run.issue is not None and may_comment
    if run.outcome in SILENT_OUTCOMES or not github.enabled or not (pusher or comments):
        return None
    output_filter = OutputFilter(allowed_hosts=settings.link_hosts(github.allowed_link_hosts), redactor=run.redactor)
    plan = Plan(
        run_id=run.run_id,
        agent=run.agent,
        settings=settings,
        output_filter=output_filter,
        issue=run.issue,
        cost=run.cost,
    )
    effects = EffectWriter(plan, writer, pusher)
    pushed: Pushed | None = None
    work_note = url = ""
    try:
        if refusal := check_actor(writer, settings):
            return FailureReport(detail=refusal)
        if pusher:
            try:
                pushed = effects.push(pusher, PushBranch(branch=run.branch))
                work_note = f"The unfinished work is kept on the branch `{pushed.branch}`."
            except BoundaryError as exc:
                work_note = f"The unfinished work could not be kept on a branch: {exc}"
        detail = work_note
        if comments:
            own = effects.own_comment()
            is_ours = own is not None and own.marker.run == marker_word(run.run_id)
            adds = is_ours and (run.adds or run.outcome in BROKEN_OFF)
            text = run.text_below if is_ours and adds and run.text_below else run.text
            body = _comment_body(text, work_note, output_filter, before=own.comment.body if adds and own else "")
            url = effects.write_comment(body, own, commit=pushed.commit if pushed else run.pushed_commit).url
            detail = "The run's comment says what happened."
    except BoundaryError as exc:
        detail = " ".join(filter(None, (work_note, f"The failure could not be reported on the issue: {exc}")))
    branch, commit = (pushed.branch, pushed.commit) if pushed else ("", "")
    return FailureReport(detail=detail, url=url, branch=branch, commit=commit, spent=effects.spent)


def _comment_body(text: str, work_note: str, output_filter: OutputFilter, *, before: str) -> str:
    """What happened and where the work is, below the comment that this run wrote `before`, if both fit."""
    work_note = filter_text(work_note, output_filter, limit=LONGEST_WORK_NOTE)
    text = filter_text(text, output_filter, limit=LONGEST_TEXT // 2 - len(work_note))
    body = "\n\n".join(part for part in (text, work_note) if part)
    if before and len(before) + len(body) < LONGEST_TEXT:
        return f"{without_marker(before)}\n\n---\n\n{body}"
    return body
