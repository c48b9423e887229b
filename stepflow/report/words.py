"""The end of a run for a terminal: a short block of plain text with aligned columns.

Takes: `RunReport`. Gives: lines without line breaks. May touch: nothing.
Used by `stepflow run`, `stepflow demo` and as the last lines of the job log.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from stepflow.domain.problem import Severity
from stepflow.report.advice import next_step
from stepflow.report.plain import aligned, defuse, one_line
from stepflow.report.summary import figures
from stepflow.report.tables import ends_of
from stepflow.report.wording import told_reason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stepflow.domain.report import RunReport, ValidatorRun

STEPS_SHOWN = 12
PROBLEMS_SHOWN = 20


def final_words(report: RunReport) -> list[str]:
    """Outcome, reason, way, validators, effects, cost, run folder, and what to do next."""
    reason = one_line(told_reason(report.outcome, report.reason), 500)
    lines = [f"{'✓' if report.success else '✗'} {report.outcome}: {reason}"]
    shown = [problem for problem in report.problems if problem.severity is not Severity.NOTE]
    lines += [f"  {one_line(str(problem), 400)}" for problem in shown[:PROBLEMS_SHOWN]]
    facts = [*_facts(report)]
    width = max(len(name) for name, _ in facts)
    lines += [f"  {name:<{width}}  {text}".rstrip() for name, text in facts]
    return [defuse(line) for line in lines]


def _facts(report: RunReport) -> Iterator[tuple[str, str]]:
    if report.history:
        yield "steps", _way(report)
    if report.verdict:
        yield "verdict", one_line(report.verdict)
    for at, text in enumerate(_validators(report)):
        yield "" if at else "validators", text
    for at, text in enumerate(_effects(report)):
        yield "" if at else "effects", text
    yield "cost", " · ".join(figures(report))
    if report.host_run_folder or report.run_folder:
        yield "run folder", one_line(report.host_run_folder or report.run_folder, 400)
    yield "next", next_step(report)


def _way(report: RunReport) -> str:
    names = [one_line(line.step_id, 60) for line in report.history]
    runs = [(name, len(list(same))) for name, same in groupby(names)]
    shown, left_out = ends_of([f"{name} ×{times}" if times > 1 else name for name, times in runs], STEPS_SHOWN)
    way = list(shown)
    if left_out:
        way.insert(len(way) // 2, f"… {left_out:,} more …")
    return " → ".join(way)


def _validators(report: RunReport) -> tuple[str, ...]:
    shown, left_out = ends_of(report.validators, STEPS_SHOWN)
    lines = aligned(
        [
            (
                f"{'✓' if run.passed else '✗'} {one_line(run.name, 40)}",
                f"iteration {run.iteration}",
                "" if run.passed else f"{_exited(run)}then {one_line(run.action or 'stop', 40)}",
            )
            for run in shown
        ]
    )
    return (*lines, f"… {left_out:,} more …") if left_out else lines


def _exited(run: ValidatorRun) -> str:
    """A red validator that exited with 0 failed by its output."""
    return f"exit {run.exit_code}, " if run.exit_code else ""


def _effects(report: RunReport) -> tuple[str, ...]:
    return aligned([(e.kind, e.status, one_line(e.url or e.detail, 200)) for e in report.effects])
