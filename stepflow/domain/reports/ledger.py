"""What the runs of a repository cost and what became of their work: as it was read, and as figures."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date

from stepflow.domain.text import Spent
from stepflow.domain.words import Outcome

#: Digits of a definition's digest in a record.
DIGEST_DIGITS = 12


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """What is recorded on GitHub about one run, whichever comment replaces its own."""

    run: str
    #: The first digits of the digest of the agent's definition.
    digest: str
    #: None while the run is in progress and for one that was killed.
    outcome: Outcome | None
    cost: Spent = field(default_factory=Spent)
    minutes: float = 0.0
    #: The day (UTC) on which it was written last.
    day: str


@dataclass(frozen=True, kw_only=True)
class AgentRun:
    """A run and its agent."""

    agent: str
    record: RunRecord


@dataclass(frozen=True, kw_only=True)
class AgentChange:
    """A pull request of a run, and what became of it."""

    number: int
    agent: str
    digest: str
    #: The day (UTC) of the merge; None if it was not merged.
    merged_on: date | None = None
    is_open: bool = False
    #: Whether every commit is by the account of the runs.
    is_untouched: bool = False
    #: Whether it was reverted within `DAYS_TO_REVERT`.
    is_reverted: bool = False


#: A change that is reverted within this many days after its merge was not accepted.
DAYS_TO_REVERT = 14


@dataclass(frozen=True, kw_only=True)
class RepositoryHistory:
    """What GitHub says about the runs of one account in a repository."""

    repository: str
    #: The account whose comments and pull requests count.
    account: str
    #: When it was read, and from which day on; None for everything.
    read_on: date
    since: date | None = None
    runs: tuple[AgentRun, ...] = ()
    changes: tuple[AgentChange, ...] = ()
    #: The cost of earlier runs that comments know only as a sum.
    unlisted: Spent = field(default_factory=Spent)
    #: Other accounts whose comments look like a run's.
    other_accounts: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class AgentFigures:
    """The figures of one agent in one version. Where `is_lower_bound`, the price of some turns is not known, so every
    cost is at least this much."""

    agent: str
    #: Empty for runs whose old comments do not say it.
    digest: str
    runs: int
    completed: int
    pull_requests: int
    open: int
    merged: int
    #: Merged without a commit by anybody but the account of the runs.
    merged_untouched: int
    reverted: int
    closed_unmerged: int
    #: Merged and not reverted.
    accepted: int
    cost_usd: float
    is_lower_bound: bool
    #: None without a run.
    cost_per_run_usd: float | None
    #: The cost of all runs, by the accepted changes; None without one.
    cost_per_accepted_usd: float | None
    #: None if no run says it.
    median_minutes: float | None


@dataclass(frozen=True, kw_only=True)
class AcceptedOnDay:
    """How many changes of an agent in one version were accepted up to a day, which is the day of a merge."""

    day: date
    agent: str
    digest: str
    accepted: int


@dataclass(frozen=True, kw_only=True)
class Ledger:
    """What the agents of a repository cost and what became of their work. Equal histories give equal ledgers."""

    repository: str
    account: str
    read_on: date
    since: date | None
    figures: tuple[AgentFigures, ...]
    #: Of each agent with several versions, all of them together: two may have worked on one pull request, which counts
    #: for the last.
    totals: tuple[AgentFigures, ...]
    accepted: tuple[AcceptedOnDay, ...]
    #: The cost of runs that no figure includes, since comments know it only as a sum.
    unlisted_usd: float
    is_unlisted_lower_bound: bool
    #: Other accounts whose comments look like a run's, and were not counted.
    other_accounts: tuple[str, ...]
