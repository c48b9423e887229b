"""The registry's graph as a Mermaid flowchart.

Takes: `AgentDefinition`, and a path. Gives: Mermaid source that no step id, name or value can break.
May touch: nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepflow.domain.words import StepKind
from stepflow.report.graph import GraphEdge, GraphNode, flow_graph
from stepflow.report.plain import one_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from stepflow.domain.definition import AgentDefinition
    from stepflow.report.graph import FlowGraph, PathEdge

LABEL_LIMIT = 60
#: Text colours stand beside their fills, so that the picture reads on GitHub's light and dark pages.
CLASSES: dict[str, str] = {
    "work": "fill:#ddf4ff,stroke:#0969da,color:#0a3069",
    "verification": "fill:#fff8c5,stroke:#9a6700,color:#4d2d00",
    "closure": "fill:#dafbe1,stroke:#1a7f37,color:#044f1e",
    "plain": "fill:#f6f8fa,stroke:#57606a,color:#24292f",
    "terminal": "fill:#24292f,stroke:#24292f,color:#ffffff",
    "unreachable": "fill:#ffffff,stroke:#8c959f,color:#57606a,stroke-dasharray:4 4",
}
WALKED = "stroke:#bf3989,stroke-width:4px"


def mermaid_graph(agent: AgentDefinition, path: Sequence[PathEdge] | None = None) -> str:
    """A flowchart: kinds by colour, intents on the arrows, validators in the closures, the walked path thick."""
    graph = flow_graph(agent, path)
    names = {node.id: f"s{number}" for number, node in enumerate(graph.nodes)}
    return "\n".join(
        (
            "flowchart TD",
            '  start(["start"])',
            *(f"  {names[node.id]}{_shape(node)}" for node in graph.nodes),
            '  done(["end"])',
            *(f"  {_arrow(edge, names)}" for edge in graph.edges),
            *(f"  classDef {name} {style}" for name, style in CLASSES.items()),
            "  class start,done terminal",
            *(f"  class {names[node.id]} {_class(node)}" for node in graph.nodes),
            *_walked(graph),
            "",
        )
    )


def _shape(node: GraphNode) -> str:
    text = _text(node.id)
    if not node.reachable:
        text += "<br/>(unreachable)"
    for validator in node.validators:
        text += f"<br/>✓ {_text(validator)}"
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


def _class(node: GraphNode) -> str:
    if not node.reachable:
        return "unreachable"
    return node.kind.value if node.kind else "plain"


def _walked(graph: FlowGraph) -> tuple[str, ...]:
    numbers = [str(number) for number, edge in enumerate(graph.edges) if edge.walked]
    return (f"  linkStyle {','.join(numbers)} {WALKED}",) if numbers else ()


def _text(text: str) -> str:
    """A label between quotes: everything that could mean something to Mermaid or HTML becomes a numeric entity."""
    return "".join(
        character if character.isalnum() or character in " .-_" else f"#{ord(character)};"
        for character in one_line(text, LABEL_LIMIT)
    )
