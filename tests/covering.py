"""Which cells of a product of cases are tried: some that cover every row and every column, or all of them.

STEPFLOW_FULL=1 tries all of them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

FULL = bool(os.environ.get("STEPFLOW_FULL"))


def covering(rows: Sequence[str], columns: Sequence[str]) -> list[tuple[str, str]]:
    """A column for each row, shifted from row to row so that every column is met; there are as many rows at least."""
    assert len(rows) >= len(columns)
    chosen = {(row, columns[number % len(columns)]) for number, row in enumerate(rows)}
    return [(row, column) for row in rows for column in columns if FULL or (row, column) in chosen]
