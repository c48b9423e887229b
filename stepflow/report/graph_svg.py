"""Draws the step graph as SVG: kinds by color, intents on the arrows, validators in the closures, the run's path thick.

The steps stand in one column. An arrow to the next one leads straight down, one past other steps runs in a lane on the
right, and one back runs in a lane on the left. Texts stand between the boxes and the lanes, so nothing covers them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from stepflow.domain.agent.definition import AgentDefinition, Exposure
from stepflow.domain.text import count
from stepflow.report.flow_graph import FlowGraph, GraphNode, PathEdge, flow_graph, node_class
from stepflow.report.safe_text import one_line, read_text, render
from stepflow.report.safe_text import width as text_width

ID_LIMIT = 40
LABEL_LIMIT = 36
#: Width of one character in pixels at the font sizes of graph.css. Wide characters, such as Chinese, take two.
ID_CHARACTER = 7.9
SMALL_CHARACTER = 6.7
SMALL_LINE = 16.0
PADDING = 14.0
SMALLEST = 96.0
MARGIN = 16.0
#: Distance between a line and its text, between two lanes, and between two boxes.
ASIDE = 6.0
LANE = 16.0
GAP = 26.0
#: Height of the place where an arrow without a text meets a box, and the radius of an arrow's bends.
PORT = 18.0
BEND = 7.0
RIGHT, LEFT, DOWN = 1, -1, 0
StepPair = tuple[str | None, str | None]


@dataclass(kw_only=True)
class Arrow:
    """All routes from one row to another. `lines` are its text. Of the `lanes` on one side, 0 is next to the boxes."""

    source: int
    to: int
    lines: tuple[str, ...]
    walked: bool
    declared: bool
    lane: int = 0
    curve: str = ""
    #: The middle of the text.
    x: float = 0.0
    y: float = 0.0

    @property
    def side(self) -> int:
        """Where the arrow runs."""
        return DOWN if self.to == self.source + 1 else RIGHT if self.to > self.source else LEFT

    @property
    def width(self) -> float:
        """Width of the text."""
        return max((text_width(line) * SMALL_CHARACTER for line in self.lines), default=0.0)

    @property
    def height(self) -> float:
        """Height of the text."""
        return len(self.lines) * SMALL_LINE

    def overlaps(self, other: Arrow) -> bool:
        """Whether the two would meet in one lane. Where one ends, another may begin."""
        (low, high), (first, last) = sorted((self.source, self.to)), sorted((other.source, other.to))
        return low < last and first < high


@dataclass(kw_only=True)
class Box:
    """A step, or the start or the end (`step` is None). `small` holds the lines below the name."""

    step: str | None
    kind: str
    name: str
    full_name: str
    small: tuple[str, ...] = ()
    #: The middle.
    y: float = 0.0
    height: float = 0.0
    #: Where arrows meet the box, from top to bottom: an arrow, and whether it begins here.
    ports: dict[int, list[tuple[Arrow, bool]]] = field(default_factory=dict)

    @property
    def width(self) -> float:
        """Width of the box."""
        small = max((text_width(line) * SMALL_CHARACTER for line in self.small), default=0.0)
        return max(SMALLEST, text_width(self.name) * ID_CHARACTER + 2 * PADDING, small + 2 * PADDING)

    @property
    def text_height(self) -> float:
        """Height that the texts need."""
        return 36.0 + len(self.small) * SMALL_LINE


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The size in pixels, the middle of the column, and what is drawn."""

    width: float
    height: float
    x: float
    boxes: Sequence[Box]
    arrows: Sequence[Arrow]


def graph_svg(
    agent: AgentDefinition,
    path: Sequence[PathEdge] | None = None,
    *,
    costs: Mapping[StepPair, str] | None = None,
    links: Mapping[str, str] | None = None,
    exposures: Sequence[Exposure] = (),
) -> str:
    """Return a picture that needs no font, script or network. `links` maps steps to places in the page that contains
    the picture. With `links`, the picture has no style sheet of its own."""
    layout = lay_out(flow_graph(agent, path, exposures), costs or {})
    return render(
        "graph.svg.j2",
        title=f"Step graph of {one_line(agent.name)}",
        style=read_text("graph.css") if links is None else "",
        layout=layout,
        # The run's path is drawn last, on top of the rest.
        arrows=sorted(layout.arrows, key=lambda arrow: arrow.walked),
        links=links or {},
        small_line=SMALL_LINE,
        figure=figure,
    )


def figure(value: float) -> str:
    """Format a number with no more digits than a picture needs."""
    return f"{value:.1f}".removesuffix(".0")


def lay_out(graph: FlowGraph, costs: Mapping[StepPair, str]) -> Layout:
    """Place all boxes and arrows."""
    boxes, arrows = _shapes(graph, costs)
    lanes = {side: _assign_lanes([arrow for arrow in arrows if arrow.side == side]) for side in (RIGHT, LEFT)}
    height = _stack(boxes, arrows)
    column = max(box.width for box in boxes) / 2
    texts = {side: max((each.width for each in arrows if each.side == side), default=0.0) for side in (RIGHT, LEFT)}
    reach = {side: column + (texts[side] + 3 * ASIDE + lanes[side] * LANE if lanes[side] else 0.0) for side in lanes}
    # The texts of arrows that lead straight down may be wider than anything else.
    down = max((2 * ASIDE + arrow.width for arrow in arrows if arrow.side == DOWN), default=0.0)
    x = MARGIN + reach[LEFT]
    ports = {id(arrow): dict[bool, float]() for arrow in arrows}
    for box in boxes:
        for stacked in box.ports.values():
            top = box.y - sum(_port_height(*port) for port in stacked) / 2
            for arrow, begins in stacked:
                top += _port_height(arrow, begins)
                ports[id(arrow)][begins] = top - PORT / 2
    for arrow in arrows:
        source, to = boxes[arrow.source], boxes[arrow.to]
        if arrow.side == DOWN:
            top, bottom = source.y + source.height / 2, to.y - to.height / 2
            arrow.curve = f"M{figure(x)},{figure(top)} V{figure(bottom)}"
            arrow.x, arrow.y = x + ASIDE + arrow.width / 2, (top + bottom) / 2 - 2
        else:
            begin, end, side = ports[id(arrow)][True], ports[id(arrow)][False], arrow.side
            lane = x + side * (column + texts[side] + 2 * ASIDE + (arrow.lane + 0.5) * LANE)
            edges = x + side * source.width / 2, x + side * to.width / 2
            arrow.curve = _bent(edges, lane, (begin, end), side)
            arrow.x, arrow.y = x + side * (column + ASIDE + arrow.width / 2), begin - 3 - arrow.height / 2
    return Layout(width=x + max(reach[RIGHT], down) + MARGIN, height=height, x=x, boxes=boxes, arrows=arrows)


def _shapes(graph: FlowGraph, costs: Mapping[StepPair, str]) -> tuple[list[Box], list[Arrow]]:
    """Return the boxes in file order, between the start and the end, and the arrows between them."""
    start, end = (Box(step=None, kind="terminal", name=name, full_name=name) for name in ("start", "end"))
    rows = {node.id: number for number, node in enumerate(graph.nodes, 1)}
    arrows = []
    for edge in graph.edges:
        figures = (f"×{edge.walked:,}" if edge.walked else "", costs.get((edge.source, edge.to), ""))
        passed = " · ".join(filter(None, figures))
        arrow = Arrow(
            source=0 if edge.source is None else rows[edge.source],
            to=len(rows) + 1 if edge.to is None else rows[edge.to],
            lines=tuple(one_line(text, LABEL_LIMIT) for text in (*edge.labels, passed) if text),
            walked=bool(edge.walked),
            declared=edge.declared,
        )
        arrows.append(arrow)
    return [start, *map(_step_box, graph.nodes), end], arrows


def _step_box(node: GraphNode) -> Box:
    visits = (count(node.visits, "visit"),) if node.visits else ()
    return Box(
        step=node.id,
        kind=f"{node_class(node)} risk" if node.is_risky else node_class(node),
        name=one_line(node.id, ID_LIMIT),
        full_name=one_line(f"{node.id}: {node.name}{f' ({node.kind})' if node.kind else ''}", 400),
        small=(*(one_line(line, LABEL_LIMIT) for line in node.lines), *visits),
    )


def _assign_lanes(arrows: Sequence[Arrow]) -> int:
    """Give each arrow of one side the first lane that is free, the short ones first. Return the number of lanes."""
    lanes: list[list[Arrow]] = []
    for arrow in sorted(arrows, key=lambda arrow: abs(arrow.to - arrow.source)):
        arrow.lane = next((at for at, lane in enumerate(lanes) if not any(map(arrow.overlaps, lane))), len(lanes))
        if arrow.lane == len(lanes):
            lanes.append([])
        lanes[arrow.lane].append(arrow)
    return len(lanes)


def _stack(boxes: Sequence[Box], arrows: Sequence[Arrow]) -> float:
    """Place the boxes below each other, high enough for all arrows that meet them. Return the height of the picture."""
    top = MARGIN
    for row, box in enumerate(boxes):
        for side in (RIGHT, LEFT):
            met = [(arrow, begins) for arrow in arrows if arrow.side == side for begins in (True, False)]
            box.ports[side] = sorted(
                (port for port in met if (port[0].source if port[1] else port[0].to) == row), key=_port_order
            )
        needed = max(sum(_port_height(*port) for port in stacked) for stacked in box.ports.values())
        box.height = max(box.text_height, needed + 8)
        box.y = top + box.height / 2
        below = max((arrow.height for arrow in arrows if arrow.side == DOWN and arrow.source == row), default=0.0)
        top += box.height + GAP + below
    return top - GAP + MARGIN


def _port_height(arrow: Arrow, begins: bool) -> float:
    return PORT + (max(0.0, arrow.height - SMALL_LINE / 2) if begins else 0.0)


def _port_order(port: tuple[Arrow, bool]) -> tuple[int, int]:
    """Order the arrows that meet a box so that they do not cross: those from and to the boxes above come first."""
    arrow, begins = port
    if arrow.source == arrow.to:
        return 1, 0
    is_above = begins == (arrow.side == LEFT)
    return (0, arrow.lane) if is_above else (2, -arrow.lane)


def _bent(edges: tuple[float, float], lane: float, heights: tuple[float, float], side: int) -> str:
    """Return a line out to a lane, along it, and back."""
    down = BEND if heights[1] > heights[0] else -BEND
    (start, end), (at, near) = map(figure, edges), map(figure, (lane, lane - side * BEND))
    first, last, turn, back = map(figure, (*heights, heights[0] + down, heights[1] - down))
    return f"M{start},{first} H{near} Q{at},{first} {at},{turn} V{back} Q{at},{last} {near},{last} H{end}"
