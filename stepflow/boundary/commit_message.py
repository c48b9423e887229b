"""Makes commit messages that the engine answers for.

Takes: a message the model wrote, the engine's trailers, the redactor. Gives: the message to commit.
May touch: nothing (boundary.md "Commits" 3).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from stepflow.boundary.outlet import Outlet, defuse, visible, without_directives

if TYPE_CHECKING:
    from collections.abc import Mapping

LONGEST_MESSAGE = 10_000
NO_SUBJECT = "Work of the agent"
#: Lines that claim who wrote, saw or approved something, or that steer CI, wherever they stand.
_CLAIM = re.compile(r"(?:[A-Za-z-]+-by|skip-checks|change-id|stepflow-[a-z]+)[ \t]*:", re.IGNORECASE)
_TRAILER = re.compile(r"[A-Za-z][A-Za-z0-9-]*[ \t]*:[ \t]|[ \t]+\S|\(cherry picked from commit ")


def clean_message(message: str, trailers: Mapping[str, str], outlet: Outlet) -> str:
    """The model's message without claims, trailers, closing keywords, CI directives and secrets; then our trailers."""
    text = without_directives(outlet.redactor(visible(message)[:LONGEST_MESSAGE]))
    lines = [line.rstrip() for line in text.split("\n") if not _CLAIM.match(line.strip())]
    paragraphs = re.split(r"\n{2,}", "\n".join(lines).strip("\n"))
    while len(paragraphs) > 1 and _is_trailer_block(paragraphs[-1]):
        paragraphs.pop()
    body = defuse("\n\n".join(paragraphs).strip()) or NO_SUBJECT
    ours = "\n".join(f"{key}: {value}" for key, value in trailers.items())
    return f"{body}\n\n{ours}\n"


def _is_trailer_block(paragraph: str) -> bool:
    lines = paragraph.split("\n")
    return all(_TRAILER.match(line) for line in lines) and not lines[0][:1].isspace()
