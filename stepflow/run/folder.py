"""The run folder, made at the start; `leave.py` fills it at the end.

Takes: its path; a file in it and its text. Gives: nothing.
May touch: the run folder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepflow.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path


def make_folder(folder: Path) -> None:
    """The folder with its parents; raises `InputError` where it cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise InputError(
            f"The run folder {folder} cannot be made: {exc.strerror}.",
            hint="Set the input run-folder, or RUNNER_TEMP, to a place where this process may write.",
        ) from exc


def write_whole(path: Path, text: str) -> None:
    """Write the file as a whole or not at all, whenever this process is killed."""
    partial = path.with_name(f"{path.name}.part")
    # A lone surrogate, which only JSON can spell, stays spelled as JSON does.
    partial.write_text(text, encoding="utf-8", errors="backslashreplace")
    partial.replace(path)
