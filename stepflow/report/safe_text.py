"""Text of models, tools and people, made safe for logs and terminals, for pages, and for GitHub's
Markdown, in which it can only be text.

The runner obeys `::command::` at the start of a line, after any blanks, and `##[command]` anywhere in one. It
compares by culture, which skips invisible characters: they must go first, and a zero-width guard would guard nothing.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence

from stepflow.domain.text import ANSI, ELLIPSIS, code_block, cut, excerpt, spell_out, strip_invisible

LINE_BREAK = re.compile(r"\r\n|[\r\n\v\f\x1c-\x1e\x85\u2028\u2029]")
ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
#: What can open structure in the middle of a line: emphasis, code, links, images, table cells, strikes, formulas.
STRUCTURE = frozenset("\\`*_{}[]()|~$!")
#: What can open structure at the start of a line: headings, items, rules.
LINE_START = re.compile(r"^(\d+(?=[.)])|(?=[#+=-]))")
#: Only plain addresses become links; an address with a blank, a quote or a bracket could close the link's syntax.
ADDRESS = re.compile(r"https?://[A-Za-z0-9.:-]+(?:/[A-Za-z0-9._~%/#?=&+@:,-]*)?")


def clean(text: str) -> str:
    """The visible part of a text, with `\\n` as the only line break and blanks for tabs."""
    text = LINE_BREAK.sub("\n", ANSI.sub("", text)).replace("\t", "    ")
    return strip_invisible(text)


def one_line(text: str, limit: int = 160) -> str:
    """The whole text on one line, cut to `limit` characters."""
    return cut(" ".join(clean(_head(text, limit)).split()), limit)


def first_line(text: str, limit: int = 160) -> str:
    """The first line that is not blank, with `…` when there is more."""
    lines = [line.strip() for line in clean(_head(text, limit)).split("\n") if line.strip()]
    if not lines:
        return ""
    return cut(" ".join(lines[0].split()) + (f" {ELLIPSIS}" if len(lines) > 1 else ""), limit)


def first_lines(text: str, most: int, limit: int = 200) -> tuple[str, ...]:
    """The first lines that are not blank, each cut; a last `…` stands for what was left out."""
    lines = [line.rstrip() for line in clean(text[: most * limit * 4]).split("\n") if line.strip()]
    left_out = (ELLIPSIS,) if len(lines) > most or len(text) > most * limit * 4 else ()
    return (*(cut(line, limit) for line in lines[:most]), *left_out)


def last_lines(text: str, most: int, limit: int = 200) -> tuple[str, ...]:
    """The last lines that are not blank, each cut; a first `…` stands for what was left out."""
    lines = [line.rstrip() for line in clean(text[-most * limit * 4 :]).split("\n") if line.strip()]
    left_out = (ELLIPSIS,) if len(lines) > most or len(text) > most * limit * 4 else ()
    return (*left_out, *(cut(line, limit) for line in lines[-most:]))


def telling_lines(text: str, most: int, limit: int = 200) -> tuple[str, ...]:
    """The lines of a command's output that name a failure and its last ones, each cut, none of them blank."""
    said = "\n".join(line.rstrip() for line in clean(text).split("\n") if line.strip())
    return tuple(cut(line, limit) for line in excerpt(said, most * limit, lines=most).split("\n") if line)


def defuse(line: str) -> str:
    """One line that the runner shows and does not obey. The line must be clean already."""
    line = line.replace("##[", "##\\[")
    return f"│ {line}" if line.lstrip().startswith("::") else line


def harmless(text: str) -> str:
    """A whole text with its line breaks, no line of which is obeyed."""
    return "\n".join(defuse(line) for line in clean(text).split("\n"))


def seconds_text(seconds: float) -> str:
    """`0.4 s`, `12 s`, `3.5 min`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.1f} min"


def _head(text: str, limit: int) -> str:
    """Enough of a text for `limit` characters: cleaning costs time per character, and a tool may give a million."""
    return text[: limit * 3 + 200]


def aligned(rows: Iterable[Sequence[str]]) -> tuple[str, ...]:
    """One line per row, two blanks between columns, none at the end."""
    cells = [list(row) for row in rows]
    widths = [max(map(width, column)) for column in zip(*cells, strict=True)]
    return tuple(
        "  ".join(cell + " " * (wide - width(cell)) for cell, wide in zip(row, widths, strict=True)).rstrip()
        for row in cells
    )


def width(text: str) -> int:
    """How many places a terminal gives the text: East Asian characters take two, combining marks none."""
    if text.isascii():
        return len(text)
    # Loaded here: `stepflow validate` answers without it where all text is ASCII.
    from rich.cells import cell_len  # noqa: PLC0415

    return cell_len(text)


def spell_unseen(text: str) -> str:
    """A text with its line breaks, without what terminals obey, and with every invisible character spelled out."""
    text = LINE_BREAK.sub("\n", ANSI.sub("", text))
    return spell_out(text)


def plain(text: str, limit: int = 200) -> str:
    """One line that shows exactly these characters, in a paragraph, an item or a table cell."""
    return LINE_START.sub(r"\1\\", _escape_text(one_line(text, limit)))


def plain_with_code(text: str, limit: int = 200) -> str:
    """The same, where what stands between backticks is a code span."""
    parts = re.split(r"`([^`]+)`", one_line(text, limit))
    parts[::2] = [_escape_text(part) for part in parts[::2]]
    parts[1::2] = [f"`{part}`" for part in parts[1::2]]
    return LINE_START.sub(r"\1\\", "".join(parts))


def _escape_text(text: str) -> str:
    escaped = "".join(_escape(character) for character in text)
    return escaped.replace("://", ":\\//").replace("www.", "www\\.")


def html_text(text: str, limit: int = 60) -> str:
    """The same inside a line of HTML, where Markdown's own escapes would show."""
    return html.escape(one_line(text, limit))


def code(text: str, limit: int = 60) -> str:
    """The same as inline code, in HTML because a code span cannot hold every text."""
    shown = plain(text, limit)
    return f"<code>{shown}</code>" if shown else ""


def link(text: str, address: str) -> str:
    """A link to an address that the engine knows; an odd address becomes text."""
    if ADDRESS.fullmatch(address):
        return f"[{plain(text)}]({address})"
    return plain(f"{text} {address}") if address else plain(text)


def fence(text: str, *, lines: int, width: int = 200) -> str:
    """The last lines of a text as a code block that the text cannot close."""
    return code_block("\n".join(last_lines(text, lines, width)), "text")


def details(title: str, body: str) -> str:
    """A folded section. `title` is HTML already; foreign text in it must have passed `html_text`."""
    return f"<details><summary>{title}</summary>\n\n{body}\n\n</details>"


def reveal(text: str, limit: int) -> str:
    """A text with its invisible characters written out, as `<U+200B>`; line breaks stay."""
    return cut(clean(spell_out(text[:limit])), limit * 2)


def _escape(character: str) -> str:
    if character in ENTITIES:
        return ENTITIES[character]
    return f"\\{character}" if character in STRUCTURE else character
