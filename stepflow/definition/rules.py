"""The rules with their reasons and examples.

Takes: the table of codes, and `rules.md` beside this file. Gives: `Rule` by code.
May touch: `rules.md` of the package.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from stepflow.definition.codes import CODES
from stepflow.domain.rule import Example, Rule

if TYPE_CHECKING:
    from collections.abc import Mapping

_HEADING = re.compile(r"^## (SF[0-9]{3})\n", re.MULTILINE)
_EXAMPLE = re.compile(
    r"^(?P<word>Wrong|Right)(?:, `(?P<file>[^`]+)`(?: at `(?P<pointer>[^`]+)`)?)?:\n\n"
    r"```(?P<language>\w+)\n(?P<text>.*?)^```\n",
    re.MULTILINE | re.DOTALL,
)


@cache
def rules() -> Mapping[str, Rule]:
    """Every rule by its code, in the order of the table."""
    text = (files("stepflow.definition") / "rules.md").read_text(encoding="utf-8")
    _, *parts = _HEADING.split(text)
    told = dict(zip(parts[::2], parts[1::2], strict=True))
    return {code: _rule(code, told.get(code, "")) for code in CODES}


def _rule(code: str, text: str) -> Rule:
    examples = list(_EXAMPLE.finditer(text))
    why = text[: examples[0].start()] if examples else text
    # An example without a place stands where the one before it does.
    place: tuple[str, str] = ("", "")
    found: dict[str, list[Example]] = {"Wrong": [], "Right": []}
    for match in examples:
        place = (match["file"], match["pointer"] or "") if match["file"] else place
        file, pointer = place
        example = Example(file=file, pointer=pointer, language=match["language"], text=match["text"].rstrip("\n"))
        found[match["word"]].append(example)
    row = CODES[code]
    return Rule(
        code=code,
        severity=row.severity,
        broken=row.rule,
        why=" ".join(why.split()),
        wrong=tuple(found["Wrong"]),
        right=tuple(found["Right"]),
    )
