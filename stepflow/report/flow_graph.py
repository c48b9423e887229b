"""Builds the step graph of an agent, with the path of a run in it, as nodes and edges, as JSON and as Mermaid."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import assert_never

from stepflow.domain.agent.definition import (
    AgentDefinition,
    Branch,
    Exposure,
    Step,
    Target,
    Transition,
    effective_tools,
)
from stepflow.domain.json import JsonObject
from stepflow.domain.reports.report import RunReport
from stepflow.domain.text import sum_costs, usd
from stepflow.domain.words import Effort, Intent, Outcome, StepKind
from stepflow.engine.loop import BOUNDARY_RULES
from stepflow.report.safe_text import one_line

#: From a step (None: the start) to a step (None: the end), with the arrow's label.
Route = tuple[str | None, str | None, str]
RED_VALIDATOR = "validator fails"
VERDICT = "verdict"
#: From a step (None: the start) to a step (None: the end), and how often.
PathEdge = tuple[str | None, str | None, int]
LABEL_LIMIT = 60
#: The intent `abort` ends the run from every step that offers it. An arrow from each would hide the others.
MAY_ABORT = "may abort"
#: The label of a step that breaks the rule of two, or may.
ALL_MEET = "all three meet"
#: Each fill has its own text color, so that the picture is readable on GitHub's light and dark pages.
CLASSES: dict[str, str] = {
    "work": "fill:#ddf4ff,stroke:#0969da,color:#0a3069",
    "verification": "fill:#fff8c5,stroke:#9a6700,color:#4d2d00",
    "closure": "fill:#dafbe1,stroke:#1a7f37,color:#044f1e",
    "plain": "fill:#f6f8fa,stroke:#57606a,color:#24292f",
    "terminal": "fill:#24292f,stroke:#24292f,color:#ffffff",
    "unreachable": "fill:#ffffff,stroke:#8c959f,color:#57606a,stroke-dasharray:4 4",
}
#: The border of a step in which all three of the rule of two may meet.
RISK = "stroke:#cf222e,stroke-width:3px"
WALKED = "stroke:#bf3989,stroke-width:4px"


def routes_of(agent: AgentDefinition) -> Iterator[Route]:
    """Yield every declared route: to the first steps, by transitions, back from a failed validator, and out of an
    ungated flow by verdict."""
    yield (None, agent.entry_step, "")
    for kind, step_id in agent.entry_steps.items():
        if step_id != agent.entry_step:
            yield (None, step_id, kind)
    for step in agent.steps.values():
        for intent, transition in step.edges.items():
            yield from _transition_routes(step.id, intent, transition)
        for outcome, rules in (("pass", step.check.on_pass), ("fail", step.check.on_fail)) if step.check else ():
            for rule in rules:
                to = None if rule.intent is Intent.CLOSING else rule.target or step.id
                yield (step.id, to, f"{outcome}: {rule.transition}")
        if step.validation:
            repeat = step.edges.get(Intent.REPEAT)
            yield (step.id, (repeat.step_id if isinstance(repeat, Target) else None) or step.id, RED_VALIDATOR)
        if not agent.gated:
            yield (step.id, None, VERDICT)


def _transition_routes(source: str, intent: Intent, transition: Transition) -> Iterator[Route]:
    match transition:
        case Target(step_id=None) if intent is Intent.REPEAT:
            yield (source, source, intent)
        case Target():
            # `closing` ends the flow, even if its transition has a target (definition.md §5.4).
            yield (source, None if intent is Intent.CLOSING else transition.step_id, intent)
        case Branch():
            for value, to in transition.targets.items():
                yield (source, to, f"{intent} [{transition.condition} = {value}]")
            if transition.default is not None and "default" not in transition.targets:
                yield (source, transition.default, f"{intent} [else]")
        case _:
            assert_never(transition)


def reachable_steps(agent: AgentDefinition, routes: Iterable[Route]) -> frozenset[str]:
    """Return every step that a route leads to. A jump that may name its target leads to every step (SF346)."""
    leads: dict[str, set[str]] = {}
    for source, to, _ in routes:
        if source is not None and to is not None:
            leads.setdefault(source, set()).add(to)
    reached: set[str] = set()
    waiting = [agent.entry_step, *agent.entry_steps.values()]
    while waiting:
        step_id = waiting.pop()
        reached.add(step_id)
        step = agent.steps.get(step_id)
        if step and step.gate and step.gate.target_field and Intent.JUMP in step.gate.allowed:
            return frozenset(agent.steps)
        waiting.extend(leads.get(step_id, set()) - reached)
    return frozenset(reached)


@dataclass(frozen=True, kw_only=True)
class GraphNode:
    """A step in the graph."""

    id: str
    name: str
    kind: StepKind | None
    initial: bool
    validators: tuple[str, ...]
    #: False if no route leads here from the entry (SF346).
    reachable: bool
    #: Whether an answer may end the run as failed.
    may_abort: bool = False
    visits: int = 0
    #: The files that the step's model is shown.
    guidance: tuple[str, ...] = ()
    #: The tools that the model may call. `own_tools` is true if the step itself names them.
    tools: tuple[str, ...] = ()
    own_tools: bool = False
    #: The step's own model. None if the step uses the run's.
    model: str | None = None
    #: The ladder of models, if the step or the agent has one.
    models: tuple[str, ...] = ()
    #: The model that continues after a refusal.
    fallback_model: str | None = None
    effort: Effort | None = None
    #: What meets in the step's conversation, by the rule of two.
    exposures: tuple[Exposure, ...] = ()

    @property
    def lines(self) -> tuple[str, ...]:
        """What a picture says of the step below its ID. What the agent does not set is left out."""
        return (
            *((self.name,) if self.name and self.name != self.id else ()),
            *self._settings,
            *self.exposure_labels,
            *(f"check {validator}" for validator in self.validators),
            *((MAY_ABORT,) if self.may_abort else ()),
            *(("unreachable",) if not self.reachable else ()),
        )

    @property
    def _settings(self) -> tuple[str, ...]:
        model = f"models {' → '.join(self.models)}" if self.models else f"model {self.model}" if self.model else ""
        effort = f"effort {self.effort}" if self.effort else ""
        fallback = f"after a refusal {self.fallback_model}" if self.fallback_model else ""
        tools = f"tools {', '.join(self.tools) or 'none'}" if self.own_tools else ""
        return tuple(filter(None, (", ".join(filter(None, (model, effort))), fallback, tools)))

    @property
    def is_risky(self) -> bool:
        """Whether all three of the rule of two may meet here."""
        return any(each.has_all for each in self.exposures)

    @property
    def exposure_labels(self) -> tuple[str, ...]:
        """What meets by the rule of two, in one line if it is the same in every kind of repository, and why somebody
        accepts it."""
        met = {each.repository: _describe_exposure(each) for each in self.exposures}
        same = len({*met.values()}) == 1
        lines = [*met.values()][:1] if same else [f"if {repository}: {words}" for repository, words in met.items()]
        accepted = dict.fromkeys(
            f"accepted: {each.accepted}" for each in self.exposures if each.has_all and each.accepted
        )
        return (*lines, *accepted)


def _describe_exposure(exposure: Exposure) -> str:
    words = {"strangers' text": exposure.untrusted, "private data": exposure.private, "way out": exposure.ways_out}
    return ALL_MEET if exposure.has_all else ", ".join(word for word, sources in words.items() if sources)


@dataclass(frozen=True, kw_only=True)
class GraphEdge:
    """All routes from one step to another, as one arrow.

    `labels` are the intents. A conditional intent includes its value. `declared` is false if only the run took this
    route: a jump to a step that the answer named.
    """

    source: str | None
    to: str | None
    labels: tuple[str, ...]
    walked: int = 0
    declared: bool = True


@dataclass(frozen=True, kw_only=True)
class FlowGraph:
    """The nodes in file order and the arrows between them. As a source, None is the start; as a target, it is the
    end."""

    nodes: tuple[GraphNode, ...]
    edges: tuple[GraphEdge, ...] = field(default=())


def _checks(agent: AgentDefinition, step: Step) -> tuple[str, ...]:
    """Return the checks of a closing in the order in which they run."""
    rules = (BOUNDARY_RULES,) if step.kind is StepKind.CLOSURE and agent.github.pushes else ()
    return (*rules, *(each.validator.name for each in (step.validation.conditions if step.validation else ())))


def _node(
    agent: AgentDefinition, step: Step, exposures: Sequence[Exposure], *, is_reachable: bool, visits: int
) -> GraphNode:
    node = GraphNode(
        id=step.id,
        name=step.name,
        kind=step.kind,
        initial=step.initial,
        validators=_checks(agent, step),
        reachable=is_reachable,
        may_abort=bool(step.gate and step.gate.lists_abort),
        visits=visits,
        own_tools=step.tools is not None,
        exposures=tuple(each for each in exposures if each.step_id == step.id),
    )
    if step.command:
        return node
    rungs = agent.ladder_of(step, None).rungs
    models = tuple(str(rung) for rung in rungs if not rung.fallback)
    return replace(
        node,
        guidance=tuple(text.file for text in (*agent.guidance, *step.guidance)),
        tools=tuple(effective_tools(agent, step)),
        model=str(step.models[0]) if len(step.models) == 1 else None,
        models=models if len(models) > 1 else (),
        fallback_model=next((str(rung) for rung in rungs if rung.fallback), None),
        effort=step.effort,
    )


def flow_graph(
    agent: AgentDefinition, path: Sequence[PathEdge] | None = None, exposures: Sequence[Exposure] = ()
) -> FlowGraph:
    """Return the graph of an agent, with a path and what meets in its steps drawn into it if they are given."""
    routes = list(routes_of(agent))
    reached = reachable_steps(agent, routes)
    visits = Counter[str]()
    for _, to, times in path or ():
        if to is not None:
            visits[to] += times
    return FlowGraph(
        nodes=tuple(
            _node(agent, step, exposures, is_reachable=step.id in reached, visits=visits[step.id])
            for step in agent.steps.values()
        ),
        edges=_edges(routes, path or (), known={None, *agent.steps}),
    )


#: GitHub's Mermaid draws no graph with more arrows.
MOST_EDGES = 400


def is_too_large(agent: AgentDefinition, path: Sequence[PathEdge]) -> bool:
    """Return whether there are more arrows than a picture can show."""
    return len(flow_graph(agent, path).edges) > MOST_EDGES


#: Outcomes that show that a run's final closing was accepted.
CLOSED = (Outcome.COMPLETED, Outcome.NO_CHANGES, Outcome.BOUNDARY_FAILED, Outcome.REFUSED)


def walked_path(report: RunReport) -> tuple[PathEdge, ...]:
    """Return the path that a run took, from its history. It includes the end only if the run reached it."""
    steps: list[str | None] = [None, *(line.step_id for line in report.history)]
    walked = Counter(pairwise(steps))
    closed = report.history and report.history[-1].transition in ("closing", "complete")
    if closed and report.outcome in CLOSED:
        walked[steps[-1], None] += 1
    return tuple((source, to, times) for (source, to), times in walked.items())


def cost_words(report: RunReport) -> dict[tuple[str | None, str | None], str]:
    """Return what the iterations cost, as text, by the route taken after them. Free routes are left out."""
    costs: dict[tuple[str | None, str | None], list[float | None]] = {}
    steps = [*(line.step_id for line in report.history), None]
    for line, to in zip(report.history, steps[1:], strict=True):
        costs.setdefault((line.step_id, to), []).append(line.cost_usd)
    sums = {pair: sum_costs(each) for pair, each in costs.items()}
    return {pair: usd(cost) if cost is not None else "cost unknown" for pair, cost in sums.items() if cost != 0}


def graph_json(
    agent: AgentDefinition, path: Sequence[PathEdge] | None = None, exposures: Sequence[Exposure] = ()
) -> JsonObject:
    """Return the graph for programs. In `from`, null is the start; in `to`, it is the end."""
    graph = flow_graph(agent, path, exposures)
    return {
        "agent": agent.name,
        "entry": agent.entry_step,
        "steps": json.loads(json.dumps([asdict(node) for node in graph.nodes])),
        "edges": [{"from": edge.pop("source"), **edge} for edge in json.loads(json.dumps([*map(asdict, graph.edges)]))],
    }


def _edges(routes: Iterable[Route], path: Iterable[PathEdge], *, known: set[str | None]) -> tuple[GraphEdge, ...]:
    labels: dict[tuple[str | None, str | None], list[str]] = {}
    for source, to, label in routes:
        if not {source, to} <= known:
            continue
        labels.setdefault((source, to), [])
        if label and label not in labels[source, to]:
            labels[source, to].append(label)
    walked: Counter[tuple[str | None, str | None]] = Counter()
    for source, to, times in path:
        # A run of another version of the agent may have taken steps that this version does not have.
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


def mermaid_graph(
    agent: AgentDefinition, path: Sequence[PathEdge] | None = None, exposures: Sequence[Exposure] = ()
) -> str:
    """Return a flowchart: kinds by color, intents on the arrows, validators in the closures, the run's path thick."""
    graph = flow_graph(agent, path, exposures)
    names = {node.id: f"s{number}" for number, node in enumerate(graph.nodes)}
    walked = [str(number) for number, edge in enumerate(graph.edges) if edge.walked]
    risky = [names[node.id] for node in graph.nodes if node.is_risky]
    return "\n".join(
        (
            "flowchart TD",
            '  start(["start"])',
            *(f"  {names[node.id]}{_shape(node)}" for node in graph.nodes),
            '  done(["end"])',
            *(f"  {_arrow(edge, names)}" for edge in graph.edges),
            *(f"  classDef {name} {style}" for name, style in CLASSES.items()),
            "  class start,done terminal",
            *(f"  class {names[node.id]} {node_class(node)}" for node in graph.nodes),
            *((f"  classDef risk {RISK}", f"  class {','.join(risky)} risk") if risky else ()),
            *((f"  linkStyle {','.join(walked)} {WALKED}",) if walked else ()),
            "",
        )
    )


def _shape(node: GraphNode) -> str:
    text = "<br/>".join(map(_text, (node.id, *node.lines)))
    match node.kind:
        case StepKind.VERIFICATION:
            return f'{{{{"{text}"}}}}'
        case StepKind.CLOSURE:
            return f'[["{text}"]]'
        case _:
            return f'["{text}"]'


def _arrow(edge: GraphEdge, names: Mapping[str, str]) -> str:
    source = names[edge.source] if edge.source is not None else "start"
    to = names[edge.to] if edge.to is not None else "done"
    labels = [*map(_text, edge.labels), *([f"×{edge.walked}"] if edge.walked > 1 else [])]
    label = f'|"{"<br/>".join(labels)}"|' if labels else ""
    arrow = "==>" if edge.walked else "-->" if edge.declared else "-.->"
    return f"{source} {arrow}{label} {to}"


def node_class(node: GraphNode) -> str:
    """Return the CSS class of the step's box in a picture."""
    if not node.reachable:
        return "unreachable"
    return node.kind.value if node.kind else "plain"


def _text(text: str) -> str:
    """Return a quoted label in which every character that Mermaid or HTML could interpret is a numeric entity."""
    return "".join(
        character if character.isalnum() or character in " .-_" else f"#{ord(character)};"
        for character in one_line(text, LABEL_LIMIT)
    )
