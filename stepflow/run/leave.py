"""What a run leaves in its folder for people and programs.

Takes: a prepared run and how it ended; or the request of a run that never began. Gives: `RunReport`, and in words what
could not be written.
May touch: the run folder. Loaded when a run ends: nothing of it is needed before.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING

from stepflow.domain.event import Entry, Noted, RunFinished, ValidatorRan
from stepflow.domain.report import AgentResult
from stepflow.domain.words import Outcome
from stepflow.errors import StepflowError
from stepflow.journal.file import JournalFile
from stepflow.journal.reader import iter_journal
from stepflow.report.collect import collect_report
from stepflow.report.document import report_json
from stepflow.report.ending import ReportFacts
from stepflow.run.collect import collect_run, journal_path
from stepflow.run.expected import expect_of_recording
from stepflow.run.folder import make_folder, write_whole
from stepflow.run.page import PAGE, write_page

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from stepflow.domain.event import Event
    from stepflow.domain.report import RunReport
    from stepflow.errors import RunCancelled
    from stepflow.ports import Clock
    from stepflow.run.ending import Ending
    from stepflow.run.prepare import Prepared
    from stepflow.run.request import RunRequest

REPORT, EFFECTS = "report.json", "effects.json"


def leave_reports(
    prepared: Prepared, ending: Ending, *, unwritten: Iterable[str], say: Callable[[Event], None]
) -> AgentResult:
    """Collect the report and write it down in every form. `unwritten` tells what the log could not take."""
    request = prepared.request
    report = collect_run(prepared, ending)
    for problem in (*unwritten, *write_reports(request.folder, report, _recorded(prepared, report))):
        say(Noted(level="error", message=request.redactor(problem)))
    for problem in write_page(request, report, prepared.agent):
        say(Noted(level="warning", message=request.redactor(problem)))
    return AgentResult.of(report)


def leave_missing(request: RunRequest, report: RunReport) -> Iterator[str]:
    """Write what a process that was killed after the journal's last line has not: reports, and the page without the
    agent's graph. What is there stays as it is. Gives in words what could not be written."""
    if not all((request.folder / name).exists() for name in (REPORT, EFFECTS)):
        yield from write_reports(request.folder, report, {})
    if not (request.folder / PAGE).exists():
        yield from write_page(request, report, None)


def leave_unbegun(request: RunRequest, cancelled: RunCancelled, clock: Clock) -> RunReport:
    """The run folder of a run that a signal ended before it began, where no earlier run has left one."""
    path = request.folder / "journal.jsonl"
    reason = f"Before the run: {cancelled}"
    finished = RunFinished(outcome=Outcome.CANCELLED, reason=reason, success=False)
    facts = ReportFacts(
        run_id=request.run_id,
        agent=request.trigger.agent,
        issue=request.trigger.issue_number,
        reason=reason,
        run_folder=str(request.folder),
        host_run_folder=request.host_folder,
    )
    report = collect_report((Entry(seq=1, time=clock.now(), event=finished),), facts=facts)
    with suppress(StepflowError):
        # Nothing is lost without it: there is nothing yet to go on with.
        make_folder(request.folder)
        if not path.exists():
            with JournalFile(path, clock, redact=request.redactor) as journal:
                journal.append(finished)
            tuple(write_reports(request.folder, report, {}))
    return report


def write_reports(folder: Path, report: RunReport, texts: dict[str, str]) -> Iterator[str]:
    """Write `report.json`, `effects.json` and the given texts by their relative path; each whatever became of the
    others. What could not be written is told."""
    document = report_json(report)
    files = {REPORT: _text(document), EFFECTS: _text({"effects": document["effects"]}), **texts}
    for name, text in files.items():
        path = folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, text)
        except OSError as exc:
            yield f"[Run] {path} could not be written: {exc.strerror}"


def _text(document: object) -> str:
    return json.dumps(document, ensure_ascii=False, indent=2) + "\n"


def _recorded(prepared: Prepared, report: RunReport) -> dict[str, str]:
    """The scenario that the input `record` asks for."""
    if prepared.recording is None or not prepared.request.inputs.record:
        return {}
    expect = None
    with suppress(StepflowError):
        events = (entry.event for entry in iter_journal(journal_path(prepared)))
        ran = [event for event in events if isinstance(event, ValidatorRan)]
        expect = expect_of_recording(report, ran, prepared.request.inputs)
    text = prepared.recording.to_yaml(expect)
    return {prepared.request.inputs.record: prepared.request.redactor(text)}
