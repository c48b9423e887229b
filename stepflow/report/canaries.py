"""The self-test of the sandbox in a few words (security.md).

Takes: each place that was tried with what became of it. Gives: counts, and the names of what was reached.
May touch: nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepflow.domain.figures import count
from stepflow.domain.words import CanaryState

if TYPE_CHECKING:
    from collections.abc import Mapping


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
