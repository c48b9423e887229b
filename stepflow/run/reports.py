"""What a run writes into its folder beside the journal: log, report, page, and what each iteration changed."""

from __future__ import annotations

import json
import os
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

from stepflow.domain.checkout import StepDiff
from stepflow.domain.effect import EffectKind
from stepflow.domain.event import (
    EffectApplied,
    Entry,
    IterationStarted,
    Noted,
    RunFinished,
    RunResumed,
    SnapshotFailed,
    SnapshotTaken,
    ValidatorRan,
)
from stepflow.domain.report import AgentResult
from stepflow.domain.words import CODE_OF_OUTCOME, Outcome
from stepflow.errors import InputError, StepflowError
from stepflow.journal.file import JournalFile, iter_journal
from stepflow.journal.snapshots import SnapshotStore
from stepflow.report.collect import ReportFacts, collect_report
from stepflow.report.diff import PAGE_LIMIT, TOO_MUCH, Diffs, size_of
from stepflow.report.document import report_json
from stepflow.report.log import log_entries, log_line
from stepflow.report.summary import comment_summary, failure_summary
from stepflow.run.ending import without_names
from stepflow.run.recorded import JOURNAL
from stepflow.run.scenarios import expect_of_recording
from stepflow.run.snapshots import FOLDER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path
    from types import TracebackType

    from stepflow.domain.definition import AgentDefinition
    from stepflow.domain.event import Event
    from stepflow.domain.report import RunReport
    from stepflow.errors import RunCancelled
    from stepflow.ports import Clock
    from stepflow.run.ending import Ending
    from stepflow.run.prepare import Prepared
    from stepflow.run.request import RunRequest


def make_folder(folder: Path) -> None:
    """The folder with its parents; raises `InputError` where it cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise InputError(
            f"The run folder {folder} cannot be made: {exc.strerror}.",
            hint="Set the input run-folder, or RUNNER_TEMP, to a place where this process may write.",
        ) from exc


def write_whole(path: Path, text: str) -> None:
    """Write the file as a whole or not at all, whenever this process is killed."""
    partial = path.with_name(f"{path.name}.part")
    # A lone surrogate, which only JSON can spell, stays spelled as JSON does.
    partial.write_text(text, encoding="utf-8", errors="backslashreplace")
    partial.replace(path)


def collect_run(prepared: Prepared, ending: Ending | None = None) -> RunReport:
    """Everything that the journal and the request know; the `ending` counts where the journal could not take it."""
    request, agent = prepared.request, prepared.agent
    known = ReportFacts()
    if ending:
        known = ReportFacts(outcome=ending.outcome, reason=ending.reason, code=ending.code)
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
        return collect_report(iter_journal(prepared.request.folder / JOURNAL), agent, facts=facts)
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
    return comment_summary(_with_ending(report, ending), run_url=job_url)


def failure_text(report: RunReport, ending: Ending) -> str:
    """The same where it stands below that comment."""
    return failure_summary(_with_ending(report, ending))


def _with_ending(report: RunReport, ending: Ending) -> RunReport:
    return replace(
        report,
        outcome=ending.outcome,
        reason=ending.reason,
        success=ending.outcome is Outcome.COMPLETED,
        code=CODE_OF_OUTCOME.get(ending.outcome),
    )


class LogFile:
    """A listener of the journal that writes log entries, as JSON lines or as text. Close it when the run is over.

    The journal holds all that the log says: a log that cannot be written ends, with one of the `problems`, and the run
    goes on.
    """

    def __init__(self, path: Path, form: str) -> None:
        self._path, self._form = path, form
        self.problems: tuple[str, ...] = ()
        try:
            # Without a buffer, what a full disk did not take is not tried again on closing.
            self._file = path.open("ab", buffering=0)
        except OSError as exc:
            raise InputError(
                f"The log {path} cannot be opened: {exc.strerror}.", hint="Choose another run folder."
            ) from exc

    def __call__(self, entry: Entry) -> None:
        """Write what this entry has to say to people, if anything."""
        lines = "".join(log_line(logged, self._form) + "\n" for logged in log_entries(entry))
        if not lines or self.problems:
            return
        try:
            self._file.write(lines.encode("utf-8", "backslashreplace"))
        except OSError as exc:
            self.problems = (f"[Run] {self._path} could not be written any more: {exc.strerror}",)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not os.fstat(self._file.fileno()).st_nlink:
            self.problems = (f"[Run] {self._path} was removed during the run; the journal has all that it said",)
        self._file.close()


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
        page_of_journal(journal, report, agent, request.folder / PAGE)
    except Exception as bug:  # noqa: BLE001 - see above: the run is over, its outcome is written down
        yield f"[Report] report.html could not be written: {type(bug).__name__}: {bug}"


def page_of_journal(
    journal: Path,
    report: RunReport,
    agent: AgentDefinition | None,
    path: Path,
) -> None:
    """The page of a journal at this place, instead of what was there."""
    from stepflow.report.html.page import report_html  # noqa: PLC0415 - templates cost time that a start need not pay

    stretches = Stretches()
    page = report_html(
        stretches.watch(iter_journal(journal)),
        report,
        agent,
        count=_lines_of(journal),
        diffs=lambda: diffs_of(stretches, journal.parent),
    )
    write_whole(path, page)


def _lines_of(journal: Path) -> int:
    with journal.open("rb") as lines:
        return sum(1 for _ in lines)


REPORT, EFFECTS = "report.json", "effects.json"


def remove_reports(folder: Path) -> None:
    """Take away what an earlier part of the run said of its end: one that is killed leaves none. What cannot be removed
    is told at the end, when it cannot be written."""
    for name in (REPORT, EFFECTS, PAGE):
        with suppress(OSError):
            (folder / name).unlink()


def write_reports(
    prepared: Prepared, ending: Ending, *, unwritten: Iterable[str], say: Callable[[Event], None]
) -> AgentResult:
    """Collect the report and write it down in every form. `unwritten` tells what the log could not take."""
    request = prepared.request
    report = _without_unconfirmed(collect_run(prepared, ending), prepared, ending)
    for problem in (*unwritten, *write_files(request.folder, report, _recorded(prepared, report))):
        say(Noted(level="error", message=request.redactor(problem)))
    for problem in write_page(request, report, prepared.agent):
        say(Noted(level="warning", message=request.redactor(problem)))
    return AgentResult.of(report)


def _without_unconfirmed(report: RunReport, prepared: Prepared, ending: Ending) -> RunReport:
    """The report of a run that went on, whose folder may be forged: what earlier receipts name counts with GitHub's
    word alone."""
    if prepared.resumed_run is None:
        return report
    earlier = [event.receipt for event in prepared.resumed_run.events if isinstance(event, EffectApplied)]
    return without_names(report, [receipt for receipt in earlier if receipt not in ending.confirmed])


def write_missing(request: RunRequest, report: RunReport) -> Iterator[str]:
    """Write what a process that was killed after the journal's last line has not: reports, and the page without the
    agent's graph. What is there stays as it is. Gives in words what could not be written."""
    if not all((request.folder / name).exists() for name in (REPORT, EFFECTS)):
        yield from write_files(request.folder, report, {})
    if not (request.folder / PAGE).exists():
        yield from write_page(request, report, None)


def write_unbegun(request: RunRequest, cancelled: RunCancelled, clock: Clock) -> RunReport:
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
            tuple(write_files(request.folder, report, {}))
    return report


def write_files(folder: Path, report: RunReport, texts: dict[str, str]) -> Iterator[str]:
    """Write `report.json`, `effects.json` and the given texts by their relative path; each whatever became of the
    others. Gives in words what could not be written."""
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
        events = (entry.event for entry in iter_journal(prepared.request.folder / JOURNAL))
        ran = [event for event in events if isinstance(event, ValidatorRan)]
        expect = expect_of_recording(report, ran, prepared.request.inputs)
    text = prepared.recording.to_yaml(expect)
    return {prepared.request.inputs.record: prepared.request.redactor(text)}


FAILED = "a snapshot failed here: its changes are shown with the step after it"
UNKNOWN_START = "what changed before the first snapshot is not known"


@dataclass(kw_only=True)
class Stretch:
    """One iteration: the snapshots that were taken in it, in order, and whether one could not be."""

    iteration: int
    names: list[str] = field(default_factory=list)
    failed: bool = False


class Stretches:
    """Gathers which snapshots belong to which iteration. The first stretch, 0, is what came before all of them."""

    def __init__(self) -> None:
        self.all = [Stretch(iteration=0)]

    def watch(self, entries: Iterable[Entry]) -> Iterator[Entry]:
        """The same entries, looked at as they pass."""
        for entry in entries:
            last = self.all[-1]
            match entry.event:
                case IterationStarted(iteration=iteration):
                    self.all.append(Stretch(iteration=iteration))
                case SnapshotTaken(name=name):
                    last.names.append(name)
                case RunResumed(snapshot=name) if name:
                    # What came after it was taken back.
                    last.names = last.names[: last.names.index(name) + 1] if name in last.names else []
                case SnapshotFailed():
                    last.failed = True
                case _:
                    pass
            yield entry


def diffs_of(stretches: Stretches, folder: Path) -> Diffs:
    """The diffs of a run folder's iterations, or why there are none. A folder that is damaged takes nothing but the
    diffs from the page."""
    try:
        return _diffs(stretches.all, SnapshotStore(folder / FOLDER))
    except InputError as error:
        return Diffs(note=f"The steps are shown without what they changed. {error}")


def _diffs(stretches: list[Stretch], store: SnapshotStore) -> Diffs:
    """The whole run, then the last step and the first one have their diffs first, those in the middle when there is
    room for them."""
    start, *work = stretches
    taken = [stretch for stretch in work if stretch.names]
    if not taken:
        return Diffs(steps={one.iteration: StepDiff(notes=(FAILED,)) for one in work if one.failed})
    run = store.diffs(taken[-1].names[-1]).run
    unknown = () if start.names else (UNKNOWN_START,)
    room, shown, left_out = PAGE_LIMIT - size_of(run), dict[int, StepDiff](), 0
    waiting = deque(stretch for stretch in work if stretch.names or stretch.failed)
    while waiting:
        stretch = waiting.popleft() if len(shown) % 2 else waiting.pop()
        diff = StepDiff()
        if stretch.names and room <= 0:
            diff = StepDiff(notes=(TOO_MUCH,))
            left_out += 1
        elif stretch.names:
            diff = store.diffs(stretch.names[-1]).step
            room -= size_of(diff)
        notes = (*diff.notes, *((FAILED,) if stretch.failed else ()), *(unknown if stretch is taken[0] else ()))
        shown[stretch.iteration] = replace(diff, notes=notes)
    note = f"What {left_out:,} of {len(shown):,} steps changed is {TOO_MUCH}." if left_out else ""
    return Diffs(
        steps={number: diff for number, diff in shown.items() if diff.files or diff.notes},
        run=replace(run, notes=(*run.notes, *unknown)),
        note=note,
    )
