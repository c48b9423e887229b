"""Says in a log what takes long, where no terminal shows it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from stepflow.domain.activity import current_activity, oldest_activity

if TYPE_CHECKING:
    from stepflow.report.safe_text import Line

#: A line is due when an activity has taken so many seconds, and again each time these have doubled.
FIRST_LINE_AFTER = 10.0
_LOOKS_EVERY = 0.5


@contextmanager
def log_long_activities(say: Callable[[Line], None]) -> Iterator[None]:
    """Call `say` with a line about every activity that takes long inside the block. `say` is called from another
    thread."""
    over = threading.Event()
    thread = threading.Thread(target=_watch, args=(say, over), name="long activities", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _watch(say: Callable[[Line], None], over: threading.Event) -> None:
    watched: tuple[str, ...] = ()
    began = due = 0.0
    while not over.wait(_LOOKS_EVERY):
        # Several threads may work: the parts change, and what they are a part of takes the time.
        oldest, now = oldest_activity(), time.monotonic()
        if oldest is not watched:
            watched, began, due = oldest, now, FIRST_LINE_AFTER
        elif watched and now - began >= due:
            due *= 2
            try:
                say(_describe(current_activity() or watched, now - began))
            except (OSError, ValueError):
                # Nobody reads any more.
                return


def _describe(activity: tuple[str, ...], seconds: float) -> Line:
    # Imported here because `--help` and `validate` must answer at once.
    from stepflow.report.safe_text import Tone, line, one_line, seconds_text  # noqa: PLC0415

    return line(Tone.ASIDE, f"… still running after {seconds_text(seconds)}: {one_line(': '.join(activity))}")
