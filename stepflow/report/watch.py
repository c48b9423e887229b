"""The story of a run for the job log and for a terminal.

Takes: entries in order. Gives: lines to print. May touch: nothing.
A job log folds each step into a group; a terminal indents it and may colour the lines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepflow.domain.event import Entry, Noted
from stepflow.report.story import Story
from stepflow.report.story_line import LineKind, StoryLine

if TYPE_CHECKING:
    from collections.abc import Callable

    from stepflow.domain.run import Limits

#: Kinds that stand at the left edge: they are not inside a step.
OUTSIDE = (LineKind.RUN, LineKind.STEP, LineKind.STEP_END)
#: Kinds that lie inside a fold.
INSIDE = (LineKind.FOLDED, LineKind.ASIDE)


class ActionLog:
    """The job log: one `::group::` per step attempt. No other line of it is a workflow command (security.md case 6)."""

    def __init__(self, limits: Limits | None = None, *, debug: bool = False) -> None:
        self.story = Story(limits, debug=debug)
        self._open = False

    def render(self, entry: Entry) -> tuple[str, ...]:
        """The lines of one entry."""
        told = self.story.tell(entry)
        lines = tuple(text for each in told for text in self._lines(each))
        # A fold ends with its entry. Groups do not nest: one inside a step ends the step's own.
        return (*lines, *self.close()) if told and told[-1].kind in INSIDE else lines

    def close(self) -> tuple[str, ...]:
        """Closes a group that a crash left open."""
        lines = ("::endgroup::",) if self._open else ()
        self._open = False
        return lines

    def _lines(self, told: StoryLine) -> tuple[str, ...]:
        match told.kind:
            case LineKind.STEP | LineKind.FOLD:
                before = self.close()
                self._open = True
                return (*before, f"::group::{told.text.replace('%', '%25')}")
            case LineKind.STEP_END:
                return (*self.close(), told.text)
            case _:
                return (f"  {told.text}" if self._open else told.text,)


def folded_traceback(trace: str) -> tuple[str, ...]:
    """A bug that no run could write down, folded for the job log."""
    noted = Noted(level="error", message="internal error", data={"traceback": trace})
    return ActionLog().render(Entry(seq=1, time=0.0, event=noted))


class TerminalLog:
    """The same for a terminal. `style` gets a line's kind and text and gives the text to print, coloured or not."""

    def __init__(
        self,
        limits: Limits | None = None,
        *,
        style: Callable[[LineKind, str], str] | None = None,
        debug: bool = False,
    ) -> None:
        self.story = Story(limits, debug=debug)
        self._style = style or _plain
        # A terminal folds nothing: what is aside there is left out.
        self._left_out = (LineKind.STEP_END,) if debug else (LineKind.STEP_END, LineKind.ASIDE)

    def render(self, entry: Entry) -> tuple[str, ...]:
        """The lines of one entry."""
        return tuple(
            self._style(told.kind, told.text if told.kind in OUTSIDE else f"  {told.text}")
            for told in self.story.tell(entry)
            if told.kind not in self._left_out
        )

    def now(self, time: float) -> tuple[tuple[LineKind, str], ...]:
        """What stands below the log while the run goes on: its work just now, the last words, how far it is."""
        story = self.story
        words = ((LineKind.WORDS, f"│ {story.now.words}"),) if story.now.words else ()
        return ((LineKind.STEP, story.now.doing(time)), *words, (LineKind.PROGRESS, story.progress(time)))


def _plain(kind: LineKind, text: str) -> str:
    del kind
    return text
