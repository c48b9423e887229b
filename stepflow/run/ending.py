"""How a run ended, and the reports that are written into its folder next to the journal."""

from __future__ import annotations

import errno
import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from stepflow.domain.agent.definition import AgentDefinition
from stepflow.domain.checkout import TOO_MUCH, PageDiffs, StepDiff
from stepflow.domain.connection import Connection
from stepflow.domain.effect import EffectKind, Receipt
from stepflow.domain.end import End
from stepflow.domain.event import (
    EffectApplied,
    Entry,
    Event,
    IterationStarted,
    Noted,
    RunFinished,
    RunResumed,
    SnapshotFailed,
    SnapshotTaken,
)
from stepflow.domain.json import JsonObject, escape_unseen, value_at
from stepflow.domain.reports.report import AgentResult, RunReport
from stepflow.domain.words import Outcome, Stage
from stepflow.errors import (
    BaseCheckError,
    BeyondCap,
    BoundaryError,
    DefinitionError,
    InputError,
    IsolationError,
    ModelError,
    Refused,
    RunCancelled,
    Severity,
    StepflowError,
    TakenBack,
)
from stepflow.journal import JournalFile, digest_journal, iter_journal
from stepflow.ports import Clock
from stepflow.report.collect import ReportFacts, collect_report
from stepflow.report.document import report_json
from stepflow.report.statement import make_statement
from stepflow.report.wording import BUG
from stepflow.run.prepare import Prepared
from stepflow.run.recorded import JOURNAL
from stepflow.run.request import RunRequest
from stepflow.run.scenarios import expect_of_recording
from stepflow.run.snapshots import FOLDER, SnapshotStore
from stepflow.run.start.inputs import Inputs
from stepflow.telemetry.spans import RunTrace, build_trace


@dataclass(frozen=True, kw_only=True)
class Ending(End):
    """How a run ended, with what its reports need to know besides."""

    stage: Stage = Stage.COMPLETION
    #: Whether the run stopped before it could comment on the issue.
    unreported: bool = False
    #: The receipts that GitHub itself confirmed, no matter which part of the run wrote them.
    confirmed: tuple[Receipt, ...] = ()

    @property
    def event(self) -> RunFinished:
        """The last event of the run."""
        success = self.outcome is Outcome.COMPLETED
        return RunFinished(outcome=self.outcome, stage=self.stage, reason=self.reason, success=success)


#: The outcome for each kind of error; any other error is a bug in stepflow.
OUTCOMES: tuple[tuple[type[StepflowError], Outcome], ...] = (
    (ModelError, Outcome.MODEL_FAILED),
    (IsolationError, Outcome.REFUSED),
    (BeyondCap, Outcome.SKIPPED),
    (TakenBack, Outcome.SKIPPED),
    (Refused, Outcome.REFUSED),
    (BaseCheckError, Outcome.BASE_FAILED),
    (BoundaryError, Outcome.BOUNDARY_FAILED),
    (InputError, Outcome.MISCONFIGURED),
    (DefinitionError, Outcome.INVALID_DEFINITION),
)


def outcome_of(error: StepflowError) -> Outcome:
    """Return the outcome for an error that people can act on, before or during a run."""
    if isinstance(error, InputError) and error.code:
        # The code is that of a rule about definitions.
        return Outcome.INVALID_DEFINITION
    return next((outcome for kind, outcome in OUTCOMES if isinstance(error, kind)), Outcome.INTERNAL_ERROR)


def code_of(error: StepflowError) -> str | None:
    """Return the code of the rule that an error is about: its own, or that of the first error among its problems."""
    problems = error.problems if isinstance(error, DefinitionError) else ()
    errors = (p.code for p in problems if p.severity is Severity.ERROR)
    return error.code or next(errors, None)


#: Errors that mean a full or read-only disk, which is no bug in stepflow.
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO})


def is_bug(error: BaseException) -> bool:
    """Return whether an exception is a fault of stepflow, so that people need its traceback."""
    known = isinstance(error, RunCancelled | KeyboardInterrupt | StepflowError)
    return not known and not (isinstance(error, OSError) and error.errno in NO_ROOM)


def ending_of(error: BaseException, stage: Stage = Stage.BEFORE) -> Ending:
    """Return how a run ends by an exception that reached it in this stage."""
    if isinstance(error, RunCancelled | KeyboardInterrupt):
        return Ending(outcome=Outcome.CANCELLED, stage=stage, reason=str(error) or "interrupted")
    if isinstance(error, StepflowError):
        outcome, reason, code = outcome_of(error), str(error), code_of(error)
        return Ending(outcome=outcome, stage=stage, reason=reason, code=code, unreported=True)
    reason = f"{BUG}: {type(error).__name__}: {error}"
    if isinstance(error, OSError) and error.errno in NO_ROOM:
        where = f" ({error.filename})" if error.filename else ""
        reason = (
            f"this machine cannot write{where}: {error.strerror}. Free space on its disks, then start the run again."
        )
    return Ending(outcome=Outcome.INTERNAL_ERROR, stage=stage, reason=reason, unreported=True)


def report_unbegun(facts: ReportFacts) -> RunReport:
    """Return the report of a run that never began."""
    return replace(collect_report((), facts=facts), success=facts.end.outcome is Outcome.COMPLETED)


def describe_error(error: BaseException) -> str:
    """Describe an exception that ended a run or a command. The problems of a definition have fields of their own."""
    return error.message if isinstance(error, DefinitionError) else ending_of(error).reason


def report_error(error: BaseException, facts: ReportFacts) -> RunReport:
    """Return the report of a run that this error ended before it began, with what else is known of it."""
    problems = error.problems if isinstance(error, DefinitionError) else ()
    end = replace(ending_of(error), reason=describe_error(error))
    return report_unbegun(replace(facts, end=end, problems=problems))


def known_facts(request: RunRequest) -> ReportFacts:
    """Return what a report says of a run even if its journal is empty."""
    return ReportFacts(
        run_id=request.run_id,
        agent=request.trigger.agent,
        issue=request.trigger.issue_number,
        run_folder=str(request.folder),
        host_run_folder=request.host_folder,
    )


def without_names(report: RunReport, receipts: Sequence[Receipt]) -> RunReport:
    """Return the report without the branches, commits and pull requests that these receipts name."""
    return replace(
        report,
        effects=tuple(
            replace(receipt, url="", number=None, branch="", commit="") if receipt in receipts else receipt
            for receipt in report.effects
        ),
    )


def make_folder(folder: Path) -> None:
    """Make the folder and its parents. Raises `InputError` if that is impossible."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise InputError(
            f"The run folder {folder} cannot be made: {exc.strerror}.",
            hint="Set the input run-folder, or RUNNER_TEMP, to a place where this process may write.",
        ) from exc


def write_whole(path: Path, text: str) -> None:
    """Write the file atomically: completely or not at all, even if this process is killed. No link is followed."""
    partial = path.with_name(f"{path.name}.part")
    partial.unlink(missing_ok=True)
    # JSON can escape a lone surrogate, UTF-8 cannot: keep the escape.
    with partial.open("x", encoding="utf-8", errors="backslashreplace") as file:
        file.write(text)
    partial.replace(path)


def collect_run(prepared: Prepared, ending: Ending | None = None) -> RunReport:
    """Collect the report from the journal and the request; the `ending` counts if the journal could not be written."""
    agent, issue = prepared.agent, prepared.issue.number if prepared.issue else None
    facts = replace(known_facts(prepared.request), agent=agent.name, problems=agent.problems, issue=issue)
    if ending:
        facts = replace(facts, end=ending)
    try:
        return collect_report(iter_journal(prepared.request.folder / JOURNAL), agent, facts=facts)
    except StepflowError:
        if ending is None:
            raise
        return collect_report((), agent, facts=facts)


def pushed_commit(report: RunReport) -> str:
    """Return the commit that this run has pushed so far; empty if none."""
    pushed = (e.commit for e in report.effects if e.kind is EffectKind.PUSH_BRANCH)
    return next(pushed, "")


def guard_warnings(report: RunReport) -> tuple[str, ...]:
    """Return the guards' warnings from each validator's last run."""
    last = {run.name: run for run in report.validators}
    return tuple(f"{run.name}: {text}" for run in last.values() for text in run.warnings)


PAGE = "report.html"
#: A canceled run has only seconds until it is killed, and its outputs are written after the page.
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
    """Write the page of a journal to `path`, replacing what is there."""
    from stepflow.report.page import report_html  # noqa: PLC0415 - templates cost time that a start need not pay

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


def send_run(request: RunRequest) -> Iterator[str]:
    """Send the run's trace and metrics to the collector of the inputs, if there is one. Yields a warning if that
    fails, and changes nothing about the run."""
    if request.inputs.telemetry.endpoint and (request.folder / JOURNAL).exists():
        build = partial(read_trace, request.folder, content=request.inputs.telemetry.content, redact=request.redactor)
        connection = request.proxy_config.connection_to(request.inputs.telemetry.endpoint)
        if problem := send_to_collector(build, request.inputs, connection, whole=False):
            message = (
                f"[Telemetry] The run could not be sent to {request.inputs.telemetry.endpoint}: {problem.rstrip('.')}."
            )
            yield request.redactor(message)


def send_to_collector(
    build: Callable[[], RunTrace | None], inputs: Inputs, connection: Connection, *, whole: bool
) -> str:
    """Send the trace that `build` returns to the collector of the inputs, and the metrics of its last process or of the
    `whole` run. Returns why that failed; empty if it did not."""
    # The SDK and what it needs cost time that other runs need not pay.
    from stepflow.boundary.github_client import configure_session  # noqa: PLC0415
    from stepflow.telemetry.export import Collector, send_telemetry  # noqa: PLC0415

    collector = Collector(
        endpoint=inputs.telemetry.endpoint or "",
        connection=connection,
        configure=configure_session,
        headers={name: value.get_secret_value() for name, value in inputs.telemetry.headers.items()},
    )
    return send_telemetry(build, collector, whole=whole)


def read_trace(folder: Path, *, content: bool | None, redact: Callable[[str], str]) -> RunTrace | None:
    """Return the trace of the run in the folder; None if it never began."""
    trace = build_trace(iter_journal(folder / JOURNAL), content=content, redact=redact)
    return trace if trace.spans else None


REPORT, EFFECTS = "report.json", "effects.json"
#: The statement about a run that pushed its work, and its predicate alone, as actions/attest takes it.
STATEMENT, PREDICATE = "statement.json", "predicate.json"


def remove_reports(folder: Path) -> None:
    """Remove the reports of an earlier part of the run, so that a killed run leaves no wrong ones. If that fails, the
    error shows when the new reports are written."""
    for name in (REPORT, EFFECTS, STATEMENT, PREDICATE, PAGE):
        with suppress(OSError):
            (folder / name).unlink()


def write_reports(prepared: Prepared, ending: Ending, *, say: Callable[[Event], None]) -> AgentResult:
    """Collect the report and write it in every format."""
    request = prepared.request
    report = _without_unconfirmed(collect_run(prepared, ending), prepared, ending)
    statement = _statement_texts(request.folder, report)
    report = replace(report, statement=STATEMENT if statement else "")
    for problem in write_files(request.folder, report, {**_recorded_scenario(prepared, report), **statement}):
        say(Noted(level="error", message=request.redactor(problem)))
    for problem in write_page(request, report, prepared.agent):
        say(Noted(level="warning", message=request.redactor(problem)))
    return AgentResult.of(report)


def _without_unconfirmed(report: RunReport, prepared: Prepared, ending: Ending) -> RunReport:
    """Return the report of a resumed run without the names in earlier receipts that GitHub did not confirm: the run
    folder may be forged."""
    if prepared.resumed_run is None:
        return report
    earlier = [event.receipt for event in prepared.resumed_run.events if isinstance(event, EffectApplied)]
    return without_names(report, [receipt for receipt in earlier if receipt not in ending.confirmed])


def write_missing(request: RunRequest, report: RunReport) -> Iterator[str]:
    """Write the reports that are missing because the process was killed after the journal's last line; the page then
    has no graph. Existing files stay. Yields a message for each file that could not be written."""
    if not all((request.folder / name).exists() for name in (REPORT, EFFECTS)):
        yield from write_files(request.folder, report, {})
    if not (request.folder / PAGE).exists():
        yield from write_page(request, report, None)


def statement_of(journal: Path) -> JsonObject | None:
    """Return the statement about the run in a journal; None unless it completed and pushed a commit."""
    return make_statement(iter_journal(journal), digest_journal(journal))


def _statement_texts(folder: Path, report: RunReport) -> dict[str, str]:
    """Return the statement and its predicate by file name; empty unless the run completed, and GitHub has confirmed its
    push."""
    with suppress(StepflowError):
        statement = statement_of(folder / JOURNAL)
        if statement and value_at(statement, "predicate.commit.gitCommit") == pushed_commit(report):
            return {STATEMENT: _text(statement), PREDICATE: _text(statement["predicate"])}
    return {}


def write_unbegun(request: RunRequest, cancelled: RunCancelled, clock: Clock) -> RunReport:
    """Write the run folder of a run that a signal ended before it began, unless there is an earlier run in it."""
    path = request.folder / JOURNAL
    report = report_error(cancelled, known_facts(request))
    with suppress(StepflowError):
        # Nothing is lost without it: there is nothing to resume yet.
        make_folder(request.folder)
        if not path.exists():
            with JournalFile(path, clock, redact=request.redactor) as journal:
                journal.append(ending_of(cancelled).event)
            tuple(write_files(request.folder, report, {}))
    return report


def write_files(folder: Path, report: RunReport, texts: dict[str, str]) -> Iterator[str]:
    """Write `report.json`, `effects.json` and the `texts` by their relative path. Yields a message for each file that
    could not be written, and writes the others all the same."""
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
    return escape_unseen(json.dumps(document, ensure_ascii=False, indent=2)) + "\n"


def _recorded_scenario(prepared: Prepared, report: RunReport) -> dict[str, str]:
    """Return the scenario that the input `record` asks for, by its path."""
    if prepared.recording is None or not prepared.request.inputs.record:
        return {}
    text = prepared.recording.to_yaml(expect_of_recording(report, prepared.request.inputs))
    return {prepared.request.inputs.record: prepared.request.redactor(text)}


#: Limit in characters of all diffs on a page.
PAGE_LIMIT = 3_000_000
FAILED = "a snapshot failed here: its changes are shown with the step after it"
UNKNOWN_START = "what changed before the first snapshot is not known"


@dataclass(kw_only=True)
class Stretch:
    """The snapshots that were taken in one iteration, in order, and whether one failed."""

    iteration: int
    names: list[str] = field(default_factory=list)
    failed: bool = False


class Stretches:
    """Collects the snapshots of each iteration. The first stretch, number 0, is the time before the first iteration."""

    def __init__(self) -> None:
        self.all = [Stretch(iteration=0)]

    def watch(self, entries: Iterable[Entry]) -> Iterator[Entry]:
        """Yield the entries unchanged while collecting their snapshots."""
        for entry in entries:
            last = self.all[-1]
            match entry.event:
                case IterationStarted(iteration=iteration):
                    self.all.append(Stretch(iteration=iteration))
                case SnapshotTaken(name=name):
                    last.names.append(name)
                case RunResumed(snapshot=name) if name:
                    # The resumed run discarded the snapshots after this one.
                    last.names = last.names[: last.names.index(name) + 1] if name in last.names else []
                case SnapshotFailed():
                    last.failed = True
                case _:
                    pass
            yield entry


def diffs_of(stretches: Stretches, folder: Path) -> PageDiffs:
    """Return the diffs of a run folder's iterations, or a note why there are none: without them, the page still shows
    everything else."""
    try:
        return _diffs(stretches.all, SnapshotStore(folder / FOLDER))
    except InputError as error:
        return PageDiffs(note=f"The steps are shown without what they changed. {error}")


def _diffs(stretches: list[Stretch], store: SnapshotStore) -> PageDiffs:
    """Read the diffs in order of interest while there is room: the whole run, then steps from both ends inward."""
    start, *work = stretches
    taken = [stretch for stretch in work if stretch.names]
    if not taken:
        return PageDiffs(steps={one.iteration: StepDiff(notes=(FAILED,)) for one in work if one.failed})
    run = store.diffs(taken[-1].names[-1]).run
    unknown = () if start.names else (UNKNOWN_START,)
    room, diffs, left_out = PAGE_LIMIT - run.size, dict[int, StepDiff](), 0
    waiting = deque(stretch for stretch in work if stretch.names or stretch.failed)
    while waiting:
        stretch = waiting.popleft() if len(diffs) % 2 else waiting.pop()
        diff = StepDiff()
        if stretch.names and room <= 0:
            diff = StepDiff(notes=(TOO_MUCH,))
            left_out += 1
        elif stretch.names:
            diff = store.diffs(stretch.names[-1]).step
            room -= diff.size
        notes = (*diff.notes, *((FAILED,) if stretch.failed else ()), *(unknown if stretch is taken[0] else ()))
        diffs[stretch.iteration] = replace(diff, notes=notes)
    note = f"What {left_out:,} of {len(diffs):,} steps changed is {TOO_MUCH}." if left_out else ""
    return PageDiffs(
        steps={number: diff for number, diff in diffs.items() if diff.files or diff.notes},
        run=replace(run, notes=(*run.notes, *unknown)),
        note=note,
    )
