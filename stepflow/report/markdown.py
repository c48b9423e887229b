"""Markdown for GitHub in which text of the model can only be text (security.md case 31)."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING

from stepflow.domain.visible_text import spell_out
from stepflow.report.plain import clean, cut, last_lines, one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
#: What can open structure in the middle of a line: emphasis, code, links, images, table cells, strikes, formulas.
STRUCTURE = frozenset("\\`*_{}[]()|~$!")
#: What can open structure at the start of a line: headings, items, rules.
LINE_START = re.compile(r"^(\d+(?=[.)])|(?=[#+=-]))")
#: Only plain addresses become links; an address with a blank, a quote or a bracket could close the link's syntax.
ADDRESS = re.compile(r"https?://[A-Za-z0-9.:-]+(?:/[A-Za-z0-9._~%/#?=&+@:,-]*)?")


def plain(text: str, limit: int = 200) -> str:
    """One line that shows exactly these characters, in a paragraph, an item or a table cell."""
    escaped = "".join(_escape(character) for character in one_line(text, limit))
    escaped = escaped.replace("://", ":\\//").replace("www.", "www\\.")
    return LINE_START.sub(r"\1\\", escaped)


def html_text(text: str, limit: int = 60) -> str:
    """The same inside a line of HTML, where Markdown's own escapes would show."""
    return html.escape(one_line(text, limit))


def code(text: str, limit: int = 60) -> str:
    """The same as inline code, in HTML because a code span cannot hold every text."""
    shown = plain(text, limit)
    return f"<code>{shown}</code>" if shown else ""


def code_span(text: str, limit: int = 200) -> str:
    """The same as a code span, for where HTML is not shown: in comments and pull requests."""
    shown = one_line(text, limit)
    ticks = "`" * (max((len(run) for run in re.findall("`+", shown)), default=0) + 1)
    blank = " " if "`" in shown else ""
    return f"{ticks}{blank}{shown}{blank}{ticks}"


def link(text: str, address: str) -> str:
    """A link to an address that the engine knows; an odd address becomes text."""
    if ADDRESS.fullmatch(address):
        return f"[{plain(text)}]({address})"
    return plain(f"{text} {address}") if address else plain(text)


def fence(text: str, *, lines: int, width: int = 200) -> str:
    """The last lines of a text as a code block that the text cannot close."""
    shown = "\n".join(last_lines(text, lines, width))
    longest = max((len(run) for run in re.findall(r"`+", shown)), default=0)
    ticks = "`" * max(3, longest + 1)
    return f"{ticks}text\n{shown}\n{ticks}"


def details(title: str, body: str) -> str:
    """A folded section. `title` is HTML already; foreign text in it must have passed `html_text`."""
    return f"<details><summary>{title}</summary>\n\n{body}\n\n</details>"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of finished cells. A header that begins with `>` is set to the right."""
    rules = ("---:" if name.startswith(">") else "---" for name in header)
    lines = [[name.removeprefix(">") for name in header], list(rules), *map(list, rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def reveal(text: str, limit: int) -> str:
    """A text with its invisible characters written out, as `<U+200B>`; line breaks stay."""
    return cut(clean(spell_out(text[:limit])), limit * 2)


def _escape(character: str) -> str:
    if character in ENTITIES:
        return ENTITIES[character]
    return f"\\{character}" if character in STRUCTURE else character
