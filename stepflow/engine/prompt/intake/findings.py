"""What the filter has found in one text: pieces to take out, and how to cut them out of it.

Takes: pieces and edits. Gives: both in order; an edited text.
May touch: nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stepflow.domain.characters import read_tags, spell_out
from stepflow.domain.removal import RemovalKind, RemovedPiece

if TYPE_CHECKING:
    from collections.abc import Sequence


#: Kinds that go on over several blocks, and are told of once.
_GO_ON = (RemovalKind.ELEMENT, RemovalKind.FOOTNOTE)


@dataclass(frozen=True, kw_only=True)
class Edit:
    """Replace the characters from `start` to before `end`."""

    start: int
    end: int
    text: str = ""


@dataclass(kw_only=True)
class Findings:
    """Collects the pieces of one text; `growth` is how many characters the result may be longer than its source."""

    where: str
    growth: int
    pieces: list[RemovedPiece] = field(default_factory=list)

    def note(self, kind: RemovalKind, text: str) -> None:
        """Remember a piece, unless there is nothing in it to see or to hide."""
        spelled = spell_out(text).strip()
        if hidden := read_tags(text):
            spelled = f"{spelled}, which spells: {hidden}"
        if not spelled:
            return
        last = self.pieces[-1] if self.pieces else None
        if last and last.kind is kind and kind in _GO_ON:
            del self.pieces[-1]
            spelled = f"{last.text}\n{spelled}"
        self.pieces.append(RemovedPiece(kind=kind, where=self.where, text=spelled))

    def may_grow(self, characters: int) -> bool:
        """True when there is still room for so many more characters, which are taken then."""
        if characters > self.growth:
            return False
        self.growth -= characters
        return True


def edited(text: str, edits: Sequence[Edit]) -> str:
    """The text after edits that do not overlap, in order."""
    parts, at = [], 0
    for edit in edits:
        parts += [text[at : edit.start], edit.text]
        at = edit.end
    return "".join((*parts, text[at:]))
