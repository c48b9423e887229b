"""The boundary that a program brings, in place of the action's own.

Takes: a completed flow's result. Gives: `Ending`; every effect is in the journal, planned and then done.
May touch: nothing itself; what the caller's boundary writes is the caller's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from stepflow.domain.effect import EffectStatus, describe_effect
from stepflow.domain.event import EffectApplied, EffectPlanned, Noted
from stepflow.domain.figures import count
from stepflow.domain.words import Outcome
from stepflow.run.ending import Ending

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from stepflow.domain.decision import FlowResult
    from stepflow.domain.definition import AgentDefinition
    from stepflow.domain.effect import Effect, Receipt
    from stepflow.domain.run import RunFacts
    from stepflow.ports import Journal


class Boundary(Protocol):
    """What changes the outside after a completed flow; called once per run, never after any other outcome."""

    def plan(self, agent: AgentDefinition, facts: RunFacts, result: FlowResult) -> Sequence[Effect]:
        """The effects that the closing answer asks for; pure."""
        ...

    def apply(self, effects: Sequence[Effect]) -> Iterable[Receipt]:
        """Write the effects in order, and give a receipt as soon as each is through. A receipt of a failed effect, or
        a `BoundaryError`, fails the run."""
        ...


def finish_outside(
    boundary: Boundary | None, agent: AgentDefinition, facts: RunFacts, result: FlowResult, journal: Journal
) -> Ending:
    """Plan, write down, apply. Without a boundary the plan is empty (flow.md §12)."""
    effects = tuple(boundary.plan(agent, facts, result)) if boundary else ()
    for effect in effects:
        journal.append(EffectPlanned(kind=effect.kind, detail=describe_effect(effect)))
    _note(journal, "info", f"planned {count(len(effects), 'effect')}")
    for receipt in boundary.apply(effects) if boundary else ():
        journal.append(EffectApplied(**vars(receipt)))
        if receipt.status is EffectStatus.FAILED:
            _note(journal, "error", f"failed: {receipt.kind}")
            reason = f"Completion loop: {receipt.kind} failed: {receipt.detail}"
            return Ending(outcome=Outcome.BOUNDARY_FAILED, reason=reason)
    if boundary:
        _note(journal, "info", "applied")
    return Ending(outcome=result.outcome, reason=result.reason)


def _note(journal: Journal, level: str, message: str) -> None:
    journal.append(Noted(level=level, message=f"[Boundary] {message}"))
