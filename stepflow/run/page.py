"""The page of a run, `report.html` in its folder.

Takes: a run request and the report, or a journal. Gives: what went wrong with the page, if anything.
May touch: the run folder, and the file that is asked for.
A page is for people; whatever is wrong with it must not change how the run ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepflow.domain.words import Outcome
from stepflow.journal.reader import iter_journal
from stepflow.run.diffs import Stretches, diffs_of
from stepflow.run.earlier import JOURNAL
from stepflow.run.folder import write_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from stepflow.domain.definition import AgentDefinition
    from stepflow.domain.report import RunReport
    from stepflow.run.request import RunRequest

PAGE = "report.html"
#: A cancelled run has seconds until it is killed, and its outputs come after the page.
EVENTS_WHEN_CANCELLED = 5_000


def write_page(request: RunRequest, report: RunReport, agent: AgentDefinition | None) -> Iterator[str]:
    """Write the page of a run that has ended, as a whole or not at all."""
    journal = request.folder / JOURNAL
    try:
        if report.outcome is Outcome.CANCELLED and _lines_of(journal) > EVENTS_WHEN_CANCELLED:
            yield "[Report] report.html was left out, because the run was cancelled and its journal is long."
            return
        page_of_journal(journal, report, agent, request.folder / PAGE, redact=request.redactor)
    except Exception as bug:  # noqa: BLE001 - see above: the run is over, its outcome is written down
        yield f"[Report] report.html could not be written: {type(bug).__name__}: {bug}"


def page_of_journal(
    journal: Path,
    report: RunReport,
    agent: AgentDefinition | None,
    place: Path,
    *,
    redact: Callable[[str], str] = str,
) -> None:
    """The page of a journal at this place, instead of what was there. `redact` is for what the snapshots beside the
    journal hold: that was written down as it was."""
    from stepflow.report.html.page import report_html  # noqa: PLC0415 - templates cost time that a start need not pay

    stretches = Stretches()
    page = report_html(
        stretches.watch(iter_journal(journal)),
        report,
        agent,
        count=_lines_of(journal),
        diffs=lambda: diffs_of(stretches, journal.parent, redact),
    )
    write_whole(place, page)


def _lines_of(journal: Path) -> int:
    with journal.open("rb") as lines:
        return sum(1 for _ in lines)
