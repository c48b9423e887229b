"""The registry's graph as nodes and arrows, with the path of a run drawn into it.

Takes: `AgentDefinition`, and a path. Gives: `FlowGraph`, for Mermaid, JSON and the HTML report alike.
May touch: nothing.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from stepflow.domain.figures import usd
from stepflow.domain.words import Outcome, StepKind
from stepflow.report.ways import Way, reachable_steps, ways_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from stepflow.domain.definition import AgentDefinition, Step
    from stepflow.domain.json import JsonObject
    from stepflow.domain.report import RunReport

#: From a step to a step, and how often. None stands for the start on the left and for the end on the right.
PathEdge = tuple[str | None, str | None, int]


@dataclass(frozen=True, kw_only=True)
class GraphNode:
    """A step. `reachable` is false when no way leads there from the entry (SF346)."""

    id: str
    name: str
    kind: StepKind | None
    initial: bool
    validators: tuple[str, ...]
    reachable: bool
    visits: int = 0


@dataclass(frozen=True, kw_only=True)
class GraphEdge:
    """All ways from one step to another as one arrow. `labels` are intents, conditional ones with their value.

    `declared` is false when only the run went here: a jump to a step that the answer named.
    """

    source: str | None
    to: str | None
    labels: tuple[str, ...]
    walked: int = 0
    declared: bool = True


@dataclass(frozen=True, kw_only=True)
class FlowGraph:
    """Nodes in file order and the arrows between them; None is the start (as source) and the end (as target)."""

    agent: str
    entry: str
    nodes: tuple[GraphNode, ...]
    edges: tuple[GraphEdge, ...] = field(default=())


def flow_graph(agent: AgentDefinition, path: Sequence[PathEdge] | None = None) -> FlowGraph:
    """The graph of an agent, with a path drawn into it if there is one."""
    ways = list(ways_of(agent))
    reached = reachable_steps(agent, ways)
    visits = Counter[str]()
    for _, to, times in path or ():
        if to is not None:
            visits[to] += times
    return FlowGraph(
        agent=agent.name,
        entry=agent.entry_step,
        nodes=tuple(_node(step, step.id in reached, visits[step.id]) for step in agent.steps.values()),
        edges=_edges(ways, path or (), known={None, *agent.steps}),
    )


def walked_path(report: RunReport) -> tuple[PathEdge, ...]:
    """The way a run took, as its history tells it; the end only when the run came there."""
    steps: list[str | None] = [None, *(line.step_id for line in report.history)]
    walked = Counter(pairwise(steps))
    closed = report.history and report.history[-1].transition in ("closing", "complete")
    if closed and report.outcome in (Outcome.COMPLETED, Outcome.BOUNDARY_FAILED, Outcome.REFUSED):
        walked[steps[-1], None] += 1
    return tuple((source, to, times) for (source, to), times in walked.items())


def cost_words(report: RunReport) -> dict[tuple[str | None, str | None], str]:
    """What the iterations cost that left by each way of the path, as words; nothing where all of it was free."""
    costs: dict[tuple[str | None, str | None], float | None] = {}
    steps = [*(line.step_id for line in report.history), None]
    for line, to in zip(report.history, steps[1:], strict=True):
        spent = costs.get((line.step_id, to), 0.0)
        costs[line.step_id, to] = None if spent is None or line.cost_usd is None else spent + line.cost_usd
    return {way: usd(cost) if cost is not None else "cost unknown" for way, cost in costs.items() if cost != 0}


def graph_json(agent: AgentDefinition, path: Sequence[PathEdge] | None = None) -> JsonObject:
    """The graph for programs. `from` null is the start, `to` null the end."""
    graph = flow_graph(agent, path)
    return {
        "agent": graph.agent,
        "entry": graph.entry,
        "steps": [
            {
                "id": node.id,
                "name": node.name,
                "kind": node.kind.value if node.kind else None,
                "initial": node.initial,
                "validators": list(node.validators),
                "reachable": node.reachable,
                "visits": node.visits,
            }
            for node in graph.nodes
        ],
        "edges": [
            {
                "from": edge.source,
                "to": edge.to,
                "labels": list(edge.labels),
                "declared": edge.declared,
                "walked": edge.walked,
            }
            for edge in graph.edges
        ],
    }


def _node(step: Step, reachable: bool, visits: int) -> GraphNode:
    conditions = step.validation.conditions if step.validation else ()
    return GraphNode(
        id=step.id,
        name=step.name,
        kind=step.kind,
        initial=step.initial,
        validators=tuple(condition.validator.name for condition in conditions),
        reachable=reachable,
        visits=visits,
    )


def _edges(ways: Iterable[Way], path: Iterable[PathEdge], *, known: set[str | None]) -> tuple[GraphEdge, ...]:
    labels: dict[tuple[str | None, str | None], list[str]] = {}
    for source, to, label in ways:
        if not {source, to} <= known:
            continue
        labels.setdefault((source, to), [])
        if label and label not in labels[source, to]:
            labels[source, to].append(label)
    walked: Counter[tuple[str | None, str | None]] = Counter()
    for source, to, times in path:
        # A run of another version of the agent may have walked over steps that this one does not have.
        if source in known and to in known:
            walked[source, to] += times
    declared = tuple(
        GraphEdge(source=source, to=to, labels=tuple(names), walked=walked[source, to])
        for (source, to), names in labels.items()
    )
    surprising = tuple(
        GraphEdge(source=source, to=to, labels=(), walked=times, declared=False)
        for (source, to), times in walked.items()
        if (source, to) not in labels
    )
    return declared + surprising
