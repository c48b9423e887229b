"""Placeholders in prompt texts and path templates (prompts.md §1 and §5).

Takes: a text. Gives: the names that stand in it, with their lines.
May touch: nothing.
"""

from __future__ import annotations

import re

#: prompts.md §1: what may stand in a path template.
TEMPLATE_PARTS = ("c1", "c2", "c3", "edition", "adaptation")

_VARIABLE = re.compile(r"\{uv-([A-Za-z0-9_-]+)\}")
_SECTION = re.compile(r"\{section:([A-Za-z0-9._-]+)\}")
_BRACES = re.compile(r"\{([^{}]*)\}")


def variables_in(text: str) -> dict[str, int]:
    """Each `{uv-NAME}` of a text with the line of its first use; `{{uv-NAME}}` holds the same."""
    return _first_lines(_VARIABLE, text)


def sections_in(text: str) -> dict[str, int]:
    """Each `{section:ID}` of a text with the line of its first use."""
    return _first_lines(_SECTION, text)


def template_fault(template: str) -> str | None:
    """What is wrong with a path template; None when only the five known parts stand in braces."""
    for part in _BRACES.findall(template):
        if part not in TEMPLATE_PARTS:
            return f'"{{{part}}}" is no part of an address'
    return "a brace stands alone" if re.search(r"[{}]", _BRACES.sub("", template)) else None


def fill_template(template: str, parts: dict[str, str]) -> str:
    """The path that a sound template gives; a part that is not given is empty."""
    return _BRACES.sub(lambda match: parts.get(match[1], ""), template)


def _first_lines(pattern: re.Pattern[str], text: str) -> dict[str, int]:
    lines: dict[str, int] = {}
    for match in pattern.finditer(text):
        lines.setdefault(match[1], text.count("\n", 0, match.start()) + 1)
    return lines
