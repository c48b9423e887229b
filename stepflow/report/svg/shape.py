"""What the picture of a graph is made of, before it has places.

Takes: `FlowGraph`. Gives: boxes and arrows with their texts and sizes in pixels.
May touch: nothing.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepflow.domain.figures import count
from stepflow.report.plain import one_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepflow.report.graph import FlowGraph, GraphEdge, GraphNode

ID_LIMIT = 40
LABEL_LIMIT = 36
#: Width of one character in pixels at the sizes of graph.css; wide ones, such as Chinese, take two.
ID_CHARACTER = 7.9
SMALL_CHARACTER = 6.7
ID_LINE = 20.0
SMALL_LINE = 16.0
PADDING = 14.0
SMALLEST = 96.0
#: A loop stands to the right of its box.
LOOP = 30.0

Way = tuple[str | None, str | None]


@dataclass(frozen=True, kw_only=True)
class Box:
    """A step, or the start or the end (`step` is None). `small` are the lines below the name."""

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
        """How far the box and its loop reach from its middle to the right."""
        return self.width / 2 + (LOOP + self.loop.width if self.loop else 0.0)


@dataclass(frozen=True, kw_only=True)
class Arrow:
    """All ways from one box to another. `lines` are the texts on it."""

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


def shapes(graph: FlowGraph, costs: Mapping[Way, str]) -> tuple[list[Box], list[Arrow]]:
    """Boxes in file order between start and end, and the arrows between different ones; loops belong to their box."""
    numbers: dict[str, int] = {node.id: number for number, node in enumerate(graph.nodes, 1)}
    end = len(graph.nodes) + 1
    drawn = [_arrow(edge, numbers, end, costs) for edge in graph.edges]
    loops = {arrow.source: arrow for arrow in drawn if arrow.source == arrow.to}
    start = Box(number=0, step=None, kind="terminal", name="start", full_name="start")
    boxes = [start, *(_box(node, numbers[node.id], loops.get(numbers[node.id])) for node in graph.nodes)]
    boxes.append(Box(number=end, step=None, kind="terminal", name="end", full_name="end"))
    return boxes, [arrow for arrow in drawn if arrow.source != arrow.to]


def text_width(text: str) -> int:
    """How many columns a text takes in a monospaced font."""
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


def _box(node: GraphNode, number: int, loop: Arrow | None) -> Box:
    small = [one_line(node.name, LABEL_LIMIT)] if node.name and node.name != node.id else []
    small += [f"✓ {one_line(validator, LABEL_LIMIT)}" for validator in node.validators]
    small += ["unreachable"] if not node.reachable else []
    small += [count(node.visits, "visit")] if node.visits else []
    return Box(
        number=number,
        step=node.id,
        kind="unreachable" if not node.reachable else node.kind.value if node.kind else "plain",
        name=one_line(node.id, ID_LIMIT),
        full_name=one_line(f"{node.id}: {node.name}{f' ({node.kind})' if node.kind else ''}", 400),
        small=tuple(small),
        loop=loop,
    )


def _arrow(edge: GraphEdge, numbers: Mapping[str, int], end: int, costs: Mapping[Way, str]) -> Arrow:
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
