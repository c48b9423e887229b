"""A rule as a person reads it at a terminal.

Takes: rules. Gives: lines.
May touch: nothing.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from stepflow.report.diagnostic import Ink

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from stepflow.domain.rule import Example, Rule
    from stepflow.report.diagnostic import Paper

#: Prose without an end is hard to read even where lines may be of any length.
READABLE = 80


def explanation(rule: Rule, paper: Paper) -> tuple[str, ...]:
    """The rule, why it matters, and an example of wrong and right."""
    head = f"{rule.severity}[{rule.code}]"
    lines = [f"{paper.ink(Ink(rule.severity.value), head)}: {rule.broken}", ""]
    lines += [*textwrap.wrap(rule.why, paper.width or READABLE), ""]
    place = ""
    for word, ink, examples in (("Wrong", Ink.ERROR, rule.wrong), ("Right", Ink.HELP, rule.right)):
        for example in examples:
            lines += [*_example(paper.ink(ink, word), example, where=example.place != place), ""]
            place = example.place
    return tuple(lines)


def rule_list(rules: Iterable[Rule], paper: Paper) -> tuple[str, ...]:
    """One line for each rule."""
    rows = [f"{paper.ink(Ink(rule.severity.value), f'{rule.code} {rule.severity:7}')} {rule.broken}" for rule in rules]
    return (*rows, "", "`stepflow explain CODE` says why a rule matters, with an example.")


def _example(word: str, example: Example, *, where: bool) -> Iterator[str]:
    yield f"{word}, in {example.place}:" if where else f"{word}:"
    yield ""
    yield from (f"    {line}".rstrip() for line in example.text.split("\n"))
