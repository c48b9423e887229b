"""What commands print: lines in colors, JSON, and a run while it is running. rich is loaded only for what it draws."""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, TextIO

from stepflow.domain.activity import current_activity
from stepflow.domain.event import Entry, Event, RunFinished
from stepflow.domain.json import JsonObject, escape_unseen
from stepflow.domain.run import Limits
from stepflow.errors import InputError
from stepflow.report.log import TerminalLog
from stepflow.report.safe_text import Command, Line, Tone, text_lines

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

#: The terminal's codes for the color of a line.
_COLORS = {
    Tone.RUN: "1",
    Tone.STEP: "1;36",
    Tone.WORDS: "3",
    Tone.ROUTE: "35",
    Tone.GOOD: "32",
    Tone.TOOL: "32",
    Tone.BAD: "31",
    Tone.WARNING: "33",
    **dict.fromkeys((Tone.PROGRESS, Tone.FOLDED, Tone.ASIDE), "2"),
}
#: The mark or label of a line, before its text. If a line is broken, the rest is aligned below the text.
BEFORE_TEXT = re.compile(r" *(?:[│✓✗→] |\w+(?: \w+)* {2,})?")
NARROWEST = 40
REDRAWN_PER_SECOND = 5


def make_console(out: TextIO) -> Console:
    """Return a console that changes nothing but the color of a line."""
    # rich is imported where it is used, because `validate` and `explain` must answer at once.
    from rich.console import Console  # noqa: PLC0415

    return Console(file=out, highlight=False, soft_wrap=True, markup=False, emoji=False)


@contextmanager
def watch_run(
    console: Console, limits: Limits | None, *, debug: bool = False, before: Iterable[Event] = ()
) -> Iterator[Callable[[Entry], None]]:
    """Yield a listener that shows each entry at once. On a terminal, the last lines show what the run is doing.
    `before` are the earlier events of a resumed run."""
    log = TerminalLog(limits, debug=debug)
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
        return _draw_lines(log.now(now, ": ".join(current_activity())), str(spinner.render(now)), console.width)

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


def _draw_lines(shown_lines: Iterable[Line], mark: str, width: int) -> Text:
    """Return one line each, cut. The last column stays free, and nothing is padded. When the window becomes narrower, a
    line that reaches the edge would be broken in two, and half of it would remain."""
    from rich.text import Text  # noqa: PLC0415 - as above

    lines = []
    for number, each in enumerate(shown_lines):
        shown = Text.from_ansi(f"{' ' if number else mark} {apply_style(each)}")
        shown.truncate(width - 1, overflow="ellipsis")
        lines.append(shown)
    return Text("\n").join(lines)


def print_lines(out: TextIO, lines: Iterable[Line | Command]) -> None:
    """Print lines in the colors of their tones. Only a terminal, where they are wrapped, needs rich."""
    if out.isatty():
        show_lines(make_console(out), lines)
        return
    out.writelines(f"{each}\n" for each in _colored_lines(out, lines))
    out.flush()


def show_texts(console: Console, texts: Iterable[str]) -> None:
    """Print each text on a line of its own."""
    show_lines(console, (Line(Tone.PLAIN, text) for text in texts))


def show_note(console: Console, text: str) -> None:
    """Print what the command does at the moment."""
    show_lines(console, (Line(Tone.ASIDE, f"… {text}"),))


def show_lines(console: Console, lines: Iterable[Line | Command]) -> None:
    """Print lines in the colors of their tones, and wrap them between words on a terminal."""
    if not console.file.isatty():
        # rich would change nothing, and takes most of the time that an event costs.
        try:
            console.file.writelines(f"{each}\n" for each in _colored_lines(console.file, lines))
            console.file.flush()
        except BrokenPipeError:
            # Do what rich's `print` does.
            console.on_broken_pipe()
        return
    from rich.text import Text  # noqa: PLC0415 - as above

    broken = [
        part for line in _colored_lines(console.file, lines) for part in _break_line(console, Text.from_ansi(line))
    ]
    if broken:
        console.print(Text("\n").join(broken))


def _break_line(console: Console, whole: Text) -> Iterable[Text]:
    """Return the line in parts that fit. Later parts are aligned below the text of the first."""
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
    hang = whole.blank_copy(f"{follow:>{max(start, 2)}}")
    return tuple((whole[:start] if number == 0 else hang) + part for number, part in enumerate(parts))


def _colored_lines(out: IO[str], lines: Iterable[Line | Command]) -> Iterable[str]:
    return map(apply_style, lines) if colored(out, os.environ) else lines


def apply_style(line: Line | Command) -> str:
    """Return the line in the color of its tone."""
    code = _COLORS.get(line.tone, "") if isinstance(line, Line) else ""
    return f"\x1b[{code}m{line}\x1b[0m" if code and line else line


def colored(out: IO[str], environ: Mapping[str, str]) -> bool:
    """Return whether to use colors, by https://no-color.org and by FORCE_COLOR as rich reads it."""
    if environ.get("NO_COLOR"):
        return False
    return bool(environ.get("FORCE_COLOR")) or (out.isatty() and environ.get("TERM") != "dumb")


def print_document(text: str) -> None:
    """Print a text that another program reads, such as a drawing, as lines."""
    print_lines(sys.stdout, text_lines(text.rstrip("\n")))


def print_json(document: JsonObject, *, indent: int | None = None) -> None:
    """Print a JSON document with everything but ASCII escaped, because the terminal may not be able to encode a text of
    a model or a file. `##[` is escaped too, because the runner of a job obeys it anywhere in a line."""
    print(escape_unseen(json.dumps(document, indent=indent)))


@contextmanager
def writing(what: str, *, hint: str) -> Iterator[None]:
    """Turn a failure to write what the user named into an `InputError`."""
    try:
        yield
    except OSError as exc:
        raise InputError(f"{what} cannot be written: {exc.strerror}.", hint=hint) from exc


def runs_folder() -> Path:
    """Return the folder for run folders that were not named: in the runner's folder for temporary files, or in the
    system's, which several users may share."""
    runner_temp = os.environ.get("RUNNER_TEMP")
    return Path(runner_temp, "stepflow") if runner_temp else Path(tempfile.gettempdir(), f"stepflow-{os.geteuid()}")


def last_run() -> Path:
    """Return the run folder of this user's newest run. Raise `InputError` if there is none."""
    journals = (path for path in runs_folder().glob("*/journal.jsonl") if path.stat().st_uid == os.getuid())
    newest = max(journals, key=lambda path: path.stat().st_mtime, default=None)
    if newest is None:
        raise InputError(f"There is no run in {runs_folder()} yet.", hint="Name the run folder that a run has printed.")
    return newest.parent
