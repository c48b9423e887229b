"""Placeholders in prompt texts (prompts.md §5).

Takes: a text and the values for its placeholders. Gives: the text with them put in, in one pass.
May touch: nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

#: What may stand in a gate-dialect text. Every form names its variable in one of two groups; `{input_text}` has
#: neither. The double brace comes first, so that both braces are consumed.
GATE_FORMS = re.compile(
    r"\{\{uv-(?P<double>[A-Za-z0-9_-]+)\}\}|\{uv-(?P<single>[A-Za-z0-9_-]+)\}|(?P<input>\{input_text\})"
)
#: The check dialect knows the bare names too; only where such a variable is supplied (prompts.md §5).
CHECK_FORMS = re.compile(GATE_FORMS.pattern + r"|\{\{(?P<bare_double>[A-Za-z0-9_-]+)\}\}|\{(?P<bare>[A-Za-z0-9_-]+)\}")
SECTION_FORM = re.compile(r"\{section:(?P<id>[A-Za-z0-9._-]+)\}")

#: The name under which `{input_text}` asks for its value; no variable can be called so.
INPUT_TEXT = "{input_text}"

ValueOf = Callable[[str], str | None]


def substitute(text: str, value_of: ValueOf, forms: re.Pattern[str] = GATE_FORMS) -> str:
    """Each placeholder replaced by its value; a placeholder whose value is None stays as it is.

    One pass: what is put in is never looked at again. `forms` are the placeholder forms of the dialect.
    """
    return forms.sub(lambda match: _replacement(match, value_of), text)


def used_variables(text: str, forms: re.Pattern[str] = GATE_FORMS) -> tuple[str, ...]:
    """The names of the variables that a text asks for, in order, each once."""
    names = (_name(match) for match in forms.finditer(text))
    return tuple(dict.fromkeys(name for name in names if name != INPUT_TEXT))


def asks_for_input(text: str) -> bool:
    """Whether a text holds `{input_text}`."""
    return INPUT_TEXT in text


def used_sections(text: str) -> tuple[str, ...]:
    """The ids of the sections that a text takes in, in order, each once."""
    return tuple(dict.fromkeys(match["id"] for match in SECTION_FORM.finditer(text)))


def insert_sections(text: str, sections: Mapping[str, str]) -> str:
    """Each `{section:ID}` replaced by that section; sections do not nest, an unknown one stays as text."""
    return SECTION_FORM.sub(lambda match: sections.get(match["id"], match[0]), text)


def _replacement(match: re.Match[str], value_of: ValueOf) -> str:
    value = value_of(_name(match))
    return match[0] if value is None else value


def _name(match: re.Match[str]) -> str:
    if match["input"]:
        return INPUT_TEXT
    groups = match.groupdict()
    return next(name for key, name in groups.items() if name is not None and key != "input")
