"""Text of the model, of tools and of people, made harmless for a log that GitHub's runner reads.

Takes: any text. Gives: visible text that no runner or terminal obeys (security.md case 6).
May touch: nothing.

The runner obeys `::command::` at the start of a line, after any blanks, and `##[command]` anywhere in one. It
compares by culture, which skips invisible characters: they must go first, and a zero-width guard would guard nothing.
"""

from __future__ import annotations

import re

from stepflow.domain.characters import ANSI, is_invisible

LINE_BREAK = re.compile(r"\r\n|[\r\n\v\f\x1c-\x1e\x85\u2028\u2029]")
ELLIPSIS = "…"


def clean(text: str) -> str:
    """The visible part of a text, with `\\n` as the only line break and blanks for tabs."""
    text = LINE_BREAK.sub("\n", ANSI.sub("", text)).replace("\t", "    ")
    if text.isascii() and text.replace("\n", "").isprintable():
        return text
    return text.translate({ord(each): None for each in set(text) if each != "\n" and is_invisible(each)})


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


def cut(text: str, limit: int) -> str:
    """The text, or its beginning with `…`."""
    return text if len(text) <= limit else text[: limit - 1] + ELLIPSIS


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
