"""Many issues at once: one page of them, and what came of it (action.md "Many issues").

Takes: nothing. Gives: `IssuePage` for a matrix of jobs, `Gathered` for the table at the end.
May touch: nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from stepflow.domain.words import Outcome


@dataclass(frozen=True, kw_only=True)
class PlannedIssue:
    """An issue for a job of its own; `text` is its title and body as they were when it was planned."""

    number: int
    text: str


@dataclass(frozen=True, kw_only=True)
class IssuePage:
    """The issues of one matrix, by number. `waiting` counts those that come after them, which a page that begins
    `after` the last number of this one takes; `requests` were made to find all that out."""

    label: str
    issues: tuple[PlannedIssue, ...] = ()
    waiting: int = 0
    requests: int = 0

    @property
    def after(self) -> int | None:
        """Where the next page begins; None when there is none."""
        return self.issues[-1].number if self.waiting and self.issues else None


@dataclass(frozen=True, kw_only=True)
class IssueResult:
    """What came of one issue. `outcome` is None when its job left no report that can be read; `cost_usd` is None when
    a price is unknown."""

    issue: int | None
    outcome: Outcome | None
    reason: str
    agent: str = ""
    iterations: int = 0
    tokens: int = 0
    cost_usd: float | None = 0.0
    seconds: float = 0.0
    pull_request_url: str = ""


@dataclass(frozen=True, kw_only=True)
class Gathered:
    """What came of all issues, by number."""

    results: tuple[IssueResult, ...]

    @property
    def completed(self) -> int:
        """How many are done."""
        return sum(result.outcome is Outcome.COMPLETED for result in self.results)

    @property
    def cost_usd(self) -> float:
        """What they cost together, as far as it is known."""
        return sum(result.cost_usd or 0.0 for result in self.results)

    @property
    def unpriced(self) -> int:
        """How many cost nobody knows what."""
        return sum(result.cost_usd is None for result in self.results)
