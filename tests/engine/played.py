"""A flow from its first event on, with the model's replies played."""

from __future__ import annotations

from dataclasses import replace

from stepflow.domain.agent.definition import AgentDefinition
from stepflow.domain.conversation import ModelTurn
from stepflow.domain.event import Event, FlowEnded, IterationStarted, RunStarted
from stepflow.domain.flow import fold
from stepflow.domain.run import Limits, RunFacts
from stepflow.domain.words import Outcome
from stepflow.engine.loop import run_flow
from stepflow.engine.resumption import fold_stopped
from stepflow.ports import Ports
from stepflow.run.execute import run_started
from tests.build import make_facts
from tests.fakes import ListJournal, Reply, answers, fake_ports

#: The shortest way through `issue_agent`.
HAPPY = [answers("next"), answers("handoff"), answers("closing")]


def started(agent: AgentDefinition, iterations: int, facts: RunFacts | None = None) -> RunStarted:
    """The first event of a run."""
    return replace(run_started(agent, facts or make_facts(), {}), max_iterations=iterations)


def play(
    agent: AgentDefinition, replies: list[Reply], *, most: int = 10, facts: RunFacts | None = None, **parts: object
):
    """The result and the ports of a run whose events fold to the outcome that it tells."""
    ports = fake_ports(replies, **parts)
    first = started(agent, most, facts)
    ports.journal.append(first)
    result = run_flow(agent, facts or make_facts(limits=Limits(iterations=most)), ports, fold([first]))
    assert fold(ports.journal.events).outcome is result.outcome
    return result, ports


def completed(agent: AgentDefinition, replies: list[Reply], **parts: object) -> Ports:
    """The ports of a run that completes."""
    result, ports = play(agent, replies, **parts)
    assert result.outcome is Outcome.COMPLETED, result.reason
    return ports


def steps_of(ports: Ports) -> list[str]:
    """The step of each iteration."""
    return [event.step_id for event in ports.journal.of(IterationStarted)]


def resume(
    agent: AgentDefinition, before: list[Event], replies: list[Reply], facts: RunFacts, **parts: object
) -> tuple[FlowEnded, ListJournal]:
    """A run that goes on after these events, and its whole journal; the model gives all of these replies."""
    flow, journal = fold_stopped(before), ListJournal(list(before))
    ports = fake_ports(replies, journal=journal, **parts)
    result = run_flow(agent, facts, ports, flow.state, flow.iteration)
    assert ports.model.replies == []
    return result, journal


def check_every_beginning(
    agent: AgentDefinition, replies: list[Reply], facts: RunFacts | None = None, **parts: object
) -> None:
    """The run completes, and so does a run that goes on after any of its events; no turn is asked for twice."""
    facts = facts or make_facts()
    result, ports = play(agent, replies, facts=facts, **parts)
    recorded = ports.journal.events
    spent = [isinstance(event, ModelTurn) or getattr(event, "by_fault", False) for event in recorded]
    assert (result.outcome, sum(spent)) == (Outcome.COMPLETED, len(replies))
    for end in range(1, len(recorded)):
        again, journal = resume(agent, recorded[:end], replies[sum(spent[:end]) :], facts, **parts)
        assert again == result
        assert [type(event) for event in journal.events] == [type(event) for event in recorded]
