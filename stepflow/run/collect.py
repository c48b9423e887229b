"""The report of a run as its journal stands.

Takes: a prepared run. Gives: `RunReport`, at the end or on the way there.
May touch: the run's journal, to read it. A long one takes a second: whoever needs several things of it asks once.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from stepflow.domain.effect import EffectKind
from stepflow.domain.words import CODE_OF_OUTCOME, Outcome
from stepflow.errors import StepflowError
from stepflow.journal.reader import iter_journal
from stepflow.report.collect import collect_report
from stepflow.report.comment import comment_summary
from stepflow.report.ending import ReportFacts
from stepflow.run.earlier import JOURNAL

if TYPE_CHECKING:
    from pathlib import Path

    from stepflow.domain.report import RunReport
    from stepflow.run.ending import Ending
    from stepflow.run.prepare import Prepared


def journal_path(prepared: Prepared) -> Path:
    """Where the run's journal is."""
    return prepared.request.folder / JOURNAL


def collect_run(prepared: Prepared, ending: Ending | None = None) -> RunReport:
    """Everything that the journal and the request know; the `ending` counts where the journal could not take it."""
    request, agent = prepared.request, prepared.agent
    known = ReportFacts(outcome=ending.outcome, reason=ending.reason) if ending else ReportFacts()
    facts = replace(
        known,
        run_id=request.run_id,
        agent=agent.name,
        problems=agent.problems,
        issue=prepared.issue.number if prepared.issue else None,
        run_folder=str(request.folder),
        host_run_folder=request.host_folder,
    )
    try:
        return collect_report(iter_journal(journal_path(prepared)), agent, facts=facts)
    except StepflowError:
        if ending is None:
            raise
        return collect_report((), agent, facts=facts)


def pushed_commit(report: RunReport) -> str:
    """The commit that this run has pushed so far, empty if none."""
    pushed = (e.commit for e in report.effects if e.kind is EffectKind.PUSH_BRANCH)
    return next(pushed, "")


def guard_warnings(report: RunReport) -> tuple[str, ...]:
    """What each validator's last run brought to light about what it stands on."""
    last = {run.name: run for run in report.validators}
    return tuple(f"{run.name}: {text}" for run in last.values() for text in run.warnings)


def comment_text(report: RunReport, ending: Ending, *, job_url: str) -> str:
    """The engine's own text for the run's one comment, with the ending that the journal does not hold yet."""
    ended = replace(
        report,
        outcome=ending.outcome,
        reason=ending.reason,
        success=ending.outcome is Outcome.COMPLETED,
        code=CODE_OF_OUTCOME.get(ending.outcome),
    )
    return comment_summary(ended, run_url=job_url)
