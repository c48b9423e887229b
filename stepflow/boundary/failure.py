"""What becomes of a run that did not complete: the comment that says so, which never labels, closes or opens anything,
and those of its receipts that count when it goes on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepflow.boundary.bundle_push import BundlePush, Pushed
from stepflow.boundary.effect_writer import EffectWriter
from stepflow.boundary.github_types import Comment
from stepflow.boundary.output_filter import LONGEST_TEXT, OutputFilter, filter_text
from stepflow.boundary.own_texts import (
    Marker,
    find_asking_comment,
    find_own_comment,
    is_progress,
    marker_word,
    without_marker,
)
from stepflow.boundary.settings import Plan, check_actor
from stepflow.domain.effect import EffectKind, PushBranch, Receipt
from stepflow.domain.event import FailureReported
from stepflow.domain.run import FollowUp
from stepflow.domain.words import OnFailure, Outcome
from stepflow.errors import BoundaryError, StepflowError

if TYPE_CHECKING:
    from stepflow.boundary.github_api import GitHub
    from stepflow.boundary.github_writer import GitHubWriter


#: Outcomes that need no report: nothing was tried, or somebody stopped it.
SILENT_OUTCOMES = frozenset({Outcome.COMPLETED, Outcome.NO_CHANGES, Outcome.SKIPPED, Outcome.CANCELLED})

#: Characters of the note about the work that was kept.
LONGEST_WORK_NOTE = 4_000

#: Outcomes after which this run may have written its comment already.
BROKEN_OFF = frozenset({Outcome.BOUNDARY_FAILED, Outcome.INTERNAL_ERROR})


@dataclass(frozen=True, kw_only=True)
class FailedRun(Plan):
    """A run that did not complete. Its plan has no effects."""

    #: Says what happened.
    text: str
    #: The branch for unfinished work.
    branch: str = ""
    #: The commit that the run pushed before it failed; the comment's marker records it.
    pushed_commit: str = ""
    #: Whether the text goes below what the run has written before.
    adds: bool = False
    #: A shorter text for that place, without what is above it already.
    text_below: str = ""


def find_waiting_run(writer: GitHubWriter, issue: int) -> Marker | None:
    """Return the run that asks on the issue to approve its plan; None if there is none or GitHub does not answer."""
    try:
        asking = find_asking_comment(writer.comments(issue), writer.viewer(), issue=issue)
    except BoundaryError:
        return None
    return asking.marker if asking else None


def report_failure(run: FailedRun, writer: GitHubWriter, *, pusher: BundlePush | None = None) -> FailureReported | None:
    """Write or update the run's comment; returns None if there is nothing to do. Errors of GitHub are not raised but
    described in the report.

    If writing stopped halfway, the text is added to the comment that this run has already written, because that may
    say which setting to change. A person who may not start a run causes no comment. `pusher` is only used with
    `on-failure: push-branch`.
    """
    github, settings = run.github, run.settings
    waits = run.outcome is Outcome.AWAITING_APPROVAL
    if settings.on_failure is not OnFailure.PUSH_BRANCH or waits:
        pusher = None
    wanted = waits or settings.on_failure is not OnFailure.NOTHING
    comments = wanted and run.issue is not None and github.comments
    if run.outcome in SILENT_OUTCOMES or not github.enabled or not (pusher or comments):
        return None
    effects = EffectWriter(run, writer, pusher)
    pushed: Pushed | None = None
    work_note = url = ""
    try:
        effects.follow_repository()
        if refusal := check_actor(writer, settings):
            return FailureReported(detail=refusal)
        if pusher:
            try:
                pushed = effects.push(PushBranch(branch=run.branch))
                work_note = f"The unfinished work is kept on the branch `{pushed.branch}`."
            except BoundaryError as exc:
                work_note = f"The unfinished work could not be kept on a branch: {exc}"
        detail = work_note
        if comments:
            own = effects.own_comment()
            before = ""
            if own and own.marker.run == marker_word(run.run_id) and not is_progress(own.comment.body):
                before = own.comment.body if run.adds or run.outcome in BROKEN_OFF else ""
            text = run.text_below if before and run.text_below else run.text
            body = _comment_body(text, work_note, run.output_filter, before=before)
            url = effects.write_comment(body, own, commit=pushed.commit if pushed else run.pushed_commit).url
            detail = "The run's comment says what happened."
    except BoundaryError as exc:
        detail = " ".join(filter(None, (work_note, f"The failure could not be reported on the issue: {exc}")))
    branch, commit = (pushed.branch, pushed.commit) if pushed else ("", "")
    return FailureReported(detail=detail, url=url, branch=branch, commit=commit, spent=effects.spent)


def _comment_body(text: str, work_note: str, output_filter: OutputFilter, *, before: str) -> str:
    """Return the comment about what happened and where the work is, below the text `before` if both fit."""
    work_note = filter_text(work_note, output_filter, limit=LONGEST_WORK_NOTE)
    text = filter_text(text, output_filter, limit=LONGEST_TEXT // 2 - len(work_note))
    body = "\n\n".join(part for part in (text, work_note) if part)
    if before and len(before) + len(body) < LONGEST_TEXT:
        return f"{without_marker(before)}\n\n---\n\n{body}"
    return body


def confirm_receipts(
    github: GitHub, receipts: Sequence[Receipt], *, run: str, agent: str, issue: int | None, follow_up: FollowUp | None
) -> tuple[Receipt, ...]:
    """Return the receipts of this run that GitHub confirms. A run folder may be forged, and the names in its receipts
    go into our comment and into outputs. Receipts without names need no confirmation; without an answer from GitHub,
    the others do not count. An unconfirmed effect is written again, which changes nothing if it was complete."""
    named = {receipt.kind: receipt for receipt in receipts}
    pushed, opened = named.get(EffectKind.PUSH_BRANCH), named.get(EffectKind.OPEN_PULL_REQUEST)
    followed = follow_up.url if follow_up else ""
    confirmed = [receipt for receipt in receipts if _names_nothing(receipt, followed)]
    number = follow_up.pull_request if follow_up else opened.number if opened else None
    url = followed or (opened.url if opened else "")
    if pushed and number and _is_own_push(github, pushed, number, url):
        confirmed += [pushed, *([opened] if opened else [])]
    for kind in EffectKind.POST_COMMENT, EffectKind.SUBMIT_REVIEW:
        text = named.get(kind)
        if text and issue and _is_own_text(github, text, run=run, agent=agent, issue=issue):
            confirmed.append(text)
    return tuple(receipt for receipt in receipts if receipt in confirmed)


def _names_nothing(receipt: Receipt, followed: str) -> bool:
    """Return whether a receipt leads nowhere but to the pull request that is followed up."""
    texts = EffectKind.POST_COMMENT, EffectKind.SUBMIT_REVIEW
    with_names = (EffectKind.PUSH_BRANCH, EffectKind.OPEN_PULL_REQUEST, *texts)
    names = receipt.number, receipt.branch, receipt.commit
    return receipt.kind not in with_names and not any(names) and receipt.url in ("", followed)


def _is_own_push(github: GitHub, pushed: Receipt, number: int, url: str) -> bool:
    """Return whether our account opened this pull request from the branch that was pushed, and it has the commit."""
    try:
        pull = github.pull_request(number)
        return (
            (pull.head, pull.url) == (pushed.branch, url)
            and pushed.url == f"{url.rpartition('/pull/')[0]}/tree/{pushed.branch}"
            and pull.author_id == github.viewer().id
            and (
                pull.head_commit == pushed.commit
                or any(commit.oid == pushed.commit for commit in github.pull_request_commits(number))
            )
        )
    except StepflowError:
        return False


def _is_own_text(github: GitHub, receipt: Receipt, *, run: str, agent: str, issue: int) -> bool:
    """Return whether the receipt leads to our account's comment or review of this run."""
    try:
        if receipt.kind is EffectKind.POST_COMMENT:
            texts: tuple[Comment, ...] = github.comments(issue)
        else:
            # A pull request keeps the reviews of earlier runs, and the issue only the newest comment.
            texts = tuple(each for each in github.reviews(issue) if each.url == receipt.url)
        own = find_own_comment(texts, github.viewer(), agent=agent, issue=issue)
    except StepflowError:
        return False
    return own is not None and own.marker.run == marker_word(run) and own.comment.url == receipt.url
