"""The step graph as SVG: kinds by color, intents on the arrows, validators in the closures, the walked path thick."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from stepflow.report.graph.flow_graph import flow_graph
from stepflow.report.graph.layout import ASIDE, LOOP, SMALL_LINE, lay_out, shapes
from stepflow.report.plain import one_line
from stepflow.report.rendered import read_text, render

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from stepflow.domain.definition import AgentDefinition
    from stepflow.report.graph.flow_graph import PathEdge
    from stepflow.report.graph.layout import Arrow, Box, Layout, Point, StepPair

#: What the template draws, by its names: figures are texts already.
Drawn = dict[str, object]


def graph_svg(
    agent: AgentDefinition,
    path: Sequence[PathEdge] | None = None,
    *,
    costs: Mapping[StepPair, str] | None = None,
    links: Mapping[str, str] | None = None,
) -> str:
    """A picture that needs no font, no script and no network. `links` lead from a step into the page that holds the
    picture; with them it brings no style of its own."""
    graph = flow_graph(agent, path)
    boxes, arrows = shapes(graph, costs or {})
    layout = lay_out(boxes, arrows)
    drawn = [
        _arrow(arrow, points, label) for arrow, points, label in zip(arrows, layout.paths, layout.labels, strict=True)
    ]
    drawn += [_loop(box, box.loop, layout) for box in boxes if box.loop]
    return render(
        "graph/graph.svg.j2",
        title=f"Step graph of {one_line(agent.name)}",
        style=read_text("graph/graph.css") if links is None else "",
        width=_figure(layout.width),
        height=_figure(layout.height),
        # What was walked is drawn last, above the rest.
        arrows=sorted(drawn, key=lambda arrow: "walked" in str(arrow["sort"])),
        boxes=[_box(box, layout.boxes[box.number], (links or {}).get(box.step or "", "")) for box in boxes],
    )


def _arrow(arrow: Arrow, points: Sequence[Point], label: Point) -> Drawn:
    # Beside the line, which nothing cuts.
    x, y = label[0] + ASIDE + arrow.width / 2, label[1]
    first = y - arrow.height / 2 + SMALL_LINE / 2 + 4.0
    return Drawn(
        sort="arrow walked" if arrow.walked else "arrow" if arrow.declared else "arrow undeclared",
        path=_curve(points),
        texts=_lines(arrow.lines, x, first),
    )


def _loop(box: Box, loop: Arrow, layout: Layout) -> Drawn:
    x, y = layout.boxes[box.number]
    edge, far, reach = x + box.width / 2, x + box.width / 2 + LOOP, box.height / 4
    path = " ".join(
        (
            f"M{_figure(edge)},{_figure(y - reach)}",
            f"C{_figure(far)},{_figure(y - reach - 8)} {_figure(far)},{_figure(y + reach + 8)}",
            f"{_figure(edge)},{_figure(y + reach)}",
        )
    )
    return _arrow(loop, (), (far - 4.0 - ASIDE, y)) | {"path": path}


def _curve(points: Sequence[Point]) -> str:
    """Through all points, upright at each of them."""
    words = [f"M{_figure(points[0][0])},{_figure(points[0][1])}"] if points else []
    for (x, y), (to_x, to_y) in pairwise(points):
        if x == to_x:
            words.append(f"L{_figure(to_x)},{_figure(to_y)}")
            continue
        half = _figure((y + to_y) / 2)
        words.append(f"C{_figure(x)},{half} {_figure(to_x)},{half} {_figure(to_x)},{_figure(to_y)}")
    return " ".join(words)


def _box(box: Box, middle: Point, href: str) -> Drawn:
    x, y = middle
    first = y - box.height / 2 + 8.0 + 15.0
    return Drawn(
        kind=box.kind,
        title=box.full_name,
        href=href,
        x=_figure(x - box.width / 2),
        y=_figure(y - box.height / 2),
        width=_figure(box.width),
        height=_figure(box.height),
        name=Drawn(x=_figure(x), y=_figure(first), text=box.name),
        small=_lines(box.small, x, first + SMALL_LINE + 1.0),
    )


def _lines(lines: Sequence[str], x: float, first: float) -> tuple[Drawn, ...]:
    return tuple(
        Drawn(x=_figure(x), y=_figure(first + number * SMALL_LINE), text=line) for number, line in enumerate(lines)
    )


def _figure(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
