"""A flow from its first event on, with the model's replies played."""

from __future__ import annotations

from stepflow.domain.definition import AgentDefinition
from stepflow.domain.event import RunStarted
from stepflow.domain.run import Limits, RunFacts
from stepflow.domain.state import fold
from stepflow.engine.loop import run_flow
from tests.build import make_facts
from tests.fakes import Reply, fake_ports


def started(agent: AgentDefinition, iterations: int) -> RunStarted:
    """The first event of a run."""
    return RunStarted(
        run_id="run-1",
        agent=agent.name,
        dialect=str(agent.dialect),
        definition_digest=agent.digest,
        verdict_type=agent.verdict.type,
        entry_step=agent.entry_step,
        max_iterations=iterations,
    )


def play(
    agent: AgentDefinition, replies: list[Reply], *, most: int = 10, facts: RunFacts | None = None, **parts: object
):
    """The result and the ports of a run whose events fold to the outcome that it tells."""
    ports = fake_ports(replies, **parts)
    first = started(agent, most)
    ports.journal.append(first)
    result = run_flow(agent, facts or make_facts(limits=Limits(iterations=most)), ports, fold([first]))
    assert fold(ports.journal.events).outcome is result.outcome
    return result, ports
