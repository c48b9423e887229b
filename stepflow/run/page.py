"""The page of a run, `report.html` in its folder.

Takes: a prepared run and its report. Gives: what went wrong with the page, if anything.
May touch: the run folder. A page is for people; whatever is wrong with it must not change how the run ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepflow.domain.words import Outcome
from stepflow.journal import iter_journal
from stepflow.run.collect import journal_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stepflow.domain.report import RunReport
    from stepflow.run.prepare import Prepared

#: A cancelled run has seconds until it is killed, and its outputs come after the page.
EVENTS_WHEN_CANCELLED = 5_000


def write_page(prepared: Prepared, report: RunReport) -> Iterator[str]:
    """Write the page as a whole or not at all."""
    try:
        yield from _written(prepared, report)
    except Exception as bug:  # noqa: BLE001 - see above: the run is over, its outcome is written down
        yield f"[Report] report.html could not be written: {type(bug).__name__}: {bug}"


def _written(prepared: Prepared, report: RunReport) -> Iterator[str]:
    from stepflow.report.html import report_html  # noqa: PLC0415 - templates cost time that a start need not pay

    journal = journal_path(prepared)
    with journal.open("rb") as lines:
        count = sum(1 for _ in lines)
    if report.outcome is Outcome.CANCELLED and count > EVENTS_WHEN_CANCELLED:
        yield "[Report] report.html was left out, because the run was cancelled and its journal is long."
        return
    place = prepared.request.folder / "report.html"
    partial = place.with_suffix(".html.part")
    page = report_html(iter_journal(journal), report, prepared.agent, count=count)
    partial.write_text(page, encoding="utf-8", errors="backslashreplace")
    partial.replace(place)
