"""Facts about a run as one line for people, in the log and beside the timeline.

Takes: the events that are no part of a step, a plan or an end. Gives: whether it is a warning, and the line.
May touch: nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepflow.domain.event import IssueCostSummed, LayerTold, SnapshotFailed
from stepflow.domain.figures import usd
from stepflow.domain.spent import Spent

if TYPE_CHECKING:
    from stepflow.domain.event import Event

_OVER = "No other run may begin on it: raise budget-usd-per-issue if the issue is worth it"


def fact_told(event: Event) -> tuple[bool, str] | None:
    """Whether a person must know of it, and the line; None for an event that others tell."""
    match event:
        case SnapshotFailed():
            return True, f"[Snapshot] {event.reason}"
        case LayerTold():
            return event.is_warning, f"[Isolation] {event.layer}: {event.told}"
        case IssueCostSummed():
            over = event.usd >= event.budget_usd
            return over, f"[Budget] {issue_cost_told(event)}{f'. {_OVER}' if over else ''}"
        case _:
            return None


def issue_cost_told(event: IssueCostSummed) -> str:
    """The sum against the budget, in words."""
    spent = Spent(usd=event.usd, at_least=event.at_least)
    return f"all runs on this issue: {spent} of {usd(event.budget_usd)}"
