"""Golden files: what people read, held word by word. STEPFLOW_ACCEPT=1 writes them again."""

from __future__ import annotations

import os
from pathlib import Path

TESTS = Path(__file__).parent


def assert_golden(name: str, text: str) -> None:
    """The text is that of a golden file: `report/terminal.txt` is the file `terminal.txt` in `tests/report/golden`."""
    folder, _, file_name = name.partition("/")
    file = TESTS / folder / "golden" / file_name
    if os.environ.get("STEPFLOW_ACCEPT"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    again = (
        f"STEPFLOW_ACCEPT=1 writes {file.relative_to(TESTS.parent)} again; read each line that changes, as a user would"
    )
    assert text == file.read_text(encoding="utf-8"), again
