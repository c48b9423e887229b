"""A repository with runs and pull requests of which everything is known: what its agents cost, and what became of
their work."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from statistics import median

from stepflow.boundary.own_texts import Marker, PullRequestAuthor, mark_body, mark_comment
from stepflow.domain.reports.ledger import RunRecord
from stepflow.domain.text import Spent
from stepflow.domain.words import Outcome
from tests.servers.github_api import State

BOT = "github-actions[bot]"
BOT_ADDRESS = "41898282+github-actions[bot]@users.noreply.github.com"
BEGIN = datetime(2026, 3, 2, 9, tzinfo=UTC)
VERSIONS = [("fixer", "0123456789ab"), ("fixer", "ba9876543210"), ("fixer", "55aa55aa55aa"), ("writer", "00ff00ff00ff")]
FAILURES = (Outcome.VALIDATION_FAILED, Outcome.BUDGET_EXHAUSTED, Outcome.NO_CHANGES, None)
Version = tuple[str, str]


@dataclass
class Truth:
    """The known figures of one version; money in millionths of a dollar."""

    counts: Counter[str] = field(default_factory=Counter)
    micros: int = 0
    minutes: list[float] = field(default_factory=list)

    def figures(self) -> dict[str, object]:
        """As the JSON has them."""
        counted = {name: self.counts[name] for name in NAMES}
        return {
            **counted,
            "cost_usd": self.micros / 1e6,
            "cost_per_run_usd": _share(self.micros, counted["runs"]),
            "cost_per_accepted_usd": _share(self.micros, counted["accepted"]),
            "median_minutes": round(median(self.minutes), 1) if self.minutes else None,
        }


NAMES = (
    *("runs", "completed", "pull_requests", "open", "merged", "merged_untouched", "reverted", "closed_unmerged"),
    "accepted",
)


def _share(micros: int, number: int) -> float | None:
    return round(micros / 1e6 / number, 6) if number else None


@dataclass
class LedgerWorld:
    """A state of the server, and the truth about it."""

    state: State = field(default_factory=lambda: State("o/r"))
    truth: dict[Version, Truth] = field(default_factory=lambda: defaultdict(Truth))

    def add_runs(
        self, issue: int, version: Version, runs: list[tuple[Outcome | None, int, float]], at: datetime
    ) -> None:
        """An issue with the comment of these runs: outcome, cost in millionths of a dollar, minutes."""
        self.records = [
            RunRecord(
                run=f"{issue}-{number}",
                digest=version[1],
                outcome=outcome,
                cost=Spent(usd=micros / 1e6),
                minutes=minutes,
                day=at.date().isoformat(),
            )
            for number, (outcome, micros, minutes) in enumerate(runs)
        ]
        total = sum(micros for _, micros, _ in runs)
        marker = Marker(
            run=self.records[-1].run,
            agent=version[0],
            issue=issue,
            cost=Spent(usd=total / 1e6),
            before=Spent(usd=(total - runs[-1][1]) / 1e6),
            history=tuple(self.records),
        )
        self.state.now = lambda: f"{at:%Y-%m-%dT%H:%M:%SZ}"
        self.state.add_issue(issue, f"Issue {issue}", "It breaks.")
        self.state.add_comment(issue, mark_comment("Done.", marker), BOT)
        known = self.truth[version]
        known.micros += total
        known.counts["runs"] += len(runs)
        known.counts["completed"] += sum(outcome is Outcome.COMPLETED for outcome, _, _ in runs)
        known.minutes += [minutes for outcome, _, minutes in runs if outcome]

    def add_pull(
        self, number: int, issue: int, version: Version, at: datetime, fate: str, *, is_touched: bool = False
    ) -> None:
        """The pull request of the newest run. Its fate: open, closed, merged, or merged and reverted by a commit or a
        pull request, in time or too late."""
        author = PullRequestAuthor(agent=version[0], issue=issue, record=self.records[-1])
        oid, inner = _oid(2 * number), _oid(2 * number + 1)
        commits = [(inner, BOT_ADDRESS), *([("d" * 40, "ann@example.org")] if is_touched else [])]
        self.state.pulls.append(
            {
                **{"number": number, "title": f"Fix {issue}", "body": mark_body("t", "It parses.", author)},
                **{
                    "login": BOT,
                    "head": f"stepflow/{version[0]}/issue-{issue}",
                    "base": "main",
                    "draft": False,
                    "commits": commits,
                },
                **{"created_at": _text(at), "state": "open" if fate == "open" else "closed"},
            }
        )
        known = self.truth[version].counts
        known["pull_requests"] += 1
        if fate in ("open", "closed"):
            known["open" if fate == "open" else "closed_unmerged"] += 1
            return
        merged = at + timedelta(hours=5)
        self.state.pulls[-1] |= {"merged_at": _text(merged), "merge_commit": oid}
        how, _, late = fate.partition(" ")
        reverted = merged + timedelta(days=15 if late else 13)
        if how == "commit":
            self.state.commits.append((_text(reverted), f'Revert "Fix {issue}"\n\nThis reverts commit {oid}.'))
        elif how == "pull":
            self.add_foreign_pull(number + 1_000_000, f"Reverts o/r#{number}", reverted)
        self.state.commits.append((_text(merged), f"Fix {issue} (#{number})"))
        is_reverted = how != "merged" and not late
        known["merged"] += 1
        known["merged_untouched"] += not is_touched
        known["reverted"] += is_reverted
        known["accepted"] += not is_reverted

    def add_foreign_pull(self, number: int, body: str, merged: datetime | None = None, login: str = "ann") -> None:
        """A pull request of a person."""
        facts = {"title": "A change", "login": login, "head": f"h{number}", "base": "main", "draft": False}
        times = {"created_at": _text(merged or BEGIN), "merged_at": _text(merged) if merged else None}
        state = {"state": "closed" if merged else "open", "commits": [("e" * 40, "ann@example.org")]}
        self.state.pulls.append({**facts, **times, **state, "number": number, "body": body})


def _oid(number: int) -> str:
    """A name of a commit that begins like no other."""
    return f"{number * 2_654_435_761 % 2**32:08x}{number:032x}"


def _text(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


FATES = ("open", "closed", "merged", "merged", "merged", "commit", "commit late", "pull", "pull late")


def many_pulls(number: int, seed: int = 1) -> LedgerWorld:
    """So many pull requests of agents, and as many issues."""
    dice, world = random.Random(seed), LedgerWorld()
    for each in range(1, number + 1):
        version, at = dice.choice(VERSIONS), BEGIN + timedelta(hours=2 * each)
        failed = [(dice.choice(FAILURES), dice.randrange(900_000), dice.randrange(300) / 10)] * dice.choice(
            (0, 0, 1, 2)
        )
        done = (Outcome.COMPLETED, dice.randrange(3_000_000), dice.randrange(10, 600) / 10)
        world.add_runs(each, version, [*failed, done], at)
        world.add_pull(number + each, each, version, at, dice.choice(FATES), is_touched=dice.random() < 0.3)
    world.state.commits.sort(reverse=True)
    return world
