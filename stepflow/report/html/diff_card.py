"""What a step changed in the working tree, as the last card of its iteration.

Takes: `StepDiff`. Gives: its card, a part for each file.
May touch: nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepflow.domain.figures import count
from stepflow.report.html.card import Card, Part
from stepflow.report.plain import one_line

if TYPE_CHECKING:
    from stepflow.report.diff import FileDiff, StepDiff

#: Of a step with more files than these, each is opened by whoever wants to read it.
OPEN_FILES = 5


def diff_card(diff: StepDiff) -> Card:
    """The card of one iteration's diff."""
    added, removed = sum(file.added for file in diff.files), sum(file.removed for file in diff.files)
    figures = (count(len(diff.files), "file"), f"+{added:,} −{removed:,}") if diff.files else ()
    is_open = len(diff.files) <= OPEN_FILES
    return Card(
        title="What the step changed",
        facts=(*figures, *diff.notes),
        parts=tuple(Part(label=_label(file), text=file.text, is_open=is_open, is_diff=True) for file in diff.files),
    )


def _label(file: FileDiff) -> str:
    counted = f" (+{file.added:,} −{file.removed:,})" if file.added or file.removed else ""
    return f"{one_line(file.path, 120)}{counted}"
