"""A journal as a timeline: its newest iterations whole, and one line for what lies before them.

Takes: entries in order, as they come. Gives: the lines to print.
May touch: nothing. Holds no more iterations than it will tell.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from stepflow.domain.attempt_event import IterationStarted, ModelTurned
from stepflow.domain.event import RunFinished
from stepflow.domain.figures import count

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from stepflow.domain.event import Entry
    from stepflow.report.watch import TerminalLog

#: All of an entry that the lines after it may depend on: the number of its iteration, and what was spent.
LASTING = (IterationStarted, ModelTurned)


class Timeline:
    """Takes the entries of the past, tells them once, then those that come.

    `newest`: so many iterations are told whole, all when it is None; `hint` says how to see the others. What happened
    before the first iteration is always told.
    """

    def __init__(self, log: TerminalLog, *, newest: int | None = None, hint: str = "") -> None:
        self._log, self._newest, self._hint = log, newest, hint
        self._before: list[Entry] = []
        self._iterations: deque[list[Entry]] = deque()
        self._lasting: list[Entry] = []
        self._left_out = 0
        self.finished = False

    def taking(self, entries: Iterable[Entry]) -> Iterator[Entry]:
        """Take each entry of the past, and pass it on."""
        for entry in entries:
            self._take(entry)
            yield entry

    def past(self) -> Iterator[str]:
        """The lines of all that was taken."""
        for entry in self._before:
            yield from self.tell(entry)
        for entry in self._lasting:
            self._log.story.pass_over(entry)
        if self._left_out:
            yield f"… {count(self._left_out, 'earlier iteration')} left out{self._hint}"
        for entries in self._iterations:
            for entry in entries:
                yield from self.tell(entry)

    def tell(self, entry: Entry) -> tuple[str, ...]:
        """The lines of one entry. How the run ended is for whoever tells the end to say."""
        self.finished = isinstance(entry.event, RunFinished)
        return () if self.finished else self._log.render(entry)

    def _take(self, entry: Entry) -> None:
        if isinstance(entry.event, IterationStarted):
            self._iterations.append([])
            if self._newest is not None and len(self._iterations) > self._newest:
                dropped = self._iterations.popleft()
                self._lasting += (each for each in dropped if isinstance(each.event, LASTING))
                self._left_out += 1
        (self._iterations[-1] if self._iterations else self._before).append(entry)
