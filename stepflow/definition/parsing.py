"""Strict JSON with the place of each value, and YAML within bounds, without dates and repeated keys."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Hashable
from dataclasses import dataclass, field
from json.decoder import scanstring  # type: ignore[attr-defined]  # typeshed leaves it out
from typing import Any

import yaml
from yaml.composer import ComposerError
from yaml.constructor import ConstructorError

from stepflow.domain.json import JsonValue

#: A file nested deeper than this is refused: no author writes one, and every walk may recurse then.
MAX_DEPTH = 100


class Pointer(str):
    """A JSON Pointer (RFC 6901); `/` goes on to a member or an item."""

    __slots__ = ()

    def __truediv__(self, key: str | int) -> Pointer:
        return Pointer(f"{self}/{str(key).replace('~', '~0').replace('/', '~1')}")


class JsonFault(Exception):
    """The text is not JSON; `line` and `column` are 1-based when they are known."""

    def __init__(self, message: str, line: int | None = None, column: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.column = column


def parse_json(text: str) -> JsonValue:
    """Read a strict JSON text; of a repeated key it is the last value. Raises `JsonFault`."""
    try:
        value: JsonValue = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
    except json.JSONDecodeError as exc:
        message = f"is not JSON: {exc.msg} at line {exc.lineno}, column {exc.colno}"
        raise JsonFault(message, exc.lineno, exc.colno) from exc
    except RecursionError as exc:
        raise JsonFault(_TOO_DEEP) from exc
    except ValueError as exc:
        raise JsonFault(f"is not JSON that can be read: {exc}") from exc
    _check_depth(value)
    _check_unicode(value)
    return value


def keys_of(pointer: str) -> list[str]:
    """The parts of a JSON Pointer: keys as they are written in the file, and indexes."""
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]


def node_at(document: JsonValue, pointer: str) -> JsonValue:
    """The value at a JSON Pointer; None if there is none."""
    node = document
    for key in keys_of(pointer):
        if isinstance(node, dict):
            node = node.get(key)
        elif isinstance(node, list) and key.isascii() and key.isdigit() and len(key) < 9 and int(key) < len(node):
            node = node[int(key)]
        else:
            return None
    return node


def last_key(pointer: str) -> str:
    """The last key or index of a JSON Pointer; empty for the whole document."""
    return "".join(keys_of(pointer)[-1:])


_TOO_DEEP = f"is nested deeper than {MAX_DEPTH} levels"


def _refuse_constant(word: str) -> float:
    raise ValueError(f"{word} is not a JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"the number {text[:40]} is too large")
    return number


def _check_depth(value: JsonValue) -> None:
    level = [value]
    for _ in range(MAX_DEPTH):
        inner: list[JsonValue] = []
        for item in level:
            if isinstance(item, dict):
                inner.extend(item.values())
            elif isinstance(item, list):
                inner.extend(item)
        if not inner:
            return
        level = inner
    raise JsonFault(_TOO_DEEP)


def _check_unicode(value: JsonValue) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as exc:
        raise JsonFault("contains half of a surrogate pair as a \\u escape, which is not a character") from exc


_SPACE = re.compile(r"[ \t\n\r]*")
_SCALAR = re.compile(r"[^\s,\]}]+")


def repeats_key(text: str) -> bool:
    """Return whether an object has a key twice, in a text that `parse_json` has accepted."""
    repetitions = 0

    def count(members: list[tuple[str, JsonValue]]) -> None:
        nonlocal repetitions
        repetitions += len(members) - len({name for name, _ in members})

    json.loads(text, object_pairs_hook=count)
    return repetitions > 0


@dataclass(frozen=True)
class Span:
    """Start and end offsets of a value, and of its key with the quotes if it has one."""

    start: int
    end: int
    key: tuple[int, int] | None = None


@dataclass
class Positions:
    """Where everything is in a text that `parse_json` has accepted.

    `spans` maps a JSON Pointer to its span; for a repeated key that is the last one, which is read. `repeated` has the
    pointer and line of each repetition.
    """

    text: str
    spans: dict[str, Span] = field(default_factory=dict)
    repeated: list[tuple[str, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._value(Pointer(), self._skip(0))

    def nearest(self, pointer: str) -> Span:
        """The span at a pointer, or of the innermost value around it that exists."""
        while pointer not in self.spans:
            pointer = pointer.rpartition("/")[0]
        return self.spans[pointer]

    def line(self, at: int) -> int:
        """The line of an offset, 1-based."""
        return self.text.count("\n", 0, at) + 1

    # The methods of the scan take and return offsets.

    def _skip(self, at: int) -> int:
        match = _SPACE.match(self.text, at)
        return match.end() if match else at

    def _value(self, pointer: Pointer, at: int, key: tuple[int, int] | None = None) -> int:
        if self.text[at] in "{[":
            end = self._members(pointer, at)
        elif self.text[at] == '"':
            end = int(scanstring(self.text, at + 1)[1])
        else:
            match = _SCALAR.match(self.text, at)
            end = match.end() if match else at
        self.spans[pointer] = Span(at, end, key)
        return end

    def _members(self, pointer: Pointer, start: int) -> int:
        """The members of an object, or the items of an array."""
        seen: set[str | int] = set()
        at = self._skip(start + 1)
        while self.text[at] not in "}]":
            name, key = len(seen), None
            if self.text[start] == "{":
                name, end = scanstring(self.text, at + 1)
                key = (at, end)
                at = self._skip(self._skip(end) + 1)
                if name in seen:
                    self.repeated.append((pointer / name, self.line(key[0])))
            seen.add(name)
            at = self._skip(self._value(pointer / name, at, key))
            if self.text[at] == ",":
                at = self._skip(at + 1)
        return at + 1


MOST_CHARACTERS = 4 * 1024 * 1024
#: With all aliases expanded. A recorded run of a hundred turns has a few thousand nodes.
MOST_NODES = 50_000
#: No number, date or boolean needs more; PyYAML's time for a long number grows with its square.
LONGEST_PLAIN = 100
_TEXT = "tag:yaml.org,2002:str"
_TIMESTAMP = "tag:yaml.org,2002:timestamp"


class YamlFault(ValueError):
    """A text that is not YAML, or exceeds a limit; `line` is 1-based, None if the fault is not on one line."""

    def __init__(self, problem: str, line: int | None = None) -> None:
        super().__init__(problem)
        self.problem = problem
        self.line = line


def read_yaml(text: str, *, build: bool = True) -> tuple[yaml.Node | None, Any]:
    """The nodes of a text, for their lines, and with `build` its data. Raises `YamlFault`."""
    if len(text) > MOST_CHARACTERS:
        raise YamlFault(f"it has more than {MOST_CHARACTERS // 1024 // 1024} MiB of text")
    try:
        loader = _YamlLoader(text)
        node = loader.get_single_node()
        return node, loader.construct_document(node) if build and node is not None else None
    except yaml.MarkedYAMLError as exc:
        mark = exc.problem_mark
        raise YamlFault(str(exc.problem or exc.context), mark.line + 1 if mark else None) from exc
    except RecursionError as exc:
        raise YamlFault("it is nested too deep") from exc
    except (yaml.YAMLError, ValueError, TypeError) as exc:
        raise YamlFault(str(exc)) from exc


class _YamlLoader(yaml.SafeLoader):
    """Measures each node with its aliases expanded, before anything is built from it."""

    def __init__(self, text: str) -> None:
        #: Node id → nodes, characters and levels; all nodes live as long as this loader.
        self._sizes: dict[int, tuple[int, int, int]] = {}
        self._depth = 0
        super().__init__(text)

    def compose_node(self, parent: yaml.Node | None, index: int | yaml.Node | None) -> yaml.Node | None:
        event: yaml.Event = self.peek_event()  # type: ignore[no-untyped-call]
        again = isinstance(event, yaml.AliasEvent)
        self._depth += 1
        _demand(len(self._sizes) <= MOST_NODES, f"it has more than {MOST_NODES} nodes", event)
        _demand(self._depth <= MAX_DEPTH, f"it is nested more than {MAX_DEPTH} levels deep", event)
        node = super().compose_node(parent, index)  # type: ignore[arg-type]
        self._depth -= 1
        if again:
            _demand(id(node) in self._sizes, "a node contains itself", event)
        elif node is not None:
            self._sizes[id(node)] = self._size(node, event)
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            name = str(key.value)
            if name in seen:
                # Usually a forgotten dash: the second turn would silently replace the first.
                raise ConstructorError(problem=f"the key {name!r} appears twice", problem_mark=key.start_mark)
            seen.add(name)
        return super().construct_mapping(node, deep)

    def _size(self, node: yaml.Node, event: yaml.Event) -> tuple[int, int, int]:
        if isinstance(node, yaml.ScalarNode):
            _demand(node.tag == _TEXT or len(node.value) <= LONGEST_PLAIN, "a value other than text is too long", event)
            return 1, len(node.value), 1
        pairs = isinstance(node, yaml.MappingNode)
        inside = [part for pair in node.value for part in pair] if pairs else node.value
        sizes = [self._sizes[id(part)] for part in inside]
        nodes, characters = 1 + sum(size[0] for size in sizes), sum(size[1] for size in sizes)
        depth = 1 + max((size[2] for size in sizes), default=0)
        _demand(nodes <= MOST_NODES, f"it has more than {MOST_NODES} nodes with its aliases written out", event)
        _demand(characters <= MOST_CHARACTERS, "its aliases stand for too much text", event)
        _demand(depth <= MAX_DEPTH, f"it is nested more than {MAX_DEPTH} levels deep", event)
        return nodes, characters, depth


_YamlLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != _TIMESTAMP]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _demand(holds: bool, problem: str, event: yaml.Event) -> None:
    if not holds:
        raise ComposerError(problem=problem, problem_mark=event.start_mark)  # type: ignore[arg-type]
