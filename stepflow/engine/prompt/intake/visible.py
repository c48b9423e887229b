"""The one filter for text from outside that goes to a model: what people do not see, a model does not see either.

Takes: a text that anybody may have written. Gives: `Taken`, the text that people see and the pieces that were removed.
May touch: nothing (security.md case 22).

People see GitHub's page, a model sees the source. What the page does not show goes, and people are told of it; code
and every visible word stay. First the text as it is written decides what is hidden, because only that is what GitHub
shows; then characters and entities are cleared up, and all is looked at again until nothing changes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from stepflow.domain.removal import RemovalKind, RemovedPiece
from stepflow.engine.prompt.intake.characters import seen_characters
from stepflow.engine.prompt.intake.findings import Findings

#: GitHub's API refuses a longer body of an issue or comment: "body is too long (maximum is 65536 characters)".
LONGEST_TEXT = 65_536
#: A text of people needs two looks; one that hides text in more layers than this is not believed at all.
MOST_LOOKS = 8
CUT_NOTE = "\n\n[The text is longer. Its last {left_out:,} characters are left out.]"
#: So much of what was cut is told.
CUT_TOLD = 2000
#: What a cut through the middle of a paragraph could leave half open.
_OPENING = re.compile(r"[<\[!&]")


@dataclass(frozen=True, kw_only=True)
class Taken:
    """A text as people see it, and what they do not see of it."""

    text: str = ""
    removed: tuple[RemovedPiece, ...] = ()


def take_in(text: str, where: str, *, limit: int = LONGEST_TEXT) -> Taken:
    """The visible part of a Markdown text, `limit` characters at most; what is cut is said. `where` names the text."""
    plain = text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd")
    kept, note = _within(plain, limit)
    findings = Findings(where=where, growth=limit - len(kept) - len(note))
    seen = _settled(kept, findings)
    if note:
        findings.note(RemovalKind.CUT, plain[len(kept) : len(kept) + CUT_TOLD])
    return Taken(text=seen.strip("\n") + note, removed=tuple(findings.pieces))


def take_line(text: str, where: str) -> Taken:
    """The visible part of a title or a name, in which GitHub reads no markup but code: one line."""
    findings = Findings(where=where, growth=0)
    seen = seen_characters(" ".join(text.split()), findings)
    return Taken(text=" ".join(seen.split()), removed=tuple(findings.pieces))


def _within(text: str, limit: int) -> tuple[str, str]:
    """As much of a text as may be looked at, cut where a paragraph ends, and the words that say so."""
    if len(text) <= limit:
        return text, ""
    head = text[: limit - len(CUT_NOTE) - len(str(len(text))) - 8]
    end = head.rfind("\n\n")
    if end < 0:
        opening = _OPENING.search(head)
        end = opening.start() if opening else len(head)
    return head[:end], CUT_NOTE.format(left_out=len(text) - end)


def _settled(text: str, findings: Findings) -> str:
    if not text:
        return ""
    # Loaded here: a reader of Markdown, which a run without an issue never needs.
    from stepflow.engine.prompt.intake.markdown import seen_markdown  # noqa: PLC0415

    for _ in range(MOST_LOOKS):
        seen = seen_characters(seen_markdown(text, findings), findings)
        if seen == text:
            return seen
        text = seen
    findings.note(RemovalKind.TOO_DEEP, text)
    return ""
