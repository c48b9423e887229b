"""Computes the ledger's figures from what was read, and nothing else."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from statistics import median

from stepflow.domain.reports.ledger import (
    AcceptedOnDay,
    AgentChange,
    AgentFigures,
    Ledger,
    RepositoryHistory,
    RunRecord,
)
from stepflow.domain.text import Spent
from stepflow.domain.words import Outcome

_DIGITS = 6


def compute_ledger(history: RepositoryHistory) -> Ledger:
    """Return the figures of each agent and digest, by agent and the day of its first run."""
    runs = defaultdict[tuple[str, str], list[RunRecord]](list)
    changes = defaultdict[tuple[str, str], list[AgentChange]](list)
    for run in history.runs:
        runs[run.agent, run.record.digest].append(run.record)
    for change in history.changes:
        changes[change.agent, change.digest].append(change)
    first = {version: min(record.day for record in records) for version, records in runs.items()}
    versions = sorted({*runs, *changes}, key=lambda version: (version[0], first.get(version, ""), version[1]))
    return Ledger(
        repository=history.repository,
        account=history.account,
        read_on=history.read_on,
        since=history.since,
        figures=tuple(_figures(*version, runs[version], changes[version]) for version in versions),
        accepted=tuple(_accepted_by_day(history.changes)),
        unlisted_usd=round(history.unlisted.usd, _DIGITS),
        is_unlisted_lower_bound=history.unlisted.at_least,
        other_accounts=history.other_accounts,
    )


def _figures(agent: str, digest: str, runs: Sequence[RunRecord], changes: Sequence[AgentChange]) -> AgentFigures:
    cost = sum((run.cost for run in runs), Spent())
    merged = [change for change in changes if change.merged_on]
    accepted = sum(not change.is_reverted for change in merged)
    minutes = [run.minutes for run in runs if run.minutes is not None and run.outcome is not None]
    return AgentFigures(
        agent=agent,
        digest=digest,
        runs=len(runs),
        completed=sum(run.outcome is Outcome.COMPLETED for run in runs),
        pull_requests=len(changes),
        open=sum(change.is_open for change in changes),
        merged=len(merged),
        merged_untouched=sum(change.is_untouched for change in merged),
        reverted=len(merged) - accepted,
        closed_unmerged=sum(not (change.merged_on or change.is_open) for change in changes),
        accepted=accepted,
        cost_usd=round(cost.usd, _DIGITS),
        is_lower_bound=cost.at_least,
        cost_per_run_usd=_share(cost.usd, len(runs)),
        cost_per_accepted_usd=_share(cost.usd, accepted),
        median_minutes=round(median(minutes), 1) if minutes else None,
    )


def _share(usd: float, number: int) -> float | None:
    return round(usd / number, _DIGITS) if number else None


def _accepted_by_day(changes: Sequence[AgentChange]) -> Iterator[AcceptedOnDay]:
    """Yield the growing number of accepted changes of each version, on each day on which it grew."""
    on_day = Counter(
        (change.merged_on, change.agent, change.digest)
        for change in changes
        if change.merged_on and not change.is_reverted
    )
    total = Counter[tuple[str, str]]()
    for (day, agent, digest), number in sorted(on_day.items()):
        total[agent, digest] += number
        yield AcceptedOnDay(day=day, agent=agent, digest=digest, accepted=total[agent, digest])
