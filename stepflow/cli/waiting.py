"""Shows what a command is doing while it prints nothing."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

from stepflow.domain.activity import current_activity
from stepflow.domain.text import ANSI
from stepflow.run.long_activity import log_long_activities

if TYPE_CHECKING:
    from stepflow.report.safe_text import Line

#: After so many seconds without a word a person begins to wonder.
SILENT_SECONDS = 1.0
_EVERY = 0.2
_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_ERASE = "\r\x1b[2K"


@contextmanager
def shown_activity(command: str) -> Iterator[None]:
    """Inside the block, what is being done is shown on the last line of the terminal that standard error goes to,
    whenever nothing is printed for a second. An unfinished line, such as a question, stays as it is. Anywhere else,
    such as in a log, what takes long gets a line."""
    if not sys.stderr.isatty():
        with log_long_activities(_log):
            yield
        return
    line = _Line(sys.stderr, command)
    out, err = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = _ErasingStream(out, line), _ErasingStream(err, line)
    thread = threading.Thread(target=line.keep_drawing, daemon=True)
    thread.start()
    try:
        yield
    finally:
        line.close()
        thread.join()
        sys.stdout, sys.stderr = out, err


def _log(written: Line) -> None:
    from stepflow.cli.terminal import print_lines  # noqa: PLC0415 - few commands take long

    print_lines(sys.stderr, (written,))


class _Line:
    """The line with the activity. What else is printed erases it first."""

    def __init__(self, terminal: TextIO, command: str) -> None:
        self._terminal, self._command = terminal, command
        self._can_erase = os.environ.get("TERM", "dumb") != "dumb"
        self._lock = threading.RLock()
        self._closed = threading.Event()
        self._last_word = time.monotonic()
        self._began, self._text, self._is_drawn, self._plain = self._last_word, "", False, ""
        self._is_free = True

    def keep_drawing(self) -> None:
        """Draw whenever it has been silent for long, until the line is closed."""
        while not self._closed.wait(_EVERY):
            with self._lock:
                silent = time.monotonic() - self._last_word >= SILENT_SECONDS
                if silent and self._is_free and not self._closed.is_set():
                    self._draw()

    @contextmanager
    def erased(self, text: str) -> Iterator[None]:
        """Erase the line while this text is printed inside the block."""
        with self._lock:
            self._erase()
            self._last_word = time.monotonic()
            if shown := ANSI.sub("", text):
                self._is_free = shown.endswith(("\n", "\r"))
            yield

    def close(self) -> None:
        """Erase the line for good."""
        with self._lock:
            self._closed.set()
            self._erase()

    def _draw(self) -> None:
        from stepflow.report.safe_text import one_line, seconds_text  # noqa: PLC0415 - few commands take long

        text = one_line(": ".join(current_activity()) or f"stepflow {self._command}")
        now = time.monotonic()
        if text != self._text:
            self._text, self._began = text, now
        width = os.get_terminal_size(self._terminal.fileno()).columns or 80
        if self._can_erase:
            took = f" ({seconds_text(now - self._began)})" if now - self._began >= SILENT_SECONDS else ""
            frame = _FRAMES[int(now / _EVERY) % len(_FRAMES)]
            shown = _cut(text, width - len(took) - 4)
            self._write(f"{_ERASE}{frame} {shown}{took}")
            self._is_drawn = True
        elif text != self._plain:
            self._plain = text
            self._write(f"… {text}\n")

    def _erase(self) -> None:
        if self._is_drawn:
            self._write(_ERASE)
            self._is_drawn = False

    def _write(self, text: str) -> None:
        try:
            self._terminal.write(text)
            self._terminal.flush()
        except (OSError, ValueError, UnicodeEncodeError):
            # The terminal is gone, or does not know the characters.
            self._closed.set()


def _cut(text: str, width: int) -> str:
    from rich.cells import set_cell_size  # noqa: PLC0415 - as above

    return set_cell_size(text, max(width, 1)).rstrip()


class _ErasingStream:
    """A stream that erases the line before each word."""

    def __init__(self, stream: TextIO, line: _Line) -> None:
        self._stream, self._line = stream, line

    def write(self, text: str) -> int:
        """Write behind the erased line."""
        with self._line.erased(text):
            return self._stream.write(text)

    def writelines(self, texts: Iterable[str]) -> None:
        """Write behind the erased line."""
        self.write("".join(texts))

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the stream has
        return getattr(self._stream, name)
