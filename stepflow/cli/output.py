"""Terminal output without a library, for commands that must answer at once: colors, width, JSON, and the location of
run folders."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from stepflow.domain.json import JsonObject
from stepflow.errors import InputError
from stepflow.report.diagnostic import Style, Theme

_CODES = {Style.ERROR: "1;31", Style.WARNING: "1;33", Style.NOTE: "1;36", Style.FRAME: "34", Style.HELP: "1;32"}
NARROWEST, WIDEST = 40, 100


def theme_for(out: TextIO, environ: Mapping[str, str] = os.environ) -> Theme:
    """Return a theme with colors and wrapping for a terminal, or a plain one without a maximum line length for a
    pipe."""
    width = None
    if out.isatty():
        width = min(max(shutil.get_terminal_size().columns, NARROWEST), WIDEST)
    if not colored(out, environ):
        return Theme(width=width)
    return Theme(width=width, style=lambda style, text: f"\x1b[{_CODES[style]}m{text}\x1b[0m")


def colored(out: TextIO, environ: Mapping[str, str]) -> bool:
    """Return whether to use colors, by https://no-color.org and by FORCE_COLOR as rich reads it."""
    if environ.get("NO_COLOR"):
        return False
    return bool(environ.get("FORCE_COLOR")) or (out.isatty() and environ.get("TERM") != "dumb")


def print_json(document: JsonObject, *, indent: int | None = None) -> None:
    """Print a JSON document with everything but ASCII escaped, because the terminal may not be able to encode a text of
    a model or a file. `##[` is escaped too, because the runner of a job obeys it anywhere in a line."""
    print(json.dumps(document, indent=indent).replace("##[", "##\\u005b"))


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
