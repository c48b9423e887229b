"""What the model did not see of the issue's text, made visible for people (security.md case 22).

Takes: `RunReport`. Gives: Markdown of bounded size for the job summary and the comment.
May touch: nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepflow.domain.figures import count
from stepflow.domain.removal import RemovalKind, count_kinds
from stepflow.report.markdown import details, fence, plain, reveal

if TYPE_CHECKING:
    from stepflow.domain.removal import RemovedPiece
    from stepflow.domain.report import RunReport

#: Of one piece so many characters and lines are shown.
PIECE_SHOWN = 300
LINES_SHOWN = 6


def removed_text(report: RunReport, most: int, *, title: str = "") -> str:
    """How many pieces were removed, of which kinds, and a folded copy of the first `most`; empty when none was."""
    removed = report.removed_text
    if not removed.count:
        return ""
    told = f"{count(removed.count, 'hidden piece')} of the issue's text did not reach the model"
    shown = removed.pieces[:most]
    lines = [line for piece in shown for line in _piece_lines(piece)]
    if removed.count > len(shown):
        lines.append(f"and {removed.count - len(shown):,} more")
    body = fence("\n".join(lines), lines=most * (LINES_SHOWN + 2), width=PIECE_SHOWN)
    sentence = f"{told}: {plain(count_kinds(removed.pieces), 400)}." + _cut_words(removed.pieces)
    return "\n\n".join(part for part in (title, sentence, details("What was removed", body)) if part)


def _piece_lines(piece: RemovedPiece) -> list[str]:
    text = [line for line in reveal(piece.text, PIECE_SHOWN).split("\n") if line.strip()]
    more = ["  …"] if len(text) > LINES_SHOWN or len(piece.text) > PIECE_SHOWN else []
    return [f"{piece.kind}, {piece.where}:", *(f"  {line}" for line in text[:LINES_SHOWN]), *more]


def _cut_words(pieces: tuple[RemovedPiece, ...]) -> str:
    """A text that was too long is no attempt to hide anything, and its reader should know."""
    cut = any(piece.kind is RemovalKind.CUT for piece in pieces)
    return " The text was longer than a model is given, so its end is missing." if cut else ""
