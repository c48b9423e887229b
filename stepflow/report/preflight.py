"""The table of a preflight, for a terminal, the job log and the job summary."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from stepflow.domain.figures import count
from stepflow.domain.report import CheckState
from stepflow.report.lines import KINDS, LineKind, mark_of
from stepflow.report.markdown import plain, table
from stepflow.report.plain import aligned, defuse, one_line

if TYPE_CHECKING:
    from stepflow.domain.report import Preflight

LONGEST_DETAIL = 1200


def describe_preflight(preflight: Preflight) -> str:
    """How many rows of each state there are, in words."""
    counts = Counter(check.state for check in preflight.checks)
    return ", ".join(
        count(counts[state], state) if state is CheckState.WARNING else f"{counts[state]} {state}"
        for state in CheckState
        if counts[state]
    )


def preflight_reason(preflight: Preflight) -> str:
    """The rows that failed, or that none did."""
    failed = "; ".join(f"{check.name}: {check.detail}" for check in preflight.failed)
    return f"preflight of {preflight.agent}: {failed or describe_preflight(preflight)}"


def preflight_lines(preflight: Preflight) -> list[tuple[LineKind, str]]:
    """One line per row, aligned, and one with the counts."""
    state = max(len(state) for state in CheckState)
    lines = aligned(
        (f"{mark_of(check.state).text} {check.state:<{state}}", check.name, one_line(check.detail, LONGEST_DETAIL))
        for check in preflight.checks
    )
    rows = [
        (KINDS.get(mark_of(check.state).tone, LineKind.DETAIL), defuse(line))
        for check, line in zip(preflight.checks, lines, strict=True)
    ]
    return [
        *rows,
        (LineKind.RUN, defuse(one_line(f"{preflight.agent}: {describe_preflight(preflight)}", LONGEST_DETAIL))),
    ]


def preflight_summary(preflight: Preflight) -> str:
    """The same for the job summary."""
    rows = (
        (plain(check.name), f"{mark_of(check.state).emoji} {check.state}", plain(check.detail, LONGEST_DETAIL))
        for check in preflight.checks
    )
    title = f"## {mark_of(not preflight.failed).emoji} {plain(preflight.agent)}: preflight"
    return f"{title}\n\n{plain(describe_preflight(preflight))}\n\n{table(('Check', 'State', 'Detail'), rows)}"
