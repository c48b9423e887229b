"""Draws the step graph as SVG: kinds by color, intents on the arrows, validators in the closures, the run's path thick.

Boxes and arrows are arranged in layers, by Sugiyama's method. The layout library gets only numbers, never text.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from fast_sugiyama import from_edges

from stepflow.domain.agent.definition import AgentDefinition, Exposure
from stepflow.domain.text import count
from stepflow.report.flow_graph import FlowGraph, GraphEdge, GraphNode, PathEdge, flow_graph, node_class
from stepflow.report.safe_text import one_line, read_text, render
from stepflow.report.safe_text import width as text_width

ID_LIMIT = 40
LABEL_LIMIT = 36
#: Width of one character in pixels at the font sizes of graph.css. Wide characters, such as Chinese, take two.
ID_CHARACTER = 7.9
SMALL_CHARACTER = 6.7
ID_LINE = 20.0
SMALL_LINE = 16.0
PADDING = 14.0
SMALLEST = 96.0
#: Space for a loop, which is drawn to the right of its box.
LOOP = 30.0
#: Distance from an arrow to its text on the right.
ASIDE = 2.0
StepPair = tuple[str | None, str | None]
Point = tuple[float, float]
#: Gaps between neighbors in a layer, and between layers.
GAP_X = 26.0
GAP_Y = 24.0
#: Gap between two columns that have no neighbors in any layer.
STEP_X = 6.0
MARGIN = 16.0


@dataclass(frozen=True, kw_only=True)
class Box:
    """A step, or the start or the end (`step` is None). `small` holds the lines below the name."""

    number: int
    step: str | None
    kind: str
    name: str
    full_name: str
    small: tuple[str, ...] = ()
    loop: Arrow | None = None

    @property
    def width(self) -> float:
        """Width of the box itself."""
        small = max((text_width(line) * SMALL_CHARACTER for line in self.small), default=0.0)
        return max(SMALLEST, text_width(self.name) * ID_CHARACTER + 2 * PADDING, small + 2 * PADDING)

    @property
    def height(self) -> float:
        """Height of the box."""
        return ID_LINE + len(self.small) * SMALL_LINE + 2 * 8.0

    @property
    def right(self) -> float:
        """Distance from the middle of the box to the right edge of the box and its loop."""
        return self.width / 2 + (LOOP + self.loop.width if self.loop else 0.0)


@dataclass(frozen=True, kw_only=True)
class Arrow:
    """All routes from one box to another. `lines` are its text."""

    source: int
    to: int
    lines: tuple[str, ...]
    walked: bool
    declared: bool

    @property
    def width(self) -> float:
        """Width of the texts."""
        return max((text_width(line) * SMALL_CHARACTER + 10.0 for line in self.lines), default=0.0)

    @property
    def height(self) -> float:
        """Height of the texts."""
        return len(self.lines) * SMALL_LINE


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
    boxes, arrows = shapes(flow_graph(agent, path, exposures), costs or {})
    layout = lay_out(boxes, arrows)
    drawn = [
        (arrow, _curve(points), label) for arrow, points, label in zip(arrows, layout.paths, layout.labels, strict=True)
    ]
    drawn += [(box.loop, *_loop(box, *layout.boxes[box.number])) for box in boxes if box.loop]
    return render(
        "graph.svg.j2",
        title=f"Step graph of {one_line(agent.name)}",
        style=read_text("graph.css") if links is None else "",
        width=figure(layout.width),
        height=figure(layout.height),
        # The run's path is drawn last, on top of the rest.
        arrows=sorted(drawn, key=lambda each: each[0].walked),
        boxes=[(box, *layout.boxes[box.number], (links or {}).get(box.step or "", "")) for box in boxes],
        aside=ASIDE,
        small_line=SMALL_LINE,
        figure=figure,
    )


def _loop(box: Box, x: float, y: float) -> tuple[str, Point]:
    """Return the curve of a box's loop, and the position of its texts."""
    edge, far, reach = x + box.width / 2, x + box.width / 2 + LOOP, box.height / 4
    start, end = f"M{figure(edge)},{figure(y - reach)}", f"{figure(edge)},{figure(y + reach)}"
    bend = f"C{figure(far)},{figure(y - reach - 8)} {figure(far)},{figure(y + reach + 8)}"
    return f"{start} {bend} {end}", (far - 4.0 - ASIDE, y)


def _curve(points: Sequence[Point]) -> str:
    """Return a curve through all points that is vertical at each of them."""
    words = [f"M{figure(points[0][0])},{figure(points[0][1])}"]
    for (x, y), (to_x, to_y) in pairwise(points):
        half = figure((y + to_y) / 2)
        bend = f"C{figure(x)},{half} {figure(to_x)},{half} " if x != to_x else "L"
        words.append(f"{bend}{figure(to_x)},{figure(to_y)}")
    return " ".join(words)


def figure(value: float) -> str:
    """Format a number with no more digits than a picture needs."""
    return f"{value:.1f}".removesuffix(".0")


def shapes(graph: FlowGraph, costs: Mapping[StepPair, str]) -> tuple[list[Box], list[Arrow]]:
    """Return the boxes in file order, with the start and the end, and the arrows between different boxes. Loops belong
    to their box."""
    numbers: dict[str, int] = {node.id: number for number, node in enumerate(graph.nodes, 1)}
    end = len(graph.nodes) + 1
    drawn = [_edge_arrow(edge, numbers, end, costs) for edge in graph.edges]
    loops = {arrow.source: arrow for arrow in drawn if arrow.source == arrow.to}
    start = Box(number=0, step=None, kind="terminal", name="start", full_name="start")
    boxes = [start, *(_step_box(node, numbers[node.id], loops.get(numbers[node.id])) for node in graph.nodes)]
    boxes.append(Box(number=end, step=None, kind="terminal", name="end", full_name="end"))
    return boxes, [arrow for arrow in drawn if arrow.source != arrow.to]


def _step_box(node: GraphNode, number: int, loop: Arrow | None) -> Box:
    visits = (count(node.visits, "visit"),) if node.visits else ()
    return Box(
        number=number,
        step=node.id,
        kind=f"{node_class(node)} risk" if node.is_risky else node_class(node),
        name=one_line(node.id, ID_LIMIT),
        full_name=one_line(f"{node.id}: {node.name}{f' ({node.kind})' if node.kind else ''}", 400),
        small=(*(one_line(line, LABEL_LIMIT) for line in node.lines), *visits),
        loop=loop,
    )


def _edge_arrow(edge: GraphEdge, numbers: Mapping[str, int], end: int, costs: Mapping[StepPair, str]) -> Arrow:
    walked = [f"×{edge.walked:,}"] if edge.walked else []
    cost = costs.get((edge.source, edge.to), "")
    figures = [" · ".join([*walked, cost])] if cost else walked
    return Arrow(
        source=0 if edge.source is None else numbers[edge.source],
        to=end if edge.to is None else numbers[edge.to],
        lines=(*(one_line(label, LABEL_LIMIT) for label in edge.labels), *figures),
        walked=bool(edge.walked),
        declared=edge.declared,
    )


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Positions in pixels. `paths` and `labels` are in the order of the arrows."""

    width: float
    height: float
    #: The middle of each box, by its number.
    boxes: Mapping[int, Point]
    #: The points of each arrow, beginning at its source.
    paths: Sequence[Sequence[Point]]
    #: The middle of each arrow's text.
    labels: Sequence[Point]


@dataclass(frozen=True, kw_only=True)
class Slot:
    """A place in a layer, for a box, an arrow's text, or an arrow that passes through."""

    left: float = 0.0
    right: float = 0.0
    height: float = 0.0


def lay_out(boxes: Sequence[Box], arrows: Sequence[Arrow]) -> Layout:
    """Find a place for all boxes and arrows. Each arrow has its text in its own layer between the layers of its
    boxes."""
    back = backward(len(boxes), arrows)
    slots = {box.number: Slot(left=box.width / 2, right=box.right, height=box.height) for box in boxes}
    chains: list[list[int]] = []
    for number, arrow in enumerate(arrows):
        text = len(boxes) + number
        slots[text] = Slot(left=ASIDE, right=ASIDE + arrow.width, height=arrow.height)
        ends = (arrow.to, arrow.source) if number in back else (arrow.source, arrow.to)
        chains.append([ends[0], text, ends[1]])
    rough, passed = _rough([*slots], chains)
    xs, layers = _spread(rough, slots)
    bands = _bands(layers, slots)
    middles = {slot: (x, sum(bands[slot]) / 2) for slot, x in xs.items()}
    whole = [_through(chain, passed) for chain in chains]
    ports = _ports(whole, boxes, xs)
    paths = [_path(chain, middles, bands, slots, ports) for chain in whole]
    return Layout(
        width=max(x + slots.get(slot, Slot()).right for slot, x in xs.items()) + MARGIN,
        height=max(bottom for _, bottom in bands.values()) + MARGIN,
        boxes={box.number: middles[box.number] for box in boxes},
        paths=[path[::-1] if number in back else path for number, path in enumerate(paths)],
        labels=[middles[len(boxes) + number] for number in range(len(arrows))],
    )


def backward(boxes: int, arrows: Sequence[Arrow]) -> frozenset[int]:
    """Return the arrows that lead backward, so that the others form no cycle."""
    leaving: dict[int, list[int]] = defaultdict(list)
    for number, arrow in enumerate(arrows):
        leaving[arrow.source].append(number)
    done: set[int] = set()
    back: set[int] = set()
    #: The boxes from the root to the current one, each with its arrows that were not yet followed.
    on_path: dict[int, Iterator[int]] = {}
    for root in range(boxes):
        if root not in done:
            on_path[root] = iter(leaving[root])
        while on_path:
            box = next(reversed(on_path))
            following = next(on_path[box], None)
            if following is None:
                done.add(box)
                del on_path[box]
            elif (to := arrows[following].to) in on_path:
                back.add(following)
            elif to not in done:
                on_path[to] = iter(leaving[to])
    return frozenset(back)


def _rough(slots: Iterable[int], chains: Iterable[Sequence[int]]) -> tuple[dict[int, Point], dict[int, list[int]]]:
    """Return positions in units of one, with layer 0 at the top, and which slots follow each slot on the arrows that
    pass it."""
    edges = [pair for chain in chains for pair in pairwise(chain)]
    parts = from_edges(edges, vertex_spacing=1, dummy_vertices=True) if edges else []
    places: dict[int, Point] = {}
    passed: dict[int, list[int]] = defaultdict(list)
    known, aside, dummies = set(slots), 0.0, 0
    for positions, width, height, lines in parts:
        # The numbers of slots that arrows only pass through may repeat in another part of the graph.
        own = {slot: slot if slot in known else -(dummies + int(slot)) for slot, _ in positions}
        dummies += max(map(int, own))
        places |= {int(own[slot]): (aside + x, height - y) for slot, (x, y) in positions}
        for source, to in lines or ():
            passed[int(own[source])].append(int(own[to]))
        aside += width + 1
    for slot in sorted(known - places.keys()):
        places[slot] = (aside, 0.0)
        aside += 1
    return places, passed


def _through(chain: Sequence[int], passed: Mapping[int, list[int]]) -> list[int]:
    """Return the whole chain of an arrow, with the slots that it passes through. Those are negative, and each has one
    successor."""
    whole = [chain[0]]
    for source, to in pairwise(chain):
        for first in sorted(passed[source]):
            path = [first]
            while path[-1] < 0:
                path.append(passed[path[-1]][0])
            if path[-1] == to:
                whole += path
                break
    return whole


def _spread(rough: Mapping[int, Point], slots: Mapping[int, Slot]) -> tuple[dict[int, float], dict[int, int]]:
    """Convert units to pixels, and keep columns aligned. Also return the layer of each slot."""
    heights = sorted({round(y, 3) for _, y in rough.values()})
    layers = {slot: heights.index(round(y, 3)) for slot, (_, y) in rough.items()}
    places = sorted({round(x, 3) for x, _ in rough.values()})
    columns = {slot: places.index(round(x, 3)) for slot, (x, _) in rough.items()}
    rows: dict[int, list[int]] = defaultdict(list)
    for slot in sorted(rough, key=lambda slot: (columns[slot], slot)):
        rows[layers[slot]].append(slot)
    none = Slot()
    needs: dict[tuple[int, int], float] = defaultdict(float)
    for row in rows.values():
        for one, two in pairwise(row):
            space = slots.get(one, none).right + slots.get(two, none).left + GAP_X
            needs[columns[one], columns[two]] = max(needs[columns[one], columns[two]], space)
    across = _columns(len(places), needs)
    shift = MARGIN - min(across[column] - slots.get(slot, none).left for slot, column in columns.items())
    return {slot: across[column] + shift for slot, column in columns.items()}, layers


def _columns(count: int, needs: Mapping[tuple[int, int], float]) -> list[float]:
    """Return the position of each column, with the space that neighboring columns need. Each position is halfway
    between the leftmost and the rightmost one possible in the narrowest picture."""
    wanted = sorted({**{(column, column + 1): STEP_X for column in range(count - 1)}, **needs}.items())
    left = [0.0] * count
    for (one, two), space in sorted(wanted, key=lambda need: need[0][1]):
        left[two] = max(left[two], left[one] + space)
    right = [left[-1]] * count
    for (one, two), space in sorted(wanted, key=lambda need: -need[0][0]):
        right[one] = min(right[one], right[two] - space)
    return [(least + most) / 2 for least, most in zip(left, right, strict=True)]


def _bands(layers: Mapping[int, int], slots: Mapping[int, Slot]) -> dict[int, Point]:
    """Return the top and bottom of each slot's layer."""
    heights: dict[int, float] = defaultdict(float)
    for slot, layer in layers.items():
        heights[layer] = max(heights[layer], slots.get(slot, Slot()).height)
    bands: dict[int, Point] = {}
    top = MARGIN
    for layer in sorted(heights):
        bands[layer] = (top, top + heights[layer])
        top += heights[layer] + GAP_Y
    return {slot: bands[layer] for slot, layer in layers.items()}


def _ports(
    chains: Iterable[Sequence[int]], boxes: Sequence[Box], xs: Mapping[int, float]
) -> dict[tuple[int, int], float]:
    """Return where each chain ends on a box's edge, by box and next slot. Ends are side by side, in the order of where
    they lead."""
    sides: dict[tuple[int, str], list[int]] = defaultdict(list)
    for chain in chains:
        sides[chain[0], "below"].append(chain[1])
        sides[chain[-1], "above"].append(chain[-2])
    ports: dict[tuple[int, int], float] = {}
    for (box, _), nexts in sides.items():
        ordered = sorted(nexts, key=lambda slot: (xs[slot], slot))
        space = boxes[box].width - 24.0
        step = min(26.0, space / max(1, len(ordered) - 1))
        for position, slot in enumerate(ordered):
            ports[box, slot] = xs[box] + (position - (len(ordered) - 1) / 2) * step
    return ports


def _path(
    chain: Sequence[int],
    middles: Mapping[int, Point],
    bands: Mapping[int, Point],
    slots: Mapping[int, Slot],
    ports: Mapping[tuple[int, int], float],
) -> list[Point]:
    """Return a path from the lower edge of the first box, straight down through each layer, to the upper edge of the
    last."""
    first, last = chain[0], chain[-1]
    path = [(ports[first, chain[1]], middles[first][1] + slots[first].height / 2)]
    for slot in chain[1:-1]:
        path += [(middles[slot][0], edge) for edge in bands[slot]]
    path.append((ports[last, chain[-2]], middles[last][1] - slots[last].height / 2))
    return path
