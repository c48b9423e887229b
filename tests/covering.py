"""Which cells of a product of cases are tried: some that cover every row and every column, or all of them.

`STEPFLOW_FULL=1 make whole` tries all of them.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence

FULL = bool(os.environ.get("STEPFLOW_FULL"))

Cell = tuple[str, str]


def covering(rows: Sequence[str], columns: Sequence[str], *, always: Collection[Cell] = ()) -> list[Cell]:
    """A column for each row, shifted from row to row so that every column is met, and the cells `always`."""
    chosen = {*((row, columns[number % len(columns)]) for number, row in enumerate(rows)), *always}
    return [(row, column) for row in rows for column in columns if FULL or (row, column) in chosen]
