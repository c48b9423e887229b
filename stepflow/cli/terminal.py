"""Shows a run on a terminal while it is running."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.style import Style
from rich.text import Text

from stepflow.domain.event import Entry, Event, RunFinished
from stepflow.domain.run import Limits
from stepflow.report.log import TerminalLog
from stepflow.report.safe_text import Tone

STYLES = {
    Tone.RUN: Style(bold=True),
    Tone.STEP: Style(bold=True, color="cyan"),
    Tone.WORDS: Style(italic=True),
    Tone.ROUTE: Style(color="magenta"),
    Tone.GOOD: Style(color="green"),
    Tone.TOOL: Style(color="green"),
    Tone.BAD: Style(color="red"),
    Tone.WARNING: Style(color="yellow"),
    Tone.PROGRESS: Style(dim=True),
    Tone.FOLDED: Style(dim=True),
    Tone.ASIDE: Style(dim=True),
}
#: The mark or label of a line, before its text. If a line is broken, the rest is aligned below the text.
BEFORE_TEXT = re.compile(r" *(?:[│✓✗→] |\w+(?: \w+)* {2,})?")
NARROWEST = 40
REDRAWN_PER_SECOND = 5


def make_console(out: TextIO) -> Console:
    """Return a console that changes nothing but the color of a line."""
    return Console(file=out, highlight=False, soft_wrap=True, markup=False, emoji=False)


@contextmanager
def watch_run(
    console: Console, limits: Limits | None, *, debug: bool = False, before: Iterable[Event] = ()
) -> Iterator[Callable[[Entry], None]]:
    """Yield a listener that shows each entry at once. On a terminal, the last lines show what the run is doing.
    `before` are the earlier events of a resumed run."""
    log = TerminalLog(limits, style=apply_style if console.color_system else None, debug=debug)
    log.run_log.recall(before)
    with live_lines(console, log) as notify:

        def listen(entry: Entry) -> None:
            lines = log.render(entry)
            notify(entry)
            # The final words, which follow at once, begin with how the run ended.
            if not isinstance(entry.event, RunFinished):
                show_lines(console, lines)

        yield listen


@contextmanager
def live_lines(console: Console, log: TerminalLog) -> Iterator[Callable[[Entry], None]]:
    """Show what the run is doing below all printed lines, but only on a terminal. Yield a listener. Call it with each
    entry after the log has taken the entry and before its lines are printed, because printing repeats what was drawn
    last."""
    # Not `console.is_terminal`: FORCE_COLOR asks for colors in a file too, but not for lines that move.
    if not console.file.isatty():
        yield lambda entry: None
        return
    # Imported here because most runs are watched in a job's log, where nothing moves.
    from rich.live import Live  # noqa: PLC0415
    from rich.spinner import Spinner  # noqa: PLC0415

    ahead = 0.0
    spinner = Spinner("dots")

    def notify(entry: Entry) -> None:
        nonlocal ahead
        # A scripted run's clock is ahead of the machine's.
        ahead = entry.time - time.time()
        live.refresh()

    def draw() -> Text:
        now = time.time() + ahead
        return _draw_lines(log.now(now), str(spinner.render(now)), console.width)

    live = Live(
        console=console,
        get_renderable=draw,
        refresh_per_second=REDRAWN_PER_SECOND,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    with live:
        yield notify


def _draw_lines(shown_lines: Iterable[tuple[Tone, str]], mark: str, width: int) -> Text:
    """Return one line each, cut. The last column stays free, and nothing is padded. When the window becomes narrower, a
    line that reaches the edge would be broken in two, and half of it would remain."""
    lines = []
    for number, (kind, text) in enumerate(shown_lines):
        shown = Text(f"{' ' if number else mark} ").append(text, STYLES.get(kind))
        shown.truncate(width - 1, overflow="ellipsis")
        lines.append(shown)
    return Text("\n").join(lines)


def show_lines(console: Console, lines: Iterable[str]) -> None:
    """Print lines, which may already be colored, and wrap them between words on a terminal."""
    texts = tuple(lines)
    if not console.color_system and not console.file.isatty() and not any("\x1b" in line for line in texts):
        # rich would change nothing, and takes most of the time that an event costs.
        try:
            console.file.writelines(f"{line}\n" for line in texts)
            console.file.flush()
        except BrokenPipeError:
            # Do what rich's `print` does.
            console.on_broken_pipe()
        return
    broken = [part for line in texts for part in _break_line(console, line)]
    if broken:
        console.print(Text("\n").join(broken))


def _break_line(console: Console, line: str) -> Iterable[Text]:
    """Return the line in parts that fit. Later parts are aligned below the text of the first."""
    whole = Text.from_ansi(line)
    width = console.width
    if not console.file.isatty() or width < NARROWEST or whole.cell_len <= width:
        return (whole,)
    before = BEFORE_TEXT.match(whole.plain)
    start = before.end() if before else 0
    words = whole[start:]
    # A path or an address that does not fit stays in one piece, so that people can copy it.
    whole_words = any("/" in word and len(word) > width - start for word in words.plain.split())
    parts = words.wrap(console, width - max(start, 2), overflow="ignore" if whole_words else "fold")
    follow = "│ " if "│" in whole.plain[:start] else ""
    hang = Text(f"{follow:>{max(start, 2)}}", whole.style)
    return tuple((whole[:start] if number == 0 else hang) + part for number, part in enumerate(parts))


def print_kinds(console: Console, lines: Iterable[tuple[Tone, str]]) -> None:
    """Print lines in the colors of their tones."""
    for kind, line in lines:
        console.print(Text.from_ansi(apply_style(kind, line)))


def apply_style(kind: Tone, text: str) -> str:
    """Return the text in the color of its tone."""
    return STYLES.get(kind, Style()).render(text)
