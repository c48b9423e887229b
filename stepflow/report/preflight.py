"""The table of a preflight, for a terminal, the job log and the job summary."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from stepflow.domain.figures import count
from stepflow.domain.report import CheckState
from stepflow.report.lines import LineKind
from stepflow.report.markdown import plain, table
from stepflow.report.plain import aligned, defuse, one_line

if TYPE_CHECKING:
    from stepflow.domain.report import Preflight

MARKS = {CheckState.OK: "✓", CheckState.WARNING: "!", CheckState.FAILED: "✗", CheckState.UNKNOWN: "?"}
SIGNS = {CheckState.OK: "✅", CheckState.WARNING: "⚠️", CheckState.FAILED: "❌", CheckState.UNKNOWN: "❔"}
KINDS = {
    CheckState.OK: LineKind.GOOD,
    CheckState.WARNING: LineKind.WARNING,
    CheckState.FAILED: LineKind.BAD,
    CheckState.UNKNOWN: LineKind.DETAIL,
}
LONGEST_DETAIL = 1200


def describe_preflight(preflight: Preflight) -> str:
    """How many rows of each state there are, in words."""
    counts = Counter(check.state for check in preflight.checks)
    return ", ".join(_counted(counts[state], state) for state in CheckState if counts[state])


def preflight_reason(preflight: Preflight) -> str:
    """The rows that failed, or that none did."""
    failed = "; ".join(f"{check.name}: {check.detail}" for check in preflight.failed)
    return f"preflight of {preflight.agent}: {failed or describe_preflight(preflight)}"


def preflight_lines(preflight: Preflight) -> list[tuple[LineKind, str]]:
    """One line per row, aligned, and one with the counts."""
    state = max(len(state) for state in CheckState)
    lines = aligned(
        (f"{MARKS[check.state]} {check.state:<{state}}", check.name, one_line(check.detail, LONGEST_DETAIL))
        for check in preflight.checks
    )
    rows = [(KINDS[check.state], defuse(line)) for check, line in zip(preflight.checks, lines, strict=True)]
    return [
        *rows,
        (LineKind.RUN, defuse(one_line(f"{preflight.agent}: {describe_preflight(preflight)}", LONGEST_DETAIL))),
    ]


def preflight_summary(preflight: Preflight) -> str:
    """The same for the job summary."""
    sign = SIGNS[CheckState.FAILED if preflight.failed else CheckState.OK]
    rows = (
        (plain(check.name), f"{SIGNS[check.state]} {check.state}", plain(check.detail, LONGEST_DETAIL))
        for check in preflight.checks
    )
    head = f"## {sign} {plain(preflight.agent)}: preflight\n\n{plain(describe_preflight(preflight))}"
    return f"{head}\n\n{table(('Check', 'State', 'Detail'), rows)}"


def _counted(number: int, state: CheckState) -> str:
    return count(number, state) if state is CheckState.WARNING else f"{number} {state}"
