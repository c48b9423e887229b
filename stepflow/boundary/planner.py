"""Plans the single effects of a completed run.

Takes: the agent, the facts, the settings, the answer's wishes, the commits. Gives: effects, and warnings beside them.
May touch: nothing. Limits are counted here: one comment, one pull request, one release, one close, ten labels.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stepflow.boundary.labels import choose_labels
from stepflow.boundary.outlet import LONGEST_TEXT, Outlet, filter_line, filter_text
from stepflow.domain.effect import AddLabels, CreateRelease, Effect, OpenPullRequest, PostComment, RemoveLabels
from stepflow.domain.words import CloseBy, ClosureAction, VerdictType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stepflow.boundary.asked import Asked
    from stepflow.boundary.settings import BoundarySettings
    from stepflow.domain.definition import AgentDefinition, GitHubSettings
    from stepflow.domain.run import RunFacts

MOST_FILES_NAMED = 20
LONGEST_REMOVED = 8_000
_TAG = re.compile(r"[A-Za-z0-9](?!.*\.\.)[A-Za-z0-9._/+-]{0,99}(?<![./])")


@dataclass(frozen=True, kw_only=True)
class CommitsInfo:
    """The commits that the checkout holds beyond the base: how many, files that were left uncommitted, files that the
    validators made, and what was found out about the validators that passed them (security.md cases 14 and 15)."""

    count: int
    uncommitted: tuple[str, ...] = ()
    created_by_checks: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Planner:
    """One run's planning. `warnings` grows as effects are planned."""

    agent: AgentDefinition
    facts: RunFacts
    settings: BoundarySettings
    outlet: Outlet
    asked: Asked
    commits: CommitsInfo | None
    warnings: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.warnings.extend(self.asked.warnings)

    @property
    def base(self) -> str:
        """The branch that a pull request goes to; empty means the default branch."""
        return self.settings.base_branch or self._github.pull_request.base or self.facts.base_branch

    def opens_pull_request(self) -> bool:
        """True when there are commits and the agent may open a pull request."""
        if not self.commits or not self.commits.count:
            return False
        if self._github.pull_request.enabled and self._allows("pull_request"):
            return True
        self.warnings.append("The commits of this run stay in the checkout: agent.json allows no pull request.")
        return False

    def pull_request(self, branch: str, by_merge: bool) -> OpenPullRequest:
        """The pull request; the engine's last line says what it belongs to."""
        asked, issue = self.asked.pull_request, self.facts.issue
        given = [asked.draft, self.settings.draft, self._github.pull_request.draft]
        own_title = issue.title if issue and issue.title.strip() else f"{self.agent.display_name}: {self.facts.run_id}"
        title = filter_line(asked.title or self._github.pull_request.title or own_title, self.outlet)
        reference = "" if issue is None else f"{'Closes' if by_merge else 'For'} #{issue.number}. "
        footer = f"{reference}Opened by the stepflow agent `{self.agent.name}`, run `{self.facts.run_id}`."
        text, below = self._text_above(asked.body or "", footer, self._guard_warnings())
        return OpenPullRequest(
            branch=branch,
            base=self.base,
            title=title or branch,
            body=f"{text}\n\n---\n\n{below}" if text else below,
            draft=next(value for value in given if value is not None),
        )

    def comment(self, summary: str, removed: str) -> tuple[PostComment, ...]:
        """The text of the one comment; writing adds links and the marker. What was `removed` from the issue's text is
        told also where the model wrote the comment."""
        if not self.facts.issue:
            if self.asked.comment:
                self.warnings.append("The run has no issue: the answer's comment is not posted.")
            return ()
        if not (self._github.comment and self._allows("comment")):
            return ()
        told = filter_text(removed, self.outlet, limit=LONGEST_REMOVED) if self.asked.comment else ""
        own = (told, self._left_out(), self._guard_warnings())
        text, below = self._text_above(self.asked.comment or summary, *own)
        return (PostComment(body=f"{text}\n\n{below}" if text and below else text or below),)

    def _text_above(self, text: str, *own: str) -> tuple[str, str]:
        """The text, and below it the engine's `own` parts. GitHub takes no body without end: the text gives way, since
        each of those parts is short."""
        below = "\n\n".join(part for part in own if part)
        return filter_text(text, self.outlet, limit=LONGEST_TEXT - len(below)), below

    def _left_out(self) -> str:
        commits = self.commits or CommitsInfo(count=0)
        lines = [
            f"> {what}, so not part of this result: {_named(files)}."
            for what, files in (
                ("Changed but not committed", commits.uncommitted),
                ("Made by the checks", commits.created_by_checks),
            )
            if files
        ]
        return filter_text("\n".join(lines), self.outlet, limit=2_000)

    def _guard_warnings(self) -> str:
        """Whatever the model says about its work, people see what the checks stood on."""
        lines = (f"> ⚠️ {text.replace('`', '')}" for text in (self.commits.warnings if self.commits else ()))
        return filter_text("\n".join(lines), self.outlet, limit=4_000)

    def labels(self) -> tuple[Effect, ...]:
        """Label changes: those of a closure action with labels, and the label that started the run."""
        if not self.facts.issue or not self._allows("labels"):
            return ()
        by_answer = self._action in (ClosureAction.LABEL_ONLY, ClosureAction.LABEL_AND_CLOSE)
        add = (*self._github.labels_add, *self.asked.labels_add) if by_answer else ()
        remove = (*self._github.labels_remove, *self.asked.labels_remove) if by_answer else ()
        changes = choose_labels(add, remove, self._github, self.settings)
        self.warnings.extend(changes.warnings)
        return (
            *((AddLabels(labels=changes.add),) if changes.add else ()),
            *((RemoveLabels(labels=changes.remove),) if changes.remove else ()),
        )

    def release(self) -> tuple[CreateRelease, ...]:
        """A release, where the agent lists that effect."""
        asked = self.asked.release
        if asked is None:
            return ()
        if not self._allows("release"):
            self.warnings.append("No release is created: `allowedEffects` in agent.json does not list `release`.")
            return ()
        if not _TAG.fullmatch(asked.tag):
            self.warnings.append(f"No release is created: {asked.tag[:80]!r} cannot be the name of a tag.")
            return ()
        name = filter_line(asked.name or asked.tag, self.outlet)
        return (
            CreateRelease(tag=asked.tag, name=name, body=filter_text(asked.body or "", self.outlet), draft=asked.draft),
        )

    def closes(self) -> bool:
        """True when the issue is to be closed, by this run or by a merge."""
        wants = self._action in (ClosureAction.CLOSE, ClosureAction.LABEL_AND_CLOSE) and self.facts.issue is not None
        if wants and not self._allows("close"):
            self.warnings.append("The issue stays open: `allowedEffects` in agent.json does not list `close`.")
        return wants and self._allows("close")

    def by_merge(self, opens: bool) -> bool:
        """True when closing is left to the merge of the pull request."""
        if self._github.close_by is CloseBy.MERGE and not opens:
            self.warnings.append("The issue stays open: `closeBy` is `merge` and this run opens no pull request.")
        return self._github.close_by is CloseBy.MERGE or (self._github.close_by is CloseBy.AUTO and opens)

    def _allows(self, effect: str) -> bool:
        return effect in self._github.allowed_effects

    @property
    def _action(self) -> ClosureAction | None:
        default = ClosureAction.CLOSE if self.agent.verdict.type is VerdictType.POLL_STATE else None
        return self.asked.closure_action or self._github.closure_action or default

    @property
    def _github(self) -> GitHubSettings:
        return self.agent.github


def _named(files: Sequence[str]) -> str:
    named = ", ".join(f"`{name.replace('`', '')}`" for name in files[:MOST_FILES_NAMED])
    return named + (f" and {len(files) - MOST_FILES_NAMED} more" if len(files) > MOST_FILES_NAMED else "")
