"""A run as it goes, on a terminal.

Takes: journal entries. Gives: lines, coloured where the terminal can, and a progress line where there is one.
May touch: the stream it was given. Plain when piped; rich honours `NO_COLOR`.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.style import Style
from rich.text import Text

from stepflow.domain.event import RunFinished
from stepflow.report import LineKind, TerminalLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import TextIO

    from stepflow.domain.event import Entry, Event
    from stepflow.domain.run import Limits

STYLES = {
    LineKind.RUN: Style(bold=True),
    LineKind.STEP: Style(bold=True, color="cyan"),
    LineKind.WORDS: Style(italic=True),
    LineKind.INTENT: Style(color="magenta"),
    LineKind.GOOD: Style(color="green"),
    LineKind.BAD: Style(color="red"),
    LineKind.WARNING: Style(color="yellow"),
    LineKind.PROGRESS: Style(dim=True),
    LineKind.FOLDED: Style(dim=True),
}


def make_console(out: TextIO) -> Console:
    """A console that changes nothing of a line but its colour."""
    return Console(file=out, highlight=False, soft_wrap=True, markup=False, emoji=False)


@contextmanager
def watch_run(
    console: Console, limits: Limits | None, *, debug: bool = False, before: Iterable[Event] = ()
) -> Iterator[Callable[[Entry], None]]:
    """A listener that shows each entry at once; on a terminal the last line tells how far the run is. `before` are the
    events of a run that goes on."""
    log = TerminalLog(limits, style=styled, debug=debug)
    log.story.recall(before)
    # Not `console.is_terminal`: FORCE_COLOR wants colours in a file too, but no line that moves.
    if not console.file.isatty():
        yield lambda entry: _show(console, log, entry)
        return
    with console.status("starting") as status:

        def listen(entry: Entry) -> None:
            _show(console, log, entry)
            status.update(log.story.progress())

        yield listen


def _show(console: Console, log: TerminalLog, entry: Entry) -> None:
    # The final words, which follow at once, begin with how the run ended.
    if isinstance(entry.event, RunFinished):
        return
    for line in log.render(entry):
        console.print(Text.from_ansi(line))


def styled(kind: LineKind, text: str) -> str:
    """The text in the colours of its kind."""
    return STYLES.get(kind, Style()).render(text)
