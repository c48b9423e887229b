"""The words for facts about a run that several reports share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepflow.domain.event import IssueCostSummed, LayerTold, SnapshotFailed
from stepflow.domain.figures import count, usd
from stepflow.domain.spent import Spent
from stepflow.domain.words import CanaryState, Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepflow.domain.event import Event

#: Where a reason arose (flow.md §11); people need not read it when all went well.
PLACES = ("Before the run: ", "Flow loop: ", "Completion loop: ")
_OVER = "No other run may begin on it: raise budget-usd-per-issue if the issue is worth it"


def reached_places(canaries: Mapping[str, str]) -> tuple[str, ...]:
    """Where a tool got that it should not."""
    return tuple(place for place, told in canaries.items() if told.startswith(CanaryState.REACHED))


def places_tried(canaries: Mapping[str, str]) -> int:
    """How many places there were to try on this machine."""
    return sum(told != CanaryState.NOT_HERE for told in canaries.values())


def canaries_told(canaries: Mapping[str, str]) -> str:
    """Such as `14 places tried, none reached`."""
    reached = reached_places(canaries)
    what = f"{len(reached)} reached: {', '.join(reached)}" if reached else "none reached"
    return f"{count(places_tried(canaries), 'place')} tried, {what}"


def canaries_counted(canaries: Mapping[str, str]) -> str:
    """Such as `14 of 14 out of reach`."""
    tried = places_tried(canaries)
    return f"{tried - len(reached_places(canaries))} of {tried} out of reach"


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


def told_reason(outcome: Outcome, reason: str) -> str:
    """The reason for people: where it arose (flow.md §11) says something only when something went wrong."""
    if outcome not in (Outcome.COMPLETED, Outcome.SKIPPED):
        return reason
    return next((reason.removeprefix(place) for place in PLACES if reason.startswith(place)), reason)
