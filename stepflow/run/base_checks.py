"""The checks on the tree that a run finds, before the first call of the model (action.md, input `base-checks`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepflow.domain.event import Noted
from stepflow.domain.state import advance
from stepflow.domain.words import BaseChecks
from stepflow.engine.completion.base import demand_green, run_on_base

if TYPE_CHECKING:
    from stepflow.domain.state import RunState
    from stepflow.ports import Clock, Commands, Guards, Journal, Tools
    from stepflow.run.prepare import Prepared
    from stepflow.run.snapshots import Snapshotter


@dataclass(frozen=True, kw_only=True)
class Workplace:
    """The checkout, set up: what works in it, what watches it and what keeps it."""

    tools: Tools
    commands: Commands
    guards: Guards
    snapshotter: Snapshotter
    clock: Clock


def check_base(prepared: Prepared, state: RunState, workplace: Workplace, journal: Journal) -> RunState:
    """The state with the validators as they are now; the tree is then put back. A run that goes on runs only those of
    which it does not know yet.

    Raises `InputError` for a validator that cannot run, and `BaseCheckError` for a red one where that is demanded.
    """
    mode = prepared.request.inputs.base_checks
    if mode is BaseChecks.SKIP or state.iteration:
        return state
    if not workplace.snapshotter.holds:
        message = "[Base] the checks were not tried: the tree could not be put back afterwards"
        journal.append(Noted(level="warning", message=message))
        return state
    for check in run_on_base(prepared.agent, workplace.commands, known=state.base_checks):
        journal.append(check)
        state = advance(state, check)
        workplace.tools.end_step()
        workplace.snapshotter.put_back()
    if mode is BaseChecks.REQUIRE:
        demand_green(state.base_checks.values())
    return state
