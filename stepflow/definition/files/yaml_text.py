"""The one reader of YAML: bounded in size, depth and what its aliases stand for; without dates or repeated keys."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import yaml
from yaml.composer import ComposerError
from yaml.constructor import ConstructorError

MOST_CHARACTERS = 4 * 1024 * 1024
#: With every alias written out. A recorded run of a hundred turns has a few thousand nodes.
MOST_NODES = 50_000
MOST_DEPTH = 100
#: No number, date or truth value needs more; PyYAML's time for a long number grows with its square.
LONGEST_PLAIN = 100
_TEXT = "tag:yaml.org,2002:str"
_TIMESTAMP = "tag:yaml.org,2002:timestamp"


class YamlFault(ValueError):
    """A text that is no YAML, or too much of it; `line` is 1-based, None where no line is to blame."""

    def __init__(self, problem: str, line: int | None = None) -> None:
        super().__init__(problem)
        self.problem = problem
        self.line = line


def read_yaml(text: str, *, build: bool = True) -> tuple[yaml.Node | None, Any]:
    """The nodes of a text, for their lines, and the data unless only its form is to be checked. Raises `YamlFault`."""
    if len(text) > MOST_CHARACTERS:
        raise YamlFault(f"it has more than {MOST_CHARACTERS // 1024 // 1024} MiB of text")
    try:
        loader = _YamlLoader(text)
        node = loader.get_single_node()
        return node, loader.construct_document(node) if build and node is not None else None
    except (yaml.YAMLError, RecursionError, ValueError, TypeError) as exc:
        raise _fault(exc) from exc


def _fault(error: Exception) -> YamlFault:
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark
        return YamlFault(str(error.problem or error.context), mark.line + 1 if mark else None)
    return YamlFault("it is nested too deep" if isinstance(error, RecursionError) else str(error))


class _YamlLoader(yaml.SafeLoader):
    """Knows of each node what it comes to with its aliases written out, before anything is built from it."""

    def __init__(self, text: str) -> None:
        #: Nodes, characters and levels, by the node's id: all nodes live as long as this loader.
        self._sizes: dict[int, tuple[int, int, int]] = {}
        self._depth = 0
        super().__init__(text)

    def compose_node(self, parent: yaml.Node | None, index: int | yaml.Node | None) -> yaml.Node | None:
        event: yaml.Event = self.peek_event()  # type: ignore[no-untyped-call]
        again = isinstance(event, yaml.AliasEvent)
        self._depth += 1
        _demand(len(self._sizes) <= MOST_NODES, f"it has more than {MOST_NODES} nodes", event)
        _demand(self._depth <= MOST_DEPTH, f"it is nested more than {MOST_DEPTH} levels deep", event)
        node = super().compose_node(parent, index)  # type: ignore[arg-type]
        self._depth -= 1
        if again:
            _demand(id(node) in self._sizes, "a node holds itself", event)
        elif node is not None:
            self._sizes[id(node)] = self._size(node, event)
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            name = str(key.value)
            if name in seen:
                # Mostly a forgotten dash: the second turn would silently replace the first.
                raise ConstructorError(problem=f"the key {name!r} appears twice", problem_mark=key.start_mark)
            seen.add(name)
        return super().construct_mapping(node, deep)

    def _size(self, node: yaml.Node, event: yaml.Event) -> tuple[int, int, int]:
        if isinstance(node, yaml.ScalarNode):
            _demand(node.tag == _TEXT or len(node.value) <= LONGEST_PLAIN, "a value that is no text is too long", event)
            return 1, len(node.value), 1
        pairs = isinstance(node, yaml.MappingNode)
        inside = [part for pair in node.value for part in pair] if pairs else node.value
        sizes = [self._sizes[id(part)] for part in inside]
        nodes, characters = 1 + sum(size[0] for size in sizes), sum(size[1] for size in sizes)
        depth = 1 + max((size[2] for size in sizes), default=0)
        _demand(nodes <= MOST_NODES, f"it has more than {MOST_NODES} nodes with its aliases written out", event)
        _demand(characters <= MOST_CHARACTERS, "its aliases stand for too much text", event)
        _demand(depth <= MOST_DEPTH, f"it is nested more than {MOST_DEPTH} levels deep", event)
        return nodes, characters, depth


_YamlLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != _TIMESTAMP]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _demand(holds: bool, problem: str, event: yaml.Event) -> None:
    if not holds:
        raise ComposerError(problem=problem, problem_mark=event.start_mark)  # type: ignore[arg-type]
