"""Writes one planned effect: where it goes and what goes along with it.

Takes: the plan, a `Writer`, a `Pusher`, the receipts so far. Gives: a receipt per effect.
May touch: what writer and pusher touch (boundary.md "Plan, then apply").
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from stepflow.boundary import github_effects
from stepflow.boundary.comment import OwnComment, find_own_comment, make_marker, marked, spent_on_issue, whole_cost
from stepflow.boundary.comment_write import write_comment
from stepflow.boundary.say import branch_lines, compare_url, edited_lines, pull_request_lines
from stepflow.domain.effect import (
    AddLabels,
    CloseIssue,
    CreateRelease,
    Effect,
    EffectKind,
    EffectStatus,
    OpenPullRequest,
    PostComment,
    PushBranch,
    Receipt,
    RemoveLabels,
)
from stepflow.errors import BoundaryError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepflow.boundary.patience import Patience
    from stepflow.boundary.plan import Plan
    from stepflow.boundary.writer import Pusher, Writer
    from stepflow.domain.spent import Spent


class EffectWriter:
    """Writes the effects of one plan. Reads the receipts that its caller collects: later effects name earlier ones."""

    def __init__(
        self,
        plan: Plan,
        writer: Writer,
        pusher: Pusher | None,
        receipts: Mapping[EffectKind, Receipt],
        patience: Patience,
    ) -> None:
        self._plan, self._writer, self._pusher, self._receipts = plan, writer, pusher, receipts
        self._patience = patience
        #: What all runs on the issue have cost, known when our comment was looked for.
        self.spent: Spent | None = None

    def write(self, effect: Effect) -> Receipt:  # noqa: PLR0911 - one return per effect is the table
        """Write one effect. Raises `BoundaryError`, and `Refused` when the commits may not leave."""
        match effect:
            case PushBranch():
                return self._push(effect)
            case OpenPullRequest():
                return self._open_pull_request(effect)
            case PostComment():
                return self._post_comment(effect)
            case AddLabels():
                return github_effects.add_labels(effect, self._writer, self._patience, self.issue)
            case RemoveLabels():
                return github_effects.remove_labels(effect, self._writer, self._patience, self.issue)
            case CreateRelease():
                return github_effects.create_release(effect, self._writer, self._patience, target=self._base)
            case CloseIssue():
                return github_effects.close_issue(self._writer, self._patience, self.issue)
            case _:
                assert_never(effect)

    def _push(self, effect: PushBranch) -> Receipt:
        """The receipt's detail is the name of the branch that the commits are on."""
        if self._pusher is None:
            raise BoundaryError("The plan pushes a branch, but no commits were handed over.")
        own, pusher, author = self._own_comment(), self._pusher, self._writer.viewer()
        # Pushing looks at the branch first: one that has the commit already is left alone.
        pushed = self._patience.repeat(
            lambda: pusher.push(effect.branch, author=author, replaces=own.pushed_commit if own else None)
        )
        return Receipt(
            kind=effect.kind,
            status=EffectStatus.APPLIED,
            detail=pushed.branch,
            url=f"{self._plan.settings.repository_url}/tree/{pushed.branch}",
            commit=pushed.commit,
        )

    def _open_pull_request(self, effect: OpenPullRequest) -> Receipt:
        branch, base = self._receipts[EffectKind.PUSH_BRANCH].detail, self._base
        receipt = github_effects.open_pull_request(effect, self._writer, self._patience, branch=branch, base=base)
        if receipt.status is EffectStatus.FORBIDDEN:
            return replace(receipt, url=compare_url(self._plan.settings.repository_url, base, branch))
        return receipt

    def _post_comment(self, effect: PostComment) -> Receipt:
        own, pushed = self._own_comment(), self._receipts.get(EffectKind.PUSH_BRANCH)
        plan, commit = self._plan, pushed.commit if pushed else ""
        marker = make_marker(own, run=plan.run_id, agent=plan.agent, issue=self.issue, commit=commit, cost=plan.cost)
        body = marked("\n\n".join((effect.body, *self._lines())), marker)
        written = write_comment(self._writer, self._patience, self.issue, body, own=own, marker=marker)
        detail = "updated" if own else "posted"
        return Receipt(kind=effect.kind, status=EffectStatus.APPLIED, detail=detail, url=written.url, number=written.id)

    def _lines(self) -> tuple[str, ...]:
        lines: tuple[str, ...] = ()
        planned = next((effect for effect in self._plan.effects if isinstance(effect, PushBranch)), None)
        if planned and (pushed := self._receipts.get(EffectKind.PUSH_BRANCH)):
            lines += branch_lines(planned.branch, pushed.detail)
        if opened := self._receipts.get(EffectKind.OPEN_PULL_REQUEST):
            lines += pull_request_lines(opened, self._writer.viewer())
        if self._plan.issue and self._plan.settings.issue_text_from_event:
            lines += edited_lines(self._plan.issue, self._writer.issue(self.issue))
        return lines

    def _own_comment(self) -> OwnComment | None:
        if self._plan.issue is None:
            return None
        comments, viewer = self._writer.comments(self.issue), self._writer.viewer()
        before = spent_on_issue(comments, viewer, issue=self.issue, run=self._plan.run_id)
        own = find_own_comment(comments, viewer, agent=self._plan.agent, issue=self.issue)
        self.spent = before + whole_cost(own, run=self._plan.run_id, cost=self._plan.cost)
        return own

    @property
    def _base(self) -> str:
        return self._plan.base or self._writer.default_branch()

    @property
    def issue(self) -> int:
        """The number of the run's issue."""
        if self._plan.issue is None:
            raise BoundaryError("The plan writes to an issue, but the run has none.")
        return self._plan.issue.number
