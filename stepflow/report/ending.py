"""How a run ended, as its journal tells it, and what only the caller can know.

Takes: events and `ReportFacts`. Gives: outcome, reason and code.
May touch: nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from stepflow.domain.attempt_event import IterationStarted
from stepflow.domain.event import (
    CompletionJudged,
    EffectApplied,
    EffectPlanned,
    FailureReported,
    FlowEnded,
    IssueCostSummed,
    LayerTold,
    Noted,
    RunFinished,
    SnapshotFailed,
    ValidatorRan,
)
from stepflow.domain.problem import Severity
from stepflow.domain.words import CODE_OF_OUTCOME, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from stepflow.domain.event import Event
    from stepflow.domain.problem import Problem

E = TypeVar("E")
PLACES = ("Before the run: ", "Flow loop: ", "Completion loop: ")
#: What may follow the end of a flow; anything else means that the run went on.
AFTER_AN_END = (
    *(FlowEnded, RunFinished, Noted, FailureReported, IssueCostSummed, LayerTold, SnapshotFailed),
    *(EffectPlanned, EffectApplied, ValidatorRan, CompletionJudged),
)
UNFINISHED = "the journal ends here; the run was stopped from outside before it could say why."


@dataclass(frozen=True, kw_only=True)
class ReportFacts:
    """What the journal cannot know.

    `outcome` and `reason` count only where the journal has no end of its own: a run that never began, or one that was
    killed. A caller that writes the comment of a flow that completed, before its effects are applied, says
    `completed` here. `code`, `isolation` and `base_commit` win over what the journal says.
    """

    run_id: str = ""
    agent: str = ""
    outcome: Outcome = Outcome.CANCELLED
    reason: str = ""
    code: str | None = None
    problems: tuple[Problem, ...] = ()
    issue: int | None = None
    base_commit: str = ""
    isolation: Mapping[str, str] = field(default_factory=dict)
    run_folder: str = ""
    host_run_folder: str = ""


def ending_of(events: Sequence[Event], known: ReportFacts) -> RunFinished:
    """How the run ended. A flow that completed is no end yet: its boundary was not through."""
    flow, finished = _standing_end(events)
    if finished:
        return finished
    if flow and flow.outcome is not Outcome.COMPLETED:
        return RunFinished(outcome=flow.outcome, reason=flow.reason, success=False)
    if flow and known.outcome is Outcome.COMPLETED:
        return RunFinished(outcome=known.outcome, reason=known.reason or flow.reason, success=True)
    where = "Completion loop" if flow else "Flow loop" if last_of(events, IterationStarted) else "Before the run"
    return RunFinished(outcome=known.outcome, reason=known.reason or f"{where}: {UNFINISHED}", success=False)


def _standing_end(events: Sequence[Event]) -> tuple[FlowEnded | None, RunFinished | None]:
    """The end that no later event took back: a resumed run goes on after the end of its first part."""
    flow: FlowEnded | None = None
    finished: RunFinished | None = None
    last = next((at for at in range(len(events), 0, -1) if not isinstance(events[at - 1], AFTER_AN_END)), 0)
    for event in events[last:]:
        match event:
            case FlowEnded():
                flow, finished = event, None
            case RunFinished():
                finished = event
            case EffectPlanned() | EffectApplied() | ValidatorRan() | CompletionJudged():
                finished = None
            case _:
                pass
    return flow, finished


def told_reason(outcome: Outcome, reason: str) -> str:
    """The reason for people: where it arose (flow.md §11) says something only when something went wrong."""
    if outcome not in (Outcome.COMPLETED, Outcome.SKIPPED):
        return reason
    return next((reason.removeprefix(place) for place in PLACES if reason.startswith(place)), reason)


def code_of(outcome: Outcome, reason: str, known: ReportFacts, problems: Iterable[Problem]) -> str | None:
    """The code of the outcome, if it has one (registry.md §9)."""
    if known.code or outcome in CODE_OF_OUTCOME:
        return known.code or CODE_OF_OUTCOME[outcome]
    if outcome is not Outcome.INVALID_DEFINITION:
        return None
    named = re.search(r"\bSF\d{3}\b", reason)
    return named[0] if named else next((p.code for p in problems if p.severity is Severity.ERROR), None)


def last_of(events: Sequence[Event], kind: type[E]) -> E | None:
    """The last event of a kind."""
    return next((event for event in reversed(events) if isinstance(event, kind)), None)
