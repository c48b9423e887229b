"""The rules for agent definitions, read from `rules.md`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from stepflow.errors import Example, LintRule, Severity

#: Where the pages of the rules are.
PAGES = "https://github.com/org/stepflow-action/blob/v1/docs/rules"


@dataclass(frozen=True, kw_only=True)
class RuleGroup:
    """Rules about one subject, which share the first digit of their codes and a page of docs/rules."""

    title: str
    page: str


GROUPS = {
    "1": RuleGroup(title="Files and their shape", page="files"),
    "2": RuleGroup(title="agent.json", page="agent"),
    "3": RuleGroup(title="Steps, gates and the graph", page="steps"),
    "4": RuleGroup(title="Schemas", page="schemas"),
    "5": RuleGroup(title="Prompts and variables", page="prompts"),
    "6": RuleGroup(title="Validators", page="validators"),
    "7": RuleGroup(title="Check dialect", page="checks"),
}

_RULE = re.compile(r"^## (SF[0-9]{3})\n\n(Error|Warning|Note): (.+)\n", re.MULTILINE)
_EXAMPLE = re.compile(
    r"^(?P<word>Wrong|Right)(?:, `(?P<file>[^`]+)`(?: at `(?P<pointer>[^`]+)`)?)?:\n\n"
    r"```(?P<language>\w+)\n(?P<text>.*?)^```\n",
    re.MULTILINE | re.DOTALL,
)


@cache
def rules() -> Mapping[str, LintRule]:
    """Return every rule by its code."""
    text = (files("stepflow.definition") / "rules.md").read_text(encoding="utf-8")
    parts = _RULE.split(text)[1:]
    return {rule.code: rule for rule in map(_rule, parts[::4], parts[1::4], parts[2::4], parts[3::4])}


def group_of(code: str) -> RuleGroup:
    """Return the group of a rule."""
    return GROUPS[code[2]]


def _rule(code: str, severity: str, broken: str, text: str) -> LintRule:
    # An example without a place has the place of the one before it.
    location: tuple[str, str] = ("", "")
    by_word: dict[str, list[Example]] = {"Wrong": [], "Right": []}
    for match in _EXAMPLE.finditer(text):
        location = (match["file"], match["pointer"] or "") if match["file"] else location
        file, pointer = location
        example = Example(file=file, pointer=pointer, language=match["language"], text=match["text"].rstrip("\n"))
        by_word[match["word"]].append(example)
    group = group_of(code)
    return LintRule(
        code=code,
        group=group.title,
        page=f"{PAGES}/{group.page}.md#{code.lower()}",
        severity=Severity(severity.lower()),
        broken=broken,
        why=" ".join(_EXAMPLE.split(text, maxsplit=1)[0].split()),
        wrong=tuple(by_word["Wrong"]),
        right=tuple(by_word["Right"]),
    )
