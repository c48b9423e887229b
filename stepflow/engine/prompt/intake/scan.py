"""One stretch of a text: what is taken out of it, as edits, while what is hidden begins and ends.

Takes: positions and pieces. Gives: edits in order that do not overlap.
May touch: the findings that it was given.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepflow.domain.removal import RemovalKind
from stepflow.engine.prompt.intake.characters import ENTITY, PLAIN_ANGLE, spell_entity
from stepflow.engine.prompt.intake.findings import Edit
from stepflow.engine.prompt.intake.hiding import Hiding
from stepflow.engine.prompt.intake.tags import see_tag

if TYPE_CHECKING:
    import re

    from stepflow.engine.prompt.intake.findings import Findings


@dataclass(frozen=True, kw_only=True)
class Mark:
    """Where a scan was, to go back to."""

    edits: int
    pieces: int
    hiding: Hiding
    since: int | None


class Scan:
    """Collects the edits of one stretch. `hiding` is the state at its beginning, and later at the point reached."""

    def __init__(self, text: str, findings: Findings, hiding: Hiding) -> None:
        self.text, self.findings, self.hiding = text, findings, hiding
        self._edits: list[Edit] = []
        self._since = 0 if hiding.hides else None
        self._pieces_since = len(findings.pieces)

    def mark(self) -> Mark:
        """This point."""
        return Mark(edits=len(self._edits), pieces=len(self.findings.pieces), hiding=self.hiding, since=self._since)

    def go_back(self, mark: Mark) -> None:
        """Forget what was found since: it was no markup."""
        del self._edits[mark.edits :]
        del self.findings.pieces[mark.pieces :]
        self.hiding, self._since = mark.hiding, mark.since

    def replace(self, start: int, end: int, text: str = "") -> None:
        """Edit without a word: nothing is hidden there."""
        self._edits.append(Edit(start=start, end=end, text=text))

    def remove(self, kind: RemovalKind, start: int, end: int, *, told: str | None = None) -> None:
        """Take something out, and remember it."""
        self.replace(start, end)
        self.findings.note(kind, self.text[start:end] if told is None else told)

    def entity(self, at: int, *, in_html: bool = False) -> int:
        """Spell the entity that may begin here; where to go on. In raw HTML nothing else can say a `<` that is text."""
        found = ENTITY.match(self.text, at)
        if not found:
            return at + 1
        spelled = spell_entity(found["name"])
        if spelled != found[0] and not (in_html and spelled == PLAIN_ANGLE):
            self.replace(at, found.end(), spelled)
        return found.end()

    def tag(self, found: re.Match[str]) -> int:
        """Keep what is seen of a tag; where to go on."""
        seen, before = see_tag(found), self.hiding
        start, end = found.start(), found.end()
        self.hiding = before.after(seen)
        if self.hiding.hides and not before.hides:
            self._begin(start)
        elif before.hides and not self.hiding.hides:
            self._end(end)
        elif seen.whole:
            self.remove(RemovalKind.TAG, start, end)
        elif seen.gone:
            self.replace(start, end, seen.text)
            for attribute in seen.gone:
                self.findings.note(RemovalKind.ATTRIBUTE, attribute)
        return end

    def hide_rest(self, at: int) -> int:
        """From here on nothing is believed any more; where to go on, which is the end."""
        if not self.hiding.hides:
            self._begin(at)
        self.hiding = Hiding(to_the_end=True)
        return len(self.text)

    def finish(self) -> list[Edit]:
        """All edits; a hidden part that goes on goes with the rest of the stretch."""
        if self._since is not None:
            self._end(len(self.text))
        return self._edits

    def _begin(self, at: int) -> None:
        self._since, self._pieces_since = at, len(self.findings.pieces)

    def _end(self, at: int) -> None:
        """What was found inside goes with the whole."""
        since = self._since or 0
        del self.findings.pieces[self._pieces_since :]
        while self._edits and self._edits[-1].start >= since:
            self._edits.pop()
        self.remove(RemovalKind.ELEMENT, since, at)
        self._since = None
