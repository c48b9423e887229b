"""Where runs at a terminal keep their run folders unless one is named."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from stepflow.errors import InputError


def runs_folder() -> Path:
    """In the runner's folder for temporary files, else in the system's, which several people may share."""
    runner_temp = os.environ.get("RUNNER_TEMP")
    return Path(runner_temp, "stepflow") if runner_temp else Path(tempfile.gettempdir(), f"stepflow-{os.geteuid()}")


def last_run() -> Path:
    """The folder of the newest run of this user; raises `InputError` when there is none."""
    journals = (path for path in runs_folder().glob("*/journal.jsonl") if path.stat().st_uid == os.getuid())
    newest = max(journals, key=lambda path: path.stat().st_mtime, default=None)
    if newest is None:
        raise InputError(f"There is no run in {runs_folder()} yet.", hint="Name the run folder that a run has printed.")
    return newest.parent
