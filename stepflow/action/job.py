"""The job's side of a run: its log, its outputs, its summary.

Takes: the runner's files and stdout. Gives: nothing; the job shows it.
May touch: stdout, and the files that GITHUB_OUTPUT and GITHUB_STEP_SUMMARY name.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from stepflow.action.outputs import output_file_text
from stepflow.domain.secrets import Redactor
from stepflow.report.annotations import annotation

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Job:
    """Where a job reads what happened; no secret that it was told of gets through.

    The two files may be missing, as under a local runner; one that cannot be written is only a warning.
    """

    def __init__(self, environ: Mapping[str, str], stdout: TextIO) -> None:
        self._stdout = stdout
        self._redact = Redactor()
        self._outputs = environ.get("GITHUB_OUTPUT")
        self._summary = environ.get("GITHUB_STEP_SUMMARY")

    def say(self, *lines: str) -> None:
        """Print lines to the job log, at once."""
        self._print(map(self._redact, lines))

    def mask(self, secrets: Iterable[str]) -> None:
        """Let the runner replace these values in its log, line by line as it knows them, and replace them here too."""
        known = tuple(secrets)
        lines = (line.replace("%", "%25") for secret in known for line in secret.splitlines() if line.strip())
        self._print(f"::add-mask::{line}" for line in lines)
        self._redact = self._redact.knowing(*known)

    def write_outputs(self, outputs: Mapping[str, str]) -> None:
        """Set the action's outputs."""
        redacted = {name: self._redact(value) for name, value in outputs.items()}
        self._append("GITHUB_OUTPUT", self._outputs, output_file_text(redacted))

    def write_summary(self, text: str) -> None:
        """Add to the job summary."""
        self._append("GITHUB_STEP_SUMMARY", self._summary, self._redact(text).rstrip() + "\n")

    def _print(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._stdout.write(line + "\n")
        self._stdout.flush()

    def _append(self, name: str, path: str | None, text: str) -> None:
        if not path:
            return
        try:
            with Path(path).open("a", encoding="utf-8", errors="backslashreplace") as file:
                file.write(text)
        except OSError as exc:
            self.say(annotation("warning", f"{name} names {path}, which cannot be written: {exc.strerror}."))
