"""What raw HTML hides that goes on beyond the place where it began.

Takes: tags as they come. Gives: whether what follows is hidden.
May touch: nothing.

An element such as `<template>` hides up to its end, wherever that is. A comment or a tag that a block of raw HTML
leaves open swallows the rest of the page: where it ends, only the browser would know, so nothing after it is believed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepflow.engine.prompt.intake.tags import UNSHOWN

if TYPE_CHECKING:
    from stepflow.engine.prompt.intake.tags import SeenTag


@dataclass(frozen=True, kw_only=True)
class Hiding:
    """`element` is what hides now, opened `depth` times; `to_the_end`: nothing ends it any more."""

    element: str = ""
    depth: int = 0
    to_the_end: bool = False

    @property
    def hides(self) -> bool:
        """True while nothing is shown."""
        return self.to_the_end or self.depth > 0

    def after(self, tag: SeenTag) -> Hiding:
        """The state behind a tag."""
        if self.to_the_end:
            return self
        if self.depth == 0:
            opens = tag.name in UNSHOWN and not tag.closes
            return Hiding(element=tag.name, depth=1) if opens else self
        if tag.name != self.element:
            return self
        depth = self.depth - 1 if tag.closes else self.depth + 1
        return Hiding(element=self.element, depth=depth) if depth else Hiding()
