"""Shows a run on a terminal while it is running."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.style import Style
from rich.text import Text

from stepflow.domain.event import Entry, Event, RunFinished
from stepflow.domain.run import Limits
from stepflow.report.log import TerminalLog
from stepflow.report.wording import Tone

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
#: What the lines that follow a broken line stand below: its text, not its mark or its label.
BEFORE_TEXT = re.compile(r" *(?:[│✓✗→] |\w+(?: \w+)* {2,})?")
NARROWEST = 40
REDRAWN_PER_SECOND = 5


def make_console(out: TextIO) -> Console:
    """A console that changes only the color of a line."""
    return Console(file=out, highlight=False, soft_wrap=True, markup=False, emoji=False)


@contextmanager
def watch_run(
    console: Console, limits: Limits | None, *, debug: bool = False, before: Iterable[Event] = ()
) -> Iterator[Callable[[Entry], None]]:
    """A listener that shows each entry at once; on a terminal the last lines say what the run does just now. `before`
    are the events of a run that goes on."""
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
    """What the run does just now, below all that is printed meanwhile; only on a terminal. It is to hear each entry
    that the log has taken, before its lines are printed: a print repeats what was drawn last."""
    # Not `console.is_terminal`: FORCE_COLOR wants colors in a file too, but no line that moves.
    if not console.file.isatty():
        yield lambda entry: None
        return
    # Loaded here: most runs are watched in a job's log, where nothing moves.
    from rich.live import Live  # noqa: PLC0415
    from rich.spinner import Spinner  # noqa: PLC0415

    ahead = 0.0
    spinner = Spinner("dots")

    def notify(entry: Entry) -> None:
        nonlocal ahead
        # A scripted run's clock goes ahead of the machine's.
        ahead = entry.time - time.time()
        live.refresh()

    def drawn() -> Text:
        now = time.time() + ahead
        return _drawn(log.now(now), str(spinner.render(now)), console.width)

    live = Live(
        console=console,
        get_renderable=drawn,
        refresh_per_second=REDRAWN_PER_SECOND,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    with live:
        yield notify


def _drawn(shown_lines: Iterable[tuple[Tone, str]], mark: str, width: int) -> Text:
    """One line each, cut. The last place stays free and nothing is padded: a line that reaches the edge is broken in
    two when the window gets narrower, and half of it would stay."""
    lines = []
    for number, (kind, text) in enumerate(shown_lines):
        shown = Text(f"{' ' if number else mark} ").append(text, STYLES.get(kind))
        shown.truncate(width - 1, overflow="ellipsis")
        lines.append(shown)
    return Text("\n").join(lines)


def show_lines(console: Console, lines: Iterable[str]) -> None:
    """Print lines, which may be colored already, wrapped between words on a terminal."""
    texts = tuple(lines)
    if not console.color_system and not console.file.isatty() and not any("\x1b" in line for line in texts):
        _write_lines(console, texts)
        return
    broken = [part for line in texts for part in _broken(console, line)]
    if broken:
        console.print(Text("\n").join(broken))


def _write_lines(console: Console, lines: Sequence[str]) -> None:
    """Where rich would change nothing, it would still take most of what an event costs."""
    try:
        console.file.writelines(f"{line}\n" for line in lines)
        console.file.flush()
    except BrokenPipeError:
        # As its own `print` does.
        console.on_broken_pipe()


def _broken(console: Console, line: str) -> Iterable[Text]:
    """The line in parts that fit, the later ones below the text of the first."""
    whole = Text.from_ansi(line)
    width = console.width
    if not console.file.isatty() or width < NARROWEST or whole.cell_len <= width:
        return (whole,)
    before = BEFORE_TEXT.match(whole.plain)
    start = before.end() if before else 0
    words = whole[start:]
    # A path or an address that does not fit stays in one piece, so that it can be copied.
    whole_words = any("/" in word and len(word) > width - start for word in words.plain.split())
    parts = words.wrap(console, width - max(start, 2), overflow="ignore" if whole_words else "fold")
    follow = "│ " if "│" in whole.plain[:start] else ""
    hang = Text(f"{follow:>{max(start, 2)}}", whole.style)
    return tuple((whole[:start] if number == 0 else hang) + part for number, part in enumerate(parts))


def print_kinds(console: Console, lines: Iterable[tuple[Tone, str]]) -> None:
    """Print lines in the colors of their kinds."""
    for kind, line in lines:
        console.print(Text.from_ansi(apply_style(kind, line)))


def apply_style(kind: Tone, text: str) -> str:
    """The text in the colors of its kind."""
    return STYLES.get(kind, Style()).render(text)
