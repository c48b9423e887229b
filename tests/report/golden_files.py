"""Golden files: what people read, held word by word. STEPFLOW_ACCEPT=1 writes them again."""

from __future__ import annotations

import os
from pathlib import Path

GOLDEN = Path(__file__).parent / "golden"


def assert_golden(name: str, text: str) -> None:
    """The text is the golden file's."""
    file = GOLDEN / name
    if os.environ.get("STEPFLOW_ACCEPT"):
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")
