"""Characters that nobody sees, and entities that stand for characters.

Takes: text. Gives: the text that is seen.
May touch: nothing.
"""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING

from stepflow.domain.characters import ANSI, is_invisible, is_variant
from stepflow.domain.removal import RemovalKind

if TYPE_CHECKING:
    from stepflow.engine.prompt.intake.findings import Findings

#: With its semicolon any entity; without one, numbers and the names that could spell markup or nothing at all. Before
#: it, `&` itself may be spelled as an entity, however often.
ENTITY = re.compile(
    r"&(?:(?:amp|AMP|#0{0,5}38|#[xX]0{0,4}26);)*(?P<name>#[0-9]{1,7}+;?|#[xX][0-9a-fA-F]{1,6}+;?"
    r"|[A-Za-z][A-Za-z0-9]{1,30}+;|(?:lt|gt|amp|quot|nbsp|shy|LT|GT|AMP|QUOT)(?![A-Za-z0-9=]))"
)
#: How Markdown writes a `<` that begins nothing.
PLAIN_ANGLE = "\\<"
#: Joiners, with which several scripts and pictures are spelled.
_JOINERS = frozenset("\u200c\u200d")
_SEEN = re.compile(r"[ -~\n\t]+")


def spell_entity(name: str) -> str:
    """The character that an entity stands for: never a line break, and `<` stays a plain sign."""
    character = html.unescape(f"&{name.removesuffix(';')};")
    if character.isspace() and character != "\u00a0":
        return " "
    return PLAIN_ANGLE if character == "<" else character


def seen_characters(text: str, findings: Findings) -> str:
    """The text without characters that nobody sees.

    One joiner or variation selector alone is how scripts and pictures are spelled, so it goes without a word.
    """
    if _SEEN.fullmatch(text):
        return text
    parts: list[str] = []
    at = 0
    for start, end in _unseen_runs(text):
        parts.append(text[at:start])
        at = end
        run = text[start:end]
        before = text[start - 1 : start]
        if not (len(run) == 1 and (run in _JOINERS or is_variant(run)) and before and not before.isascii()):
            findings.note(RemovalKind.CHARACTERS, run)
    return "".join((*parts, text[at:]))


def _unseen_runs(text: str) -> list[tuple[int, int]]:
    """Where runs of invisible characters and of what a terminal obeys begin and end."""
    unseen = "".join(c for c in set(text) if c not in "\n\t" and is_invisible(c))
    found = [match.span() for match in re.finditer(f"[{re.escape(unseen)}]+", text)] if unseen else []
    if "\x1b" in unseen or "\x9b" in unseen:
        found = sorted([*found, *(match.span() for match in ANSI.finditer(text))])
    runs: list[tuple[int, int]] = []
    for start, end in found:
        if runs and start <= runs[-1][1]:
            runs[-1] = (runs[-1][0], max(end, runs[-1][1]))
        else:
            runs.append((start, end))
    return runs
