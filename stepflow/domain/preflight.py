"""What can be known about a run before a token is spent (cli.md `stepflow preflight`).

Takes: nothing. Gives: `Preflight`, one row per thing that was looked at.
May touch: nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from stepflow.domain.words import Outcome


class CheckState(StrEnum):
    """`unknown`: nobody may ask, or nobody was asked; the row says where to look."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class Check:
    """One row. `outcome` is how a run would end if this failed."""

    name: str
    state: CheckState
    detail: str = ""
    outcome: Outcome = Outcome.REFUSED


@dataclass(frozen=True, kw_only=True)
class Preflight:
    """The rows in order, for one agent."""

    agent: str
    checks: tuple[Check, ...]

    @property
    def failed(self) -> tuple[Check, ...]:
        """The rows that stand in the way of a run."""
        return tuple(check for check in self.checks if check.state is CheckState.FAILED)

    @property
    def outcome(self) -> Outcome:
        """How a run would end now, as far as can be known: by what comes first."""
        return self.failed[0].outcome if self.failed else Outcome.COMPLETED
