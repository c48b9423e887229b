"""The table of a preflight, for a terminal, the job log and the job summary."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from stepflow.domain.figures import count
from stepflow.domain.report import CheckState
from stepflow.report.lines import Tone, mark_of
from stepflow.report.safe_text import aligned, defuse, details, one_line, plain, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stepflow.domain.report import Preflight, PreflightCheck

LONGEST_DETAIL = 1200
_ORDER = {CheckState.FAILED: 0, CheckState.WARNING: 1, CheckState.UNKNOWN: 2}


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


def preflight_lines(preflight: Preflight, *, every_row: bool = False) -> list[tuple[Tone, str]]:
    """What people must know first, one line per row, aligned; what is fine in one line, or in one line each with
    `every_row`; and the counts."""
    fine = [check for check in preflight.checks if check.state is CheckState.OK]
    first = sorted((check for check in preflight.checks if check not in fine), key=lambda check: _ORDER[check.state])
    rows = _rows([*first, *fine] if every_row else first)
    folded = [(mark_of(CheckState.OK).tone, defuse(_folded(fine)))] if fine and not every_row else []
    counted = defuse(one_line(f"{preflight.agent}: {describe_preflight(preflight)}", LONGEST_DETAIL))
    return [*rows, *folded, (Tone.RUN, counted)]


def _rows(checks: Sequence[PreflightCheck]) -> list[tuple[Tone, str]]:
    state = max(len(state) for state in CheckState)
    lines = aligned(
        (f"{mark_of(check.state).text} {check.state:<{state}}", check.name, one_line(check.detail, LONGEST_DETAIL))
        for check in checks
    )
    kinds = (mark_of(check.state).tone for check in checks)
    return [(kind, defuse(line)) for kind, line in zip(kinds, lines, strict=True)]


def _folded(checks: Sequence[PreflightCheck]) -> str:
    """Their names; of a group, such as the layers of the sandbox, only how many."""
    groups = Counter(check.name.partition(": ")[0] for check in checks)
    names = (name if number == 1 else f"{name} ({number})" for name, number in groups.items())
    return one_line(f"{mark_of(CheckState.OK).text} ok: {', '.join(names)}; `--all` shows each", LONGEST_DETAIL)


def preflight_summary(preflight: Preflight) -> str:
    """The same for the job summary, where what is fine is folded."""
    fine = [check for check in preflight.checks if check.state is CheckState.OK]
    first = sorted((check for check in preflight.checks if check not in fine), key=lambda check: _ORDER[check.state])
    parts = (
        f"## {mark_of(not preflight.failed).emoji} {plain(preflight.agent)}: preflight",
        plain(describe_preflight(preflight)),
        _table(first) if first else "",
        details(f"{len(fine)} ok", _table(fine)) if fine else "",
    )
    return "\n\n".join(part for part in parts if part)


def _table(checks: Sequence[PreflightCheck]) -> str:
    rows = (
        (plain(check.name), f"{mark_of(check.state).emoji} {check.state}", plain(check.detail, LONGEST_DETAIL))
        for check in checks
    )
    return table(("Check", "State", "Detail"), rows)
