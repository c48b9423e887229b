"""Workflow commands that show a message on the run's page or on the diff (action.md "Annotations")."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepflow.domain.problem import Severity
from stepflow.domain.words import Outcome
from stepflow.report.safe_text import cut, harmless
from stepflow.report.wording import OUTCOMES, describe_reason, next_step

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stepflow.domain.problem import Problem
    from stepflow.domain.report import RunReport

LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}
_POSITION = ("line", "col", "endColumn")
MESSAGE_LIMIT = 4000
TITLE_LIMIT = 200


def annotation(
    level: str,
    message: str,
    *,
    file: str | None = None,
    line: int | None = None,
    columns: tuple[int | None, int | None] = (None, None),
    title: str | None = None,
) -> str:
    """One workflow command. `level` is `error`, `warning` or `notice`; with `file` it shows on the diff.

    `columns` are the first and the last on that line.
    """
    position = zip(_POSITION, (line, *columns), strict=True)
    numbers = {name: str(number) if number else None for name, number in position}
    given = {"file": file, **numbers, "title": cut(title, TITLE_LIMIT) if title else None}
    properties = ",".join(f"{name}={_property(value)}" for name, value in given.items() if value)
    return f"::{level}{' ' if properties else ''}{properties}::{_data(cut(message, MESSAGE_LIMIT))}"


def problem_annotations(problems: Iterable[Problem]) -> tuple[str, ...]:
    """One annotation per problem that somebody must act on; notes are not among them."""
    return tuple(
        annotation(
            LEVELS[problem.severity],
            f"{problem.message}. Fix: {problem.fix}",
            file=problem.file,
            line=problem.line,
            columns=(problem.column, problem.end_column and problem.end_column - 1),
            title=f"{problem.code} {problem.path}".strip(),
        )
        for problem in problems
        if problem.severity is not Severity.NOTE
    )


def outcome_annotation(report: RunReport) -> tuple[str, ...]:
    """What a person must know at the end: nothing when all went well."""
    if report.success:
        return ()
    level = "notice" if report.outcome is Outcome.SKIPPED else "error"
    what = f"{describe_reason(report.reason)}\n{next_step(report)}"
    return (annotation(level, what, title=f"{report.agent or 'stepflow'}: {OUTCOMES[report.outcome]}"),)


def _data(text: str) -> str:
    # The runner prints an annotation's text into the log again, where it may be read for commands again.
    return harmless(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
