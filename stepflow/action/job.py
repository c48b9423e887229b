"""The job's side of a run: its log, its outputs, its summary.

Takes: the runner's files and stdout. Gives: nothing; the job shows it.
May touch: stdout, and the files that GITHUB_OUTPUT and GITHUB_STEP_SUMMARY name.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from stepflow.action.outputs import output_file_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Job:
    """Where a job reads what happened. The two files may be missing, as under a local runner."""

    def __init__(self, environ: Mapping[str, str], stdout: TextIO) -> None:
        self._stdout = stdout
        self._outputs = environ.get("GITHUB_OUTPUT")
        self._summary = environ.get("GITHUB_STEP_SUMMARY")

    def say(self, *lines: str) -> None:
        """Print lines to the job log, at once."""
        for line in lines:
            self._stdout.write(line + "\n")
        self._stdout.flush()

    def mask(self, secrets: Iterable[str]) -> None:
        """Let the runner replace these values in its log, line by line as it knows them."""
        self.say(*(f"::add-mask::{line}" for secret in secrets for line in secret.splitlines() if line.strip()))

    def write_outputs(self, outputs: Mapping[str, str]) -> None:
        """Set the action's outputs."""
        _append(self._outputs, output_file_text(outputs))

    def write_summary(self, text: str) -> None:
        """Add to the job summary."""
        _append(self._summary, text.rstrip() + "\n")


def _append(path: str | None, text: str) -> None:
    if path:
        with Path(path).open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
