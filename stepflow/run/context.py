"""What the model is told about the issue.

Takes: the issue, and what was said about it. Gives: the context text of every iteration (prompts.md §7), as people see
it, and what was taken out of it.
May touch: nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepflow.domain.event import TextRemoved
from stepflow.domain.removal import RemovedPiece
from stepflow.engine.prompt.intake.visible import Taken, take_in, take_line

if TYPE_CHECKING:
    from stepflow.domain.run import Issue

#: What the journal keeps of removed text: so many pieces, of so many characters each.
MOST_PIECES = 100
LONGEST_PIECE = 1000
NO_DISCUSSION = Taken()


def issue_text(issue: Issue | None, discussion: Taken = NO_DISCUSSION, *, otherwise: str = "") -> Taken:
    """Number, title, author, body and discussion; without an issue what else was given. The prompt room frames it as
    data."""
    if issue is None:
        return take_in(otherwise.strip(), "issue-text")
    title, author = take_line(issue.title, "title"), take_line(issue.author, "author")
    body = take_in(issue.body, "body")
    heading = f"Issue #{issue.number}{': ' + title.text if title.text else ''}"
    by = f"\nWritten by {author.text}" if author.text else ""
    return Taken(
        text=f"{heading}{by}\n\n{body.text}\n\n{discussion.text}".strip(),
        removed=(*title.removed, *author.removed, *body.removed, *discussion.removed),
    )


def removal_event(taken: Taken) -> TextRemoved | None:
    """The journal's line about what was taken out, None when nothing was."""
    if not taken.removed:
        return None
    pieces = [
        RemovedPiece(kind=piece.kind, where=piece.where, text=piece.text[:LONGEST_PIECE])
        for piece in taken.removed[:MOST_PIECES]
    ]
    return TextRemoved(count=len(taken.removed), pieces=pieces)
