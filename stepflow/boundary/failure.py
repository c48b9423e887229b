"""Tells the issue that a run did not complete.

Takes: a `Writer`, the settings, the report's text, perhaps a `Pusher`. Gives: a `FailureReport`.
May touch: what writer and pusher touch (boundary.md "When the run fails"). It labels, closes and opens nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepflow.boundary.actor import check_actor
from stepflow.boundary.comment import (
    find_own_comment,
    make_marker,
    marked,
    spent_on_issue,
    whole_cost,
    without_marker,
)
from stepflow.boundary.comment_write import write_comment
from stepflow.boundary.outlet import LONGEST_TEXT, Outlet, filter_text
from stepflow.boundary.patience import Patience
from stepflow.boundary.plan import branch_name
from stepflow.domain.redact import Redactor
from stepflow.domain.spent import Spent
from stepflow.domain.words import OnFailure, Outcome
from stepflow.errors import BoundaryError

if TYPE_CHECKING:
    from stepflow.boundary.comment import OwnComment
    from stepflow.boundary.settings import BoundarySettings
    from stepflow.boundary.writer import Pushed, Pusher, Writer
    from stepflow.domain.definition import AgentDefinition
    from stepflow.domain.run import RunFacts

#: Outcomes that need no report: nothing was tried, or somebody stopped it.
SILENT_OUTCOMES = frozenset(
    {Outcome.COMPLETED, Outcome.SKIPPED, Outcome.REFUSED, Outcome.CANCELLED, Outcome.INVALID_DEFINITION}
)

#: What may be said about the work that was kept.
LONGEST_KEPT = 4_000

#: Outcomes after which this run's comment may be written already.
BROKEN_OFF = frozenset({Outcome.BOUNDARY_FAILED, Outcome.INTERNAL_ERROR})


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


def report_failure(
    agent: AgentDefinition,
    facts: RunFacts,
    settings: BoundarySettings,
    *,
    outcome: Outcome,
    text: str,
    writer: Writer,
    lost: bool = False,
    pusher: Pusher | None = None,
    pushed_commit: str = "",
    redactor: Redactor | None = None,
    patience: Patience | None = None,
    cost: Spent | None = None,
) -> FailureReport | None:
    """Update the run's one comment with `text`; None when there is nothing to do. Never raises for GitHub's sake.

    When the boundary was broken off, a comment that this run has already written is added to, not replaced: it may
    say which setting to change. `lost`: the flow could not go on, above all because the sandbox had ended; such a
    refusal is told as well. `pusher` is used with `on-failure: push-branch` alone. `pushed_commit` is
    what this run had pushed before it failed: the marker must know our own tip. `cost` is what this run has cost.
    """
    keeps = settings.on_failure is OnFailure.PUSH_BRANCH and pusher is not None
    tells = settings.report_failures and facts.issue is not None and _may_comment(agent)
    silent = outcome in SILENT_OUTCOMES and not (lost and outcome is Outcome.REFUSED)
    if silent or not agent.github.enabled or not (keeps or tells):
        return None
    failure = _Failure(agent, facts, settings, writer=writer, patience=patience or Patience(), cost=cost or Spent())
    try:
        if refusal := check_actor(writer, settings):
            return FailureReport(detail=refusal)
        own = failure.own_comment()
        pushed, kept = failure.keep_work(pusher, own) if keeps and pusher else (None, "")
        if not tells:
            return failure.reported(kept, pushed=pushed)
        outlet = Outlet(allowed_hosts=settings.link_hosts, redactor=redactor or Redactor())
        kept = filter_text(kept, outlet, limit=LONGEST_KEPT)
        text = filter_text(text, outlet, limit=LONGEST_TEXT // 2 - len(kept))
        body = "\n\n".join(part for part in (text, kept) if part)
        commit = pushed.commit if pushed else pushed_commit
        url = failure.write_comment(own, body, commit, adds=outcome in BROKEN_OFF)
        return failure.reported("The run's comment says what happened.", url=url, pushed=pushed)
    except BoundaryError as exc:
        return FailureReport(detail=f"The failure could not be reported on the issue: {exc}")


def _may_comment(agent: AgentDefinition) -> bool:
    return agent.github.comment and "comment" in agent.github.allowed_effects


class _Failure:
    """One failed run being told of."""

    def __init__(
        self,
        agent: AgentDefinition,
        facts: RunFacts,
        settings: BoundarySettings,
        *,
        writer: Writer,
        patience: Patience,
        cost: Spent,
    ) -> None:
        self._agent, self._facts, self._settings, self._writer = agent, facts, settings, writer
        self._patience, self._cost = patience, cost
        self.spent: Spent | None = None

    def own_comment(self) -> OwnComment | None:
        """Our earlier comment on the issue."""
        if self._facts.issue is None:
            return None
        number = self._facts.issue.number
        comments, viewer = self._writer.comments(number), self._writer.viewer()
        before = spent_on_issue(comments, viewer, issue=number, run=self._facts.run_id)
        own = find_own_comment(comments, viewer, agent=self._agent.name, issue=number)
        self.spent = before + whole_cost(own, run=self._facts.run_id, cost=self._cost)
        return own

    def keep_work(self, pusher: Pusher, own: OwnComment | None) -> tuple[Pushed | None, str]:
        """Push the unfinished work to the run's branch; what came of it as a sentence."""
        branch = branch_name(self._agent, self._facts, self._settings)
        try:
            author = self._writer.viewer()
            pushed = self._patience.repeat(
                lambda: pusher.push(branch, author=author, replaces=own.pushed_commit if own else None)
            )
        except BoundaryError as exc:
            return None, f"The unfinished work could not be kept on a branch: {exc}"
        return pushed, f"The unfinished work is kept on the branch `{pushed.branch}`."

    def reported(self, detail: str, *, url: str = "", pushed: Pushed | None) -> FailureReport:
        """What was done."""
        branch, commit = (pushed.branch, pushed.commit) if pushed else ("", "")
        return FailureReport(detail=detail, url=url, branch=branch, commit=commit, spent=self.spent)

    def write_comment(self, own: OwnComment | None, body: str, pushed_commit: str, *, adds: bool) -> str:
        """Write or update the one comment; its address."""
        number = self._facts.issue.number if self._facts.issue else 0
        facts, name = self._facts, self._agent.name
        marker = make_marker(own, run=facts.run_id, agent=name, issue=number, commit=pushed_commit, cost=self._cost)
        if own and adds and own.marker.run == marker.run and len(own.body) + len(body) < LONGEST_TEXT:
            body = f"{without_marker(own.body)}\n\n---\n\n{body}"
        text = marked(body, marker)
        return write_comment(self._writer, self._patience, number, text, own=own, marker=marker).url
