"""Formats the results of a preflight for a terminal, the job log and the job summary."""

from __future__ import annotations

from collections import Counter

from stepflow.domain.reports.report import CheckState, Preflight, PreflightCheck
from stepflow.domain.text import count
from stepflow.report.rendered import render
from stepflow.report.safe_text import aligned, defuse, one_line
from stepflow.report.wording import PASSED, Line, Tone, mark_of

LONGEST_DETAIL = 1200
_ORDER = {CheckState.FAILED: 0, CheckState.WARNING: 1, CheckState.UNKNOWN: 2}


def describe_preflight(preflight: Preflight) -> str:
    """Return the number of rows in each state, as text."""
    counts = Counter(check.state for check in preflight.checks)
    return ", ".join(
        count(counts[state], state) if state is CheckState.WARNING else f"{counts[state]} {state}"
        for state in CheckState
        if counts[state]
    )


def preflight_reason(preflight: Preflight) -> str:
    """Return which rows failed, or that none did."""
    failed = "; ".join(f"{check.name}: {check.detail}" for check in preflight.failed)
    return f"preflight of {preflight.agent}: {failed or describe_preflight(preflight)}"


def _by_state(preflight: Preflight) -> tuple[list[PreflightCheck], list[PreflightCheck]]:
    """Return the rows that need attention, the worst first, and the rows that passed."""
    fine = [check for check in preflight.checks if check.state is CheckState.OK]
    others = [check for check in preflight.checks if check.state is not CheckState.OK]
    return sorted(others, key=lambda check: _ORDER[check.state]), fine


def preflight_lines(preflight: Preflight, *, every_row: bool = False) -> list[Line]:
    """Return the rows that need attention first, one aligned line per row. The rows that passed follow in one line, or
    in one line each with `every_row`. The counts come last."""
    others, fine = _by_state(preflight)
    shown = [*others, *fine] if every_row else others
    widest = max(len(state) for state in CheckState)
    rows = aligned(
        (f"{mark_of(check.state).text} {check.state:<{widest}}", check.name, one_line(check.detail, LONGEST_DETAIL))
        for check in shown
    )
    lines = [Line(mark_of(check.state).tone, row) for check, row in zip(shown, rows, strict=True)]
    if fine and not every_row:
        # Show names, but only the number of rows in a group, such as the layers of the sandbox.
        groups = Counter(check.name.partition(": ")[0] for check in fine)
        names = (name if number == 1 else f"{name} ({number})" for name, number in groups.items())
        folded = f"{PASSED.text} ok: {', '.join(names)}; `--all` shows each"
        lines.append(Line(PASSED.tone, one_line(folded, LONGEST_DETAIL)))
    counted = f"{preflight.agent}: {describe_preflight(preflight)}"
    lines.append(Line(Tone.RUN, one_line(counted, LONGEST_DETAIL)))
    return [Line(tone, defuse(text)) for tone, text in lines]


def preflight_summary(preflight: Preflight) -> str:
    """Return the same rows for the job summary, with the rows that passed in a folded section."""
    others, fine = _by_state(preflight)
    counted = describe_preflight(preflight)
    return render("preflight.md.j2", preflight=preflight, counted=counted, others=others, fine=fine)
