"""What a block of raw HTML hides: in it Markdown has no say, so it is read as a browser reads it.

Takes: the content of one block. Gives: edits.
May touch: the findings that it was given (html.spec.whatwg.org, "Tokenization").
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from stepflow.domain.removal import RemovalKind
from stepflow.engine.prompt.intake.scan import Scan
from stepflow.engine.prompt.intake.tags import FILTERED_TAG, TAG

if TYPE_CHECKING:
    from stepflow.engine.prompt.intake.findings import Edit

_SIGN = re.compile(r"[<&]")
_SHORT_COMMENT = re.compile(r"<!---?>")
#: What browsers take for a comment besides real ones.
_BOGUS = re.compile(r"<(?:[!?]|/(?![A-Za-z]))")
_LETTER = re.compile(r"</?[A-Za-z]")


class RawScan(Scan):
    """Reads one block of raw HTML from left to right."""

    def run(self) -> list[Edit]:
        """The block's edits."""
        at = 0
        while sign := _SIGN.search(self.text, at):
            at = self.entity(sign.start(), in_html=True) if sign[0] == "&" else self._angle(sign.start())
        return self.finish()

    def _angle(self, at: int) -> int:
        if short := _SHORT_COMMENT.match(self.text, at):
            return self._comment(at, short.end())
        if self.text.startswith("<!--", at):
            end = self.text.find("-->", at + 4)
            return self._comment(at, end + 3) if end >= 0 else self.hide_rest(at)
        if _BOGUS.match(self.text, at):
            end = self.text.find(">", at)
            return self._comment(at, end + 1) if end >= 0 else self.hide_rest(at)
        if filtered := FILTERED_TAG.match(self.text, at):
            return filtered.end()
        if found := TAG.match(self.text, at):
            return self.tag(found)
        return self.hide_rest(at) if _LETTER.match(self.text, at) else at + 1

    def _comment(self, start: int, end: int) -> int:
        self.remove(RemovalKind.COMMENT, start, end)
        return end
