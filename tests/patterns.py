"""Every regular expression of the package with the methods that use it, and texts that may take it long to read."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from re import _constants as of  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from types import ModuleType
from typing import Any

import stepflow

METHODS = {"search", "match", "fullmatch", "sub", "subn", "split", "findall", "finditer"}
REPEATS = (of.MAX_REPEAT, of.MIN_REPEAT, of.POSSESSIVE_REPEAT)
#: A character of each class.
MEMBERS = {
    of.CATEGORY_SPACE: " ",
    of.CATEGORY_DIGIT: "0",
    of.CATEGORY_WORD: "a",
    of.CATEGORY_NOT_SPACE: "a",
    of.CATEGORY_NOT_DIGIT: "a",
    of.CATEGORY_NOT_WORD: "-",
}


@dataclass
class Used:
    """A pattern, the first place of the package that has it, and the methods that use it."""

    pattern: re.Pattern[Any]
    place: str
    methods: set[str] = field(default_factory=set)

    def read(self, text: str) -> None:
        """Read a text in every way in which the product does."""
        given: Any = text.encode() if isinstance(self.pattern.pattern, bytes) else text
        for method in self.methods:
            match method:
                case "sub" | "subn":
                    self.pattern.sub(lambda found: found[0], given)
                case "finditer":
                    list(self.pattern.finditer(given))
                case _:
                    getattr(self.pattern, method)(given)


def collect_patterns() -> tuple[list[Used], list[str]]:
    """Return each pattern that stands in a module or in a call such as `re.search`, and the calls whose pattern is
    known at run time only."""
    found: dict[tuple[Any, int], Used] = {}
    later: list[str] = []

    def add(pattern: re.Pattern[Any], place: str) -> Used:
        return found.setdefault((pattern.pattern, pattern.flags), Used(pattern, place))

    for module in _modules():
        mine = [
            add(each, f"{module.__name__}.{name}") for name, value in vars(module).items() for each in _within(value)
        ]
        unnamed: set[str] = set()
        for node in ast.walk(ast.parse(inspect.getsource(module))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in {
                f"re.{each}" for each in (*METHODS, "compile")
            }:
                method = ast.unparse(node.func).removeprefix("re.")
                if made := _compile(node, module):
                    add(made, f"{module.__name__}: {ast.unparse(node.args[0])}").methods |= {method} & METHODS
                else:
                    later.append(f"{module.__name__}: {ast.unparse(node.args[0])}")
            elif isinstance(node, ast.Attribute) and node.attr in METHODS and ast.unparse(node.value) != "re":
                value = _evaluate(node.value, module)
                if isinstance(value, re.Pattern):
                    add(value, module.__name__).methods.add(node.attr)
                elif value is None and node.attr != "split":
                    unnamed.add(node.attr)
        # A pattern of a table is used by another name.
        for each in mine:
            each.methods |= set() if each.methods else unnamed
    return [each for each in found.values() if each.methods], later


def _modules() -> Iterator[ModuleType]:
    for each in pkgutil.walk_packages(stepflow.__path__, "stepflow."):
        if not each.name.endswith("__main__"):
            yield importlib.import_module(each.name)


def _within(value: object, depth: int = 0) -> Iterator[re.Pattern[Any]]:
    match value:
        case re.Pattern():
            yield value
        case tuple() | list() | set() | frozenset() if depth < 4:
            for each in value:
                yield from _within(each, depth + 1)
        case dict() if depth < 4:
            yield from _within(list(value.values()), depth + 1)
        case object(__dict__=dict() as fields) if depth < 4 and not isinstance(value, type | ModuleType):
            if type(value).__module__.startswith("stepflow."):
                yield from _within(list(fields.values()), depth + 1)


def _evaluate(node: ast.expr, module: ModuleType) -> object:
    if not isinstance(node, ast.Name | ast.Attribute | ast.Constant | ast.JoinedStr | ast.BinOp):
        return None
    try:
        return eval(compile(ast.Expression(node), "", "eval"), {"re": re, **vars(module)})
    except (NameError, AttributeError, TypeError, re.error):
        return None


def _compile(call: ast.Call, module: ModuleType) -> re.Pattern[Any] | None:
    text = _evaluate(call.args[0], module)
    flags = re.RegexFlag(0)
    for node in (*call.args[1:], *(each.value for each in call.keywords)):
        value = _evaluate(node, module)
        flags |= value if isinstance(value, re.RegexFlag) else 0
    return re.compile(text, flags) if isinstance(text, str | bytes) else None


def pumps(pattern: re.Pattern[Any]) -> Iterator[tuple[str, str, str]]:
    """Yield beginning, unit and end of texts: the units are parts of what the pattern reads, and repeated."""
    text = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    tree = parser.parse(text, pattern.flags & ~re.LOCALE)
    examples = {_example(tree, {}, times, pick) for pick in range(min(_widest(tree), 40)) for times in (0, 1, 2)}
    units, begins = {*"\n \t:a0-'\"", *_repeated(tree)}, set[str]()
    for example in (each[:60] for each in examples):
        units |= {example, f"{example}\n", f"{example} "}
        for at in range(1, len(example)):
            begins.add(example[:at])
            units |= {example[:at], f"{example[:at]}\n", example[at:]}
    shortest = sorted(filter(None, units), key=lambda unit: (len(unit), unit))
    yield from (("", unit, "\0") for unit in shortest[:30])
    yield from (("", unit, "\n") for unit in shortest[:8])
    for begin in sorted(begins, key=lambda each: (-len(each), each))[:3]:
        yield from ((begin, unit, "\0") for unit in shortest[:4])


def _example(tree: Any, groups: dict[int, str], times: int, pick: int) -> str:
    """Return a text that the pattern nearly reads: looks at what follows are not followed."""
    text = ""
    for op, value in tree:
        match op:
            case of.LITERAL:
                text += chr(value)
            case of.NOT_LITERAL:
                text += "a" if chr(value) != "a" else "b"
            case of.ANY:
                text += "a"
            case of.IN:
                text += _member(value, pick)
            case of.MAX_REPEAT | of.MIN_REPEAT | of.POSSESSIVE_REPEAT:
                least, most, inner = value
                text += "".join(
                    _example(inner, groups, times, pick) for _ in range(min(max(least, min(times, most)), 40))
                )
            case of.SUBPATTERN:
                groups[value[0]] = _example(value[3], groups, times, pick)
                text += groups[value[0]]
            case of.ATOMIC_GROUP:
                text += _example(value, groups, times, pick)
            case of.BRANCH:
                text += _example(value[1][pick % len(value[1])], groups, times, pick)
            case of.GROUPREF:
                text += groups.get(value, "")
            case of.GROUPREF_EXISTS:
                text += _example(value[1], groups, times, pick)
            case of.ASSERT if value[0] < 0:
                text += _example(value[1], groups, times, pick)
    return text


def _member(items: Any, pick: int) -> str:
    members = [
        chr(value) if op is of.LITERAL else chr(value[0]) if op is of.RANGE else MEMBERS[value]
        for op, value in items
        if op is not of.NEGATE
    ]
    if items[0][0] is of.NEGATE:
        return next((each for each in "a0 -.\n" if each not in members), "~")
    return (members[0], members[-1])[pick % 2]


def _inner(op: Any, value: Any) -> list[Any]:
    if op in REPEATS:
        return [value[2]]
    if op is of.SUBPATTERN:
        return [value[3]]
    if op is of.BRANCH:
        return list(value[1])
    if op in (of.ASSERT, of.ASSERT_NOT):
        return [value[1]]
    return [value] if op is of.ATOMIC_GROUP else []


def _repeated(tree: Any) -> Iterator[str]:
    for op, value in tree:
        if op in REPEATS and value[1] > 50:
            yield from (_example(value[2], {}, 1, pick) for pick in range(3))
        for inner in _inner(op, value):
            yield from _repeated(inner)


def _widest(tree: Any) -> int:
    return max(
        (
            max(len(parts) if op is of.BRANCH else 1, *map(_widest, parts))
            for op, value in tree
            if (parts := _inner(op, value))
        ),
        default=1,
    )
