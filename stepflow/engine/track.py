"""The state of a run and its journal, moved together.

Takes: the facts, the ports and a state. Gives: `Track`, which records events and holds the state they fold to.
May touch: nothing but the journal port.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepflow.domain.event import Event, Noted
from stepflow.domain.state import RunState, advance
from stepflow.engine.limits import check_limits
from stepflow.engine.prompt.variables import step_variables

if TYPE_CHECKING:
    from stepflow.domain.decision import Stop
    from stepflow.domain.definition import AgentDefinition, Step
    from stepflow.domain.json import JsonObject
    from stepflow.domain.run import RunFacts
    from stepflow.engine.prompt.variables import Variables
    from stepflow.ports import Ports


@dataclass(kw_only=True)
class Track:
    """What every part of the flow works on: the agent, the facts, the ports, and the one state that changes."""

    agent: AgentDefinition
    facts: RunFacts
    ports: Ports
    state: RunState

    def record(self, event: Event) -> None:
        """Write the event down, then let the state follow it."""
        self.ports.journal.append(event)
        self.state = advance(self.state, event)

    def note(self, level: str, message: str, data: JsonObject | None = None) -> None:
        """Record a log entry of flow.md §15 that no other event stands for."""
        self.record(Noted(level=level, message=message, data=data or {}))

    def variables(self, step: Step) -> Variables:
        """What the step's texts may use now."""
        verdict, facts = self.ports.verdict, self.facts
        criteria = verdict.criteria if verdict else ""
        return step_variables(self.agent, step, facts, self.state, facts.limits.iterations, criteria=criteria)

    def limit_reached(self, *, next_step: str | None = None) -> Stop | None:
        """The limit that forbids the next iteration (at `next_step`) or the next model turn, if one does."""
        return check_limits(self.state, self.facts.limits, self.ports.clock.now(), next_step=next_step)
