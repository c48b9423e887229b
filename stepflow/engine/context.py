"""What every part of the flow works on: agent, facts, ports, and the state that follows the journal."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stepflow.domain.decision import FlowResult
from stepflow.domain.event import Event, FlowEnded, Noted
from stepflow.domain.state import RunState, advance
from stepflow.domain.words import CODE_OF_OUTCOME, Outcome
from stepflow.engine.limits import check_limits
from stepflow.engine.prompt.variables import step_variables

if TYPE_CHECKING:
    from stepflow.domain.checkout import Closing
    from stepflow.domain.conversation import ModelRequest
    from stepflow.domain.definition import AgentDefinition, Step
    from stepflow.domain.json import JsonObject
    from stepflow.domain.run import RunFacts
    from stepflow.engine.prompt.variables import Variables
    from stepflow.ports import Ports

#: Where a run stopped, the first words of every reason (flow.md §11).
FLOW_LOOP = "Flow loop"
COMPLETION_LOOP = "Completion loop"


class FlowStopped(Exception):
    """The run ends here without success. Raised anywhere in the engine, turned into a result by its loop."""

    def __init__(
        self, outcome: Outcome, reason: str, *, answer: JsonObject | None = None, where: str = FLOW_LOOP
    ) -> None:
        super().__init__(reason)
        self.outcome, self.reason, self.answer, self.where = outcome, reason, answer, where


@dataclass(frozen=True, kw_only=True)
class CachedRequest:
    """What the service has cached, and when it was last used."""

    request: ModelRequest
    used_at: float


@dataclass(kw_only=True)
class FlowContext:
    """The agent, the facts, the ports, and the one state that changes. `cached`: what the service may still have of
    each step, which no journal remembers."""

    agent: AgentDefinition
    facts: RunFacts
    ports: Ports
    state: RunState
    cached: dict[str, CachedRequest] = field(default_factory=dict)

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

    def check_limits(self, *, next_step: str | None = None) -> None:
        """Stop the run when a limit forbids the next iteration (at `next_step`) or the next model turn."""
        if stop := check_limits(self.state, self.facts.limits, self.ports.clock.now(), next_step=next_step):
            raise FlowStopped(stop.outcome, stop.reason)

    def end(
        self,
        outcome: Outcome,
        reason: str,
        answer: JsonObject | None,
        *,
        where: str,
        validated: bool = False,
        closing: Closing | None = None,
    ) -> FlowResult:
        """Record the end of the flow and make its result."""
        code = CODE_OF_OUTCOME.get(outcome)
        reason = f"{where}: {code + ': ' if code else ''}{reason}"
        state = self.state
        self.record(
            FlowEnded(outcome=outcome, reason=reason, step_id=state.step_id, answer=answer, validated=validated)
        )
        return FlowResult(
            outcome=outcome,
            reason=reason,
            step_id=state.step_id,
            iterations=state.iteration,
            answer=answer,
            handoff=state.handoff,
            validated=validated,
            closing=closing,
        )
