"""The rows that a preflight shows: one for each thing that it checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from stepflow.domain.reports.report import CheckState, PreflightCheck
from stepflow.domain.words import Outcome
from stepflow.errors import StepflowError
from stepflow.run.ending import outcome_of


def ok(name: str, detail: str) -> PreflightCheck:
    """Return a row for a check that passed."""
    return PreflightCheck(name=name, state=CheckState.OK, detail=detail)


def warning(name: str, detail: str) -> PreflightCheck:
    """Return a row for a problem that would not stop a run, but that somebody should know about."""
    return PreflightCheck(name=name, state=CheckState.WARNING, detail=detail)


def failed_row(name: str, detail: str, outcome: Outcome) -> PreflightCheck:
    """Return a row for a problem that would end a run with this outcome before it uses any tokens."""
    return PreflightCheck(name=name, state=CheckState.FAILED, detail=detail, outcome=outcome)


def unknown(name: str, where_to_look: str) -> PreflightCheck:
    """Return a row for something that cannot be checked from here."""
    return PreflightCheck(name=name, state=CheckState.UNKNOWN, detail=where_to_look)


def guard_rows(name: str, look: Callable[[], Iterable[PreflightCheck]]) -> tuple[PreflightCheck, ...]:
    """Return the rows that `look` returns, or one row that says why it failed."""
    try:
        return tuple(look())
    except StepflowError as error:
        return (failed_row(name, str(error), outcome_of(error)),)
