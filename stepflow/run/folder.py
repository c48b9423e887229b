"""The run folder: made at the start, filled at the end.

Takes: its path; a report. Gives: nothing, or in words what could not be written.
May touch: the run folder.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from stepflow.errors import InputError
from stepflow.report import report_json

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from stepflow.domain.report import RunReport


def make_folder(folder: Path) -> None:
    """The folder with its parents; raises `InputError` where it cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise InputError(
            f"The run folder {folder} cannot be made: {exc.strerror}.",
            hint="Set the input run-folder, or RUNNER_TEMP, to a place where this process may write.",
        ) from exc


def write_reports(folder: Path, report: RunReport, texts: dict[str, str]) -> Iterator[str]:
    """Write `report.json`, `effects.json` and the given texts by their relative path; each whatever became of the
    others. What could not be written is told."""
    document = report_json(report)
    files = {"report.json": _text(document), "effects.json": _text({"effects": document["effects"]}), **texts}
    for name, text in files.items():
        path = folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # A lone surrogate, which only JSON can spell, stays spelled as JSON does.
            path.write_text(text, encoding="utf-8", errors="backslashreplace")
        except OSError as exc:
            yield f"[Run] {path} could not be written: {exc.strerror}"


def _text(document: object) -> str:
    return json.dumps(document, ensure_ascii=False, indent=2) + "\n"
