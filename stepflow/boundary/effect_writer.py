"""Writes the effects of a plan to GitHub, one at a time. Each write first looks at what is there, so that repeating it
changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, assert_never
from urllib.parse import quote

from stepflow.boundary.bundle_push import BundlePush, Pushed
from stepflow.boundary.git import GitFailed
from stepflow.boundary.github_failures import FORBIDDEN, NOT_FOUND, UNPROCESSABLE, WriteFailed
from stepflow.boundary.github_types import Comment, PullRequest, Release, ReviewThread
from stepflow.boundary.own_texts import (
    Marker,
    OwnComment,
    branch_lines,
    edited_lines,
    find_costliest,
    find_own_comment,
    make_marker,
    mark_body,
    mark_comment,
    marker_word,
    pull_request_lines,
    spent_on_issue,
    today,
    update_text,
    whole_cost,
    workflow_lines,
)
from stepflow.boundary.review import ReviewSubmission
from stepflow.boundary.settings import Plan
from stepflow.domain.agent.agent_settings import IssueContext
from stepflow.domain.effect import (
    AddLabels,
    AnswerThreads,
    CloseIssue,
    CreateRelease,
    DispatchWorkflow,
    Effect,
    EffectKind,
    EffectStatus,
    OpenPullRequest,
    PostComment,
    PushBranch,
    Receipt,
    RemoveLabels,
    SubmitReview,
    ThreadReply,
)
from stepflow.domain.run import FollowUp
from stepflow.domain.text import Spent, count
from stepflow.domain.words import Outcome
from stepflow.errors import BoundaryError, Refused

if TYPE_CHECKING:
    from stepflow.boundary.github_writer import GitHubWriter

#: Effects that are left out after a forbidden pull request, so that nothing looks finished.
_NEEDS_PULL_REQUEST = (EffectKind.CREATE_RELEASE, EffectKind.CLOSE_ISSUE)
_WRITTEN = (EffectStatus.APPLIED, EffectStatus.SKIPPED)
_FORBIDDEN_REASON = (
    "GitHub did not allow this token to open a pull request; the commits are on their branch. Turn on 'Allow GitHub "
    "Actions to create and approve pull requests' (Settings → Actions → General) and give the job "
    "`pull-requests: write`."
)


@dataclass(frozen=True, kw_only=True)
class ApplyResult:
    """The result of applying a plan."""

    #: Completed, boundary_failed or refused.
    outcome: Outcome
    reason: str = ""
    #: The cost of all runs on the issue; None if nobody looked.
    spent: Spent | None = None
    #: Whether the run's commits are on their branch.
    is_pushed: bool = False
    #: What GitHub rejected although its effect was applied.
    warnings: tuple[str, ...] = ()


class EffectWriter:
    """Writes the effects of one plan. `receipts` are those of the effects so far: later effects name earlier ones."""

    def __init__(
        self, plan: Plan, writer: GitHubWriter, pusher: BundlePush | None, done: Sequence[Receipt] = ()
    ) -> None:
        self._plan, self._writer, self._pusher = plan, writer, pusher
        self._retry_policy = writer.retry_policy
        self.receipts = {receipt.kind: receipt for receipt in done if receipt.status in _WRITTEN}
        failed_after_comment = EffectKind.DISPATCH_WORKFLOW, EffectStatus.FAILED
        if any(
            receipt.status is EffectStatus.FORBIDDEN or (receipt.kind, receipt.status) == failed_after_comment
            for receipt in done
        ):
            # The comment says what failed.
            self.receipts.pop(EffectKind.POST_COMMENT, None)
        self._costliest: OwnComment | None = None
        #: What all runs on the issue have cost, known once our comment was looked for.
        self.spent: Spent | None = None
        self._warnings: list[str] = []

    @property
    def issue(self) -> int:
        """The number of the run's issue."""
        if self._plan.issue is None:
            raise BoundaryError("The plan writes to an issue, but the run has none.")
        return self._plan.issue.number

    def is_due(self, effect: Effect) -> bool:
        """Return False for an effect that was written, or that needs the pull request that GitHub forbade."""
        return effect.kind not in self.receipts and not (self._forbidden and effect.kind in _NEEDS_PULL_REQUEST)

    def is_closed(self) -> bool:
        """Return whether the issue is closed."""
        return self._writer.issue(self.issue).state == "closed"

    def read_back(self, expected: str | None) -> ApplyResult:
        """Return the result of a plan that was written, after checking that the issue is in the `expected` state."""
        if self._forbidden:
            return self.result(Outcome.BOUNDARY_FAILED, _FORBIDDEN_REASON)
        if self._plan.reads_back:
            state = self._writer.issue(self.issue).state
            if expected and state != expected:
                reason = f"Issue #{self.issue} should be {expected} now, but GitHub says it is {state}."
                return self.result(Outcome.BOUNDARY_FAILED, reason)
        return self.result(Outcome.COMPLETED)

    def result(self, outcome: Outcome, reason: str = "") -> ApplyResult:
        """Return the result, with what is known of the cost by now."""
        pushed = self.receipts.get(EffectKind.PUSH_BRANCH)
        is_pushed = pushed is not None and pushed.status in _WRITTEN
        warnings = tuple(self._warnings)
        return ApplyResult(outcome=outcome, reason=reason, spent=self.spent, is_pushed=is_pushed, warnings=warnings)

    def write(self, effect: Effect) -> Receipt:  # noqa: PLR0911 - one return per effect is the table
        """Write one effect. Raises `BoundaryError`, and `Refused` when the commits may not leave."""
        match effect:
            case PushBranch():
                return self._push_branch(effect)
            case OpenPullRequest():
                return self._open_pull_request(effect)
            case AnswerThreads():
                return self._answer_threads(effect)
            case SubmitReview():
                return self._submit_review(effect)
            case PostComment():
                return self._post_comment(effect)
            case AddLabels():
                return self._add_labels(effect)
            case RemoveLabels():
                return self._remove_labels(effect)
            case CreateRelease():
                return self._create_release(effect)
            case CloseIssue():
                return self._close_issue(effect)
            case DispatchWorkflow():
                return self._dispatch_workflow(effect)
            case _:
                assert_never(effect)

    def own_comment(self) -> OwnComment | None:
        """Return our earlier comment on the issue."""
        if self._plan.issue is None:
            return None
        plan, comments, viewer = self._plan, self._writer.comments(self.issue), self._writer.viewer()
        texts = (*comments, *(self._writer.reviews(self.issue) if plan.reviewed else ()))
        before = spent_on_issue(texts, viewer, issue=self.issue, run=plan.run_id)
        self._costliest = find_costliest(texts, viewer, agent=plan.agent, issue=self.issue)
        self.spent = before + whole_cost(self._costliest, run=plan.run_id, cost=plan.cost)
        return find_own_comment(comments, viewer, agent=plan.agent, issue=self.issue)

    def follow_repository(self, *, has_moved: bool = False) -> bool:
        """Find the repository of the run by its id, or by its name if git says that it `has_moved`, and turn to its
        present name. Returns whether that is another one than before."""
        settings = self._plan.settings
        if settings.repository_id is None and not has_moved:
            return False
        name = self._writer.locate(settings.repository_id).full_name
        if name.casefold() == settings.repository.casefold():
            return False
        self._plan = replace(self._plan, settings=replace(settings, repository=name))
        if self._pusher:
            self._pusher = replace(self._pusher, remote=self._pusher.remote.moved_to(name))
        self._warnings.append(f"{settings.repository} is called {name} now, and the run has written there.")
        return True

    def push(self, effect: PushBranch) -> Pushed:
        """Push the run's commits, unless the branch has them already. Git follows no redirect with a token, so GitHub's
        API is asked for the repository's present address."""
        try:
            return self._push(effect)
        except GitFailed as exc:
            if not exc.moved or not self.follow_repository(has_moved=True):
                raise
        return self._push(effect)

    def _push(self, effect: PushBranch) -> Pushed:
        pusher, author = self._pusher, self._writer.viewer()
        if pusher is None:
            raise BoundaryError("The plan pushes a branch, but no commits were handed over.")
        return self._retry_policy.repeat(
            lambda: pusher.push(effect.branch, author=author, fast_forward=effect.fast_forward)
        )

    def write_comment(self, text: str, own: OwnComment | None, *, commit: str) -> Comment:
        """Post the run's comment, or update our existing one. `commit` is the tip that was pushed."""
        issue, marker = self.issue, self._marker(own, commit)
        body = mark_comment(text, marker)

        def find_posted() -> Comment | None:
            """Return the comment that this run posted although the answer was lost."""
            comments = self._writer.comments(issue)
            newest = find_own_comment(comments, self._writer.viewer(), agent=marker.agent, issue=issue)
            return newest.comment if newest and newest.marker.run == marker.run else None

        if own is None:
            return self._retry_policy.write(lambda: self._writer.create_comment(issue, body), find=find_posted)
        return self._writer.update_comment(own.comment.id, body)

    def _marker(self, own: OwnComment | None, commit: str) -> Marker:
        """Return the marker of a text of this run. Its costs build on the text of this agent that knows of the most."""
        plan, known = self._plan, self._costliest or own
        facts = {"run": plan.run_id, "agent": plan.agent, "commit": commit, "day": self._today}
        return make_marker(known, issue=self.issue, cost=plan.cost, record=plan.record(self._today), **facts)

    @property
    def _today(self) -> str:
        return today(self._retry_policy.clock)

    def _push_branch(self, effect: PushBranch) -> Receipt:
        if self._plan.follow_up:
            self._demand_open(self._plan.follow_up)
        pushed = self.push(effect)
        receipt = _confirm(
            effect,
            f"{pushed.branch} ({pushed.note})" if pushed.note else pushed.branch,
            url=f"{self._plan.settings.repository_url}/tree/{pushed.branch}",
        )
        return replace(receipt, branch=pushed.branch, commit=pushed.commit)

    def _demand_open(self, follow_up: FollowUp) -> None:
        """Raise `Refused` if the pull request was merged or closed while the run worked. If the token may not read it,
        only the branch is checked."""
        try:
            pull = self._writer.pull_request(follow_up.pull_request)
        except WriteFailed as exc:
            if exc.status not in (FORBIDDEN, NOT_FOUND):
                raise
            return
        if pull.state != "open":
            end = "merged" if pull.merged_at else "closed"
            raise Refused(
                f"pull request #{pull.number} was {end} while the run worked on it, so nothing was pushed.",
                hint="Reopen it and start the run again with a comment `/stepflow run`, or put the label on the issue "
                "again for a new pull request.",
            )

    def _answer_threads(self, effect: AnswerThreads) -> Receipt:
        """Reply once in each thread, and resolve those that were applied. Threads that were deleted, or that belong to
        another pull request (which only a forged run folder names), are left out."""
        threads = {thread.id: thread for thread in self._writer.review_threads(self._follow_up.pull_request)}
        replies = [reply for reply in effect.replies if reply.thread in threads]
        for reply in replies:
            self._answer_thread(threads[reply.thread], reply)
        detail = f"replied in {count(len(replies), 'thread')}, resolved {sum(reply.applied for reply in replies)}"
        return _confirm(effect, detail, url=self._follow_up.url)

    def _answer_thread(self, thread: ReviewThread, reply: ThreadReply) -> None:
        viewer, marker = self._writer.viewer(), f"<!-- stepflow run={marker_word(self._plan.run_id)} -->"

        def has_reply(thread: ReviewThread) -> bool:
            return any(each.author_id == viewer.id and each.body.endswith(marker) for each in thread.comments)

        if not has_reply(thread):
            body = f"{reply.text(self._commit)}\n\n{marker}"
            self._retry_policy.ensure(
                lambda: self._writer.reply_to_thread(thread.id, body),
                done=lambda: has_reply(self._writer.review_thread(thread.id)),
            )
        if reply.applied and not thread.is_resolved:
            self._writer.resolve_thread(thread.id)

    def _submit_review(self, effect: SubmitReview) -> Receipt:
        if self._plan.reviewed is None:
            raise BoundaryError("The plan submits a review, but the run reviews no pull request.")
        pull, own = self._plan.reviewed, self.own_comment()
        return ReviewSubmission(
            writer=self._writer,
            pull=pull,
            effect=effect,
            marker=self._marker(own, pull.head),
            comment=lambda text: self.write_comment(text, own, commit=pull.head),
            warnings=self._warnings,
        ).submit()

    def _post_comment(self, effect: PostComment) -> Receipt:
        own = self.own_comment()
        text = "\n\n".join((effect.body, *self._lines_below()))
        comment = self.write_comment(text, own, commit=self._commit)
        return _confirm(effect, "updated" if own else "posted", url=comment.url, number=comment.id)

    def _lines_below(self) -> tuple[str, ...]:
        """Return the engine's own lines below the text of the comment."""
        planned = next((effect for effect in self._plan.effects if isinstance(effect, PushBranch)), None)
        pushed = self.receipts.get(EffectKind.PUSH_BRANCH)
        lines = branch_lines(planned.branch, pushed.branch) if planned and pushed else ()
        if opened := self.receipts.get(EffectKind.OPEN_PULL_REQUEST):
            lines += pull_request_lines(opened, self._writer.viewer())
        if self._plan.follow_up:
            lines += (f"Pull request: #{self._plan.follow_up.pull_request}",)
        dispatch = next((effect for effect in self._plan.effects if isinstance(effect, DispatchWorkflow)), None)
        if dispatch and pushed:
            lines += workflow_lines(dispatch.workflow, pushed, self._plan.settings.repository_url)
        if self._plan.issue and self._plan.settings.issue_text_from_event:
            with suppress(BoundaryError):
                lines += edited_lines(self._plan.issue, self._writer.issue(self.issue))
        return lines

    def _open_pull_request(self, effect: OpenPullRequest) -> Receipt:
        """Open the pull request, or update our open one; somebody else's is left alone. For a private repository GitHub
        answers 404 if a permission is missing."""
        branch, base = self.receipts[EffectKind.PUSH_BRANCH].branch, self._base
        try:
            return self._write_pull_request(effect, branch, base)
        except WriteFailed as exc:
            if exc.status not in (FORBIDDEN, NOT_FOUND):
                raise
            url = f"{self._plan.settings.repository_url}/compare/{quote(base)}...{quote(branch)}?expand=1"
            return Receipt(kind=effect.kind, status=EffectStatus.FORBIDDEN, detail=exc.message, url=url)

    def _write_pull_request(self, effect: OpenPullRequest, branch: str, base: str) -> Receipt:
        def existing() -> PullRequest | None:
            return next((pull for pull in self._writer.open_pull_requests(branch) if pull.base == base), None)

        def existing_own() -> PullRequest | None:
            pull = existing()
            return pull if pull and pull.author_id == self._writer.viewer().id else None

        if pull := existing():
            return self._update_pull_request(effect, pull)
        try:
            created = self._retry_policy.write(
                lambda: self._create_pull_request(effect, branch, base), find=existing_own
            )
        except WriteFailed as exc:
            if exc.status == UNPROCESSABLE and (pull := existing()):
                # Somebody opened it after we looked.
                return self._update_pull_request(effect, pull)
            raise
        return _confirm(effect, f"opened #{created.number}", url=created.url, number=created.number)

    def _create_pull_request(self, effect: OpenPullRequest, branch: str, base: str) -> PullRequest:
        """Create the pull request, without draft if the account's plan has no drafts."""
        body = mark_body(effect.title, effect.body, self._plan.author(self._today))
        create = partial(self._writer.create_pull_request, branch=branch, base=base, title=effect.title, body=body)
        try:
            return create(draft=effect.draft)
        except WriteFailed as exc:
            # What was pushed a moment ago may not be known there yet.
            exc.passes |= "head" in exc.invalid_fields
            if not (effect.draft and exc.status == UNPROCESSABLE and "draft" in exc.message.lower()):
                raise
        return create(draft=False)

    def _update_pull_request(self, effect: OpenPullRequest, pull: PullRequest) -> Receipt:
        if pull.author_id != self._writer.viewer().id:
            return _skip(effect, f"#{pull.number} is open already, by others", url=pull.url, number=pull.number)
        title, body = update_text(effect.title, effect.body, pull, self._plan.author(self._today))
        self._writer.update_pull_request(pull.number, title=title, body=body)
        return _confirm(effect, f"updated #{pull.number}", url=pull.url, number=pull.number)

    def _add_labels(self, effect: AddLabels) -> Receipt:
        """Put on the labels that are missing."""
        present = self._labels()
        if not (wanted := tuple(label for label in effect.labels if label.casefold() not in present)):
            return _skip(effect, f"already there: {', '.join(effect.labels)}")
        if gone := self._unknown_labels(wanted):
            names = ", ".join(f"`{label}`" for label in gone)
            self._warnings.append(f"{names} not added: the repository has no such label (any more).")
            if not (wanted := tuple(label for label in wanted if label not in gone)):
                return _skip(effect, f"not in the repository: {', '.join(gone)}")
        self._writer.add_labels(self.issue, wanted)
        return _confirm(effect, ", ".join(wanted))

    def _unknown_labels(self, wanted: Sequence[str]) -> tuple[str, ...]:
        """Return the labels that the repository does not have, of an agent that chooses from those it has: GitHub would
        create them. The ones in the agent's definition may be new."""
        github = self._plan.github
        if IssueContext.LABELS not in github.context:
            return ()
        known = {label.casefold() for label in (*github.labels.completion.add, *self._writer.labels())}
        return tuple(label for label in wanted if label.casefold() not in known)

    def _remove_labels(self, effect: RemoveLabels) -> Receipt:
        """Take off the labels that are there."""
        present = self._labels()
        if not (removed := tuple(label for label in effect.labels if label.casefold() in present)):
            return _skip(effect, f"not there: {', '.join(effect.labels)}")
        for label in removed:
            try:
                self._writer.remove_label(self.issue, label)
            except WriteFailed as exc:
                # 404 also means that the token may not see it.
                if exc.status != NOT_FOUND or label.casefold() in self._labels():
                    raise
        return _confirm(effect, ", ".join(removed))

    def _labels(self) -> frozenset[str]:
        return frozenset(label.casefold() for label in self._writer.issue(self.issue).labels)

    def _create_release(self, effect: CreateRelease) -> Receipt:
        """Create the release, unless its tag has one."""
        facts = {"tag": effect.tag, "target": self._base, "name": effect.name, "body": effect.body}

        def existing() -> Release | None:
            return next((release for release in self._writer.releases() if release.tag == effect.tag), None)

        if release := existing():
            return _skip(effect, f"{effect.tag} already has a release", url=release.url)
        created = self._retry_policy.write(
            lambda: self._writer.create_release(**facts, draft=effect.draft), find=existing
        )
        return _confirm(effect, effect.tag, url=created.url)

    def _close_issue(self, effect: CloseIssue) -> Receipt:
        """Close the issue, unless it is."""
        if self.is_closed():
            return _skip(effect, f"#{self.issue} was already closed")
        self._writer.close_issue(self.issue)
        return _confirm(effect, f"#{self.issue}")

    def _dispatch_workflow(self, effect: DispatchWorkflow) -> Receipt:
        """Start the workflow, unless it was started for the pushed commit. The receipt names no address, so a resumed
        run believes it without asking."""
        workflow, pushed = effect.workflow, self.receipts[EffectKind.PUSH_BRANCH]

        def has_started() -> bool:
            return self._writer.was_dispatched(workflow, branch=pushed.branch, commit=pushed.commit)

        try:
            if has_started():
                return _skip(effect, f"{workflow} was already started on {pushed.branch}")
            self._retry_policy.ensure(
                lambda: self._writer.dispatch_workflow(workflow, branch=pushed.branch), done=has_started
            )
        except WriteFailed as exc:
            if exc.status in (FORBIDDEN, NOT_FOUND):
                exc.hint = (
                    f"The job needs the permission `actions: write`, and the default branch needs `{workflow}` with "
                    "the trigger `workflow_dispatch`."
                )
            raise
        return _confirm(effect, f"{workflow} on {pushed.branch}")

    @property
    def _commit(self) -> str:
        """The tip that was pushed; empty where nothing was."""
        pushed = self.receipts.get(EffectKind.PUSH_BRANCH)
        return pushed.commit if pushed else ""

    @property
    def _forbidden(self) -> bool:
        receipt = self.receipts.get(EffectKind.OPEN_PULL_REQUEST)
        return receipt is not None and receipt.status is EffectStatus.FORBIDDEN

    @property
    def _follow_up(self) -> FollowUp:
        if self._plan.follow_up is None:
            raise BoundaryError("The plan answers threads, but the run follows up on no pull request.")
        return self._plan.follow_up

    @property
    def _base(self) -> str:
        return self._plan.base or self._writer.default_branch()


def _confirm(effect: Effect, detail: str, *, url: str = "", number: int | None = None) -> Receipt:
    return Receipt(kind=effect.kind, status=EffectStatus.APPLIED, detail=detail, url=url, number=number)


def _skip(effect: Effect, detail: str, *, url: str = "", number: int | None = None) -> Receipt:
    return replace(_confirm(effect, detail, url=url, number=number), status=EffectStatus.SKIPPED)
