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
#: Height of the place where an arrow without a text meets a box.
PORT = 18.0
RIGHT, LEFT, DOWN = 1, -1, 0


@dataclass(kw_only=True)
class Arrow:
    """All routes from one row to another, with their text. Of the lanes on one side, 0 is next to the boxes."""

    source: int
    to: int
    lines: tuple[str, ...]
    walked: bool
    declared: bool
    lane: int = 0
    #: Where the lane is, and the middle of the text. The middle of the column is 0.
    lane_x: float = 0.0
    x: float = 0.0
    y: float = 0.0
    #: Where the arrow begins (true) and ends (false).
    heights: dict[bool, float] = field(default_factory=dict)

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
    """A step, or the start or the end (`step` is None). `small` holds the lines below the name, `y` is the middle."""

    step: str | None
    kind: str
    name: str
    full_name: str
    small: tuple[str, ...] = ()
    y: float = 0.0
    height: float = 0.0

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
    """What is drawn, in pixels: from `left` of the middle of the column to `right` of it."""

    left: float
    right: float
    height: float
    boxes: Sequence[Box]
    arrows: Sequence[Arrow]


def graph_svg(
    agent: AgentDefinition,
    path: Sequence[PathEdge] | None = None,
    *,
    costs: Mapping[tuple[str | None, str | None], str] | None = None,
    links: Mapping[str, str] | None = None,
    exposures: Sequence[Exposure] = (),
) -> str:
    """Return a picture that needs no font, script or network. `links` maps steps to places in the page that contains
    the picture. With `links`, the picture has no style sheet of its own."""
    return render(
        "graph.svg.j2",
        title=f"Step graph of {one_line(agent.name)}",
        style=read_text("graph.css") if links is None else "",
        layout=lay_out(flow_graph(agent, path, exposures), costs or {}),
        links=links or {},
        small_line=SMALL_LINE,
    )


def lay_out(graph: FlowGraph, costs: Mapping[tuple[str | None, str | None], str]) -> Layout:
    """Place all boxes and arrows."""
    boxes, arrows = _shapes(graph, costs)
    column = max(box.width for box in boxes) / 2
    sides = {side: [arrow for arrow in arrows if arrow.side == side] for side in (LEFT, DOWN, RIGHT)}
    # The texts of arrows that lead straight down may be wider than anything else.
    reach = {DOWN: max((2 * ASIDE + arrow.width for arrow in sides[DOWN]), default=0.0)}
    for side in (LEFT, RIGHT):
        lanes = _assign_lanes(sides[side])
        texts = column + max((arrow.width for arrow in sides[side]), default=0.0) + 2 * ASIDE
        reach[side] = texts + lanes * LANE + ASIDE if lanes else column
        for arrow in sides[side]:
            arrow.lane_x = side * (texts + (arrow.lane + 0.5) * LANE)
            arrow.x = side * (column + ASIDE + arrow.width / 2)
    top = MARGIN
    for row, box in enumerate(boxes):
        _place_ports(box, row, top, sides)
        top += box.height
        for arrow in (arrow for arrow in sides[DOWN] if arrow.source == row):
            arrow.heights = {True: top, False: top + GAP + arrow.height}
            arrow.x, arrow.y = ASIDE + arrow.width / 2, top + (GAP + arrow.height) / 2 - 2
            top += arrow.height
        top += GAP
    right = max(reach[RIGHT], reach[DOWN]) + MARGIN
    # The run's path is drawn last, on top of the rest.
    arrows.sort(key=lambda arrow: arrow.walked)
    return Layout(left=reach[LEFT] + MARGIN, right=right, height=top - GAP + MARGIN, boxes=boxes, arrows=arrows)


def _shapes(graph: FlowGraph, costs: Mapping[tuple[str | None, str | None], str]) -> tuple[list[Box], list[Arrow]]:
    """Return the boxes in file order, between the start and the end, and the arrows between them."""
    start, end = (Box(step=None, kind="terminal", name=name, full_name=name) for name in ("start", "end"))
    rows = {node.id: number for number, node in enumerate(graph.nodes, 1)}
    arrows = []
    for edge in graph.edges:
        passed = (f"×{edge.walked:,}" if edge.walked else "", costs.get((edge.source, edge.to), ""))
        texts = (*edge.labels, " · ".join(filter(None, passed)))
        arrow = Arrow(
            source=0 if edge.source is None else rows[edge.source],
            to=len(rows) + 1 if edge.to is None else rows[edge.to],
            lines=tuple(one_line(text, LABEL_LIMIT) for text in texts if text),
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


def _place_ports(box: Box, row: int, top: float, sides: Mapping[int, Sequence[Arrow]]) -> None:
    """Place a box, high enough for all arrows that meet it, and their ends."""
    stacks = []
    for side in (LEFT, RIGHT):
        begins = [(arrow, True) for arrow in sides[side] if arrow.source == row]
        ends = [(arrow, False) for arrow in sides[side] if arrow.to == row]
        stacks.append(sorted(begins + ends, key=_port_order))
    needed = [sum(_port_height(*port) for port in stack) for stack in stacks]
    box.height = max(box.text_height, *(height + 8 for height in needed))
    box.y = top + box.height / 2
    for stack, height in zip(stacks, needed, strict=True):
        at = box.y - height / 2
        for arrow, is_begin in stack:
            at += _port_height(arrow, is_begin)
            arrow.heights[is_begin] = at - PORT / 2
            if is_begin:
                arrow.y = at - PORT / 2 - 3 - arrow.height / 2


def _port_height(arrow: Arrow, begins: bool) -> float:
    return PORT + (max(0.0, arrow.height - SMALL_LINE / 2) if begins else 0.0)


def _port_order(port: tuple[Arrow, bool]) -> tuple[int, int]:
    """Order the arrows that meet a box so that they do not cross: those from and to the boxes above come first."""
    arrow, begins = port
    if arrow.source == arrow.to:
        return 1, 0
    is_above = begins == (arrow.side == LEFT)
    return (0, arrow.lane) if is_above else (2, -arrow.lane)
