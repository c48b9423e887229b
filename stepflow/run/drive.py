"""One run, from its first event to its report.

Takes: a prepared run. Gives: `AgentResult` with its `RunReport`, always; a bug of ours becomes `internal_error`.
May touch: the run folder; everything else through the real parts that `stages.py` builds.
"""

from __future__ import annotations

import json
import traceback
from contextlib import contextmanager
from typing import TYPE_CHECKING

from stepflow.domain.attempt_event import IterationStarted
from stepflow.domain.event import FlowEnded, Noted, RunFinished
from stepflow.domain.report import AgentResult
from stepflow.domain.words import Outcome
from stepflow.errors import InputError, RunCancelled, StepflowError
from stepflow.journal import Fanout, JournalFile
from stepflow.llm import Expect
from stepflow.report import report_json
from stepflow.run.collect import collect_run, journal_path
from stepflow.run.ending import Ending, outcome_of
from stepflow.run.finish import Finish, Work, tell_failure
from stepflow.run.log import LogFile
from stepflow.run.stages import facts_of, run_stages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from stepflow.domain.event import Entry
    from stepflow.ports import Clock, Journal
    from stepflow.run.cancel import Cancellation
    from stepflow.run.prepare import Prepared


def drive_run(
    prepared: Prepared,
    *,
    clock: Clock,
    cancellation: Cancellation,
    listeners: Sequence[Callable[[Entry], None]] = (),
) -> AgentResult:
    """Run the stages, write every event down, and give the result, whatever happened."""
    request = prepared.request
    folder = request.folder
    redact = request.redactor
    with (
        prepared.resources,
        _opened(folder),
        JournalFile(journal_path(prepared), clock, redact=redact) as file,
        LogFile(folder / "log.jsonl", prepared.agent.log_format) as log,
    ):
        place = Place()
        journal = Fanout(file, place, log, *listeners)
        ending = guarded(lambda: run_stages(prepared, journal, clock, cancellation), journal, place)
        cancellation.hold()
        if ending.untold:
            finish = Finish(
                prepared=prepared,
                facts=facts_of(prepared),
                work=Work(),
                journal=journal,
                cancellation=cancellation,
                clock=clock,
            )
            guarded(lambda: tell_failure(finish, ending), journal, place)
        success = ending.outcome is Outcome.COMPLETED
        journal.append(RunFinished(outcome=ending.outcome, reason=ending.reason, success=success))
    report = collect_run(prepared)
    _write(folder / "report.json", report_json(report))
    _write(folder / "effects.json", {"effects": report_json(report)["effects"]})
    if prepared.recording is not None and request.inputs.record:
        recorded = prepared.recording.to_yaml(Expect(outcome=report.outcome))
        path = folder / request.inputs.record
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(redact(recorded), encoding="utf-8")
    return AgentResult.of(report)


class Place:
    """Remembers where a run is, for the first words of its reason (flow.md §11)."""

    words = "Before the run"

    def __call__(self, entry: Entry) -> None:
        """Follow one entry."""
        match entry.event:
            case IterationStarted():
                self.words = "Flow loop"
            case FlowEnded(outcome=Outcome.COMPLETED):
                self.words = "Completion loop"
            case _:
                pass


def guarded(work: Callable[[], Ending], journal: Journal, place: Place) -> Ending:
    """The run's own handler: what ends a run from outside its logic becomes an outcome with a reason."""
    try:
        return work()
    except RunCancelled as cancelled:
        return Ending(outcome=Outcome.CANCELLED, reason=f"{place.words}: {cancelled}")
    except StepflowError as error:
        return Ending(outcome=outcome_of(error), reason=f"{place.words}: {error}", untold=True)
    except Exception as bug:  # noqa: BLE001 - one of the two places where a bug becomes an outcome (house.md "Errors")
        journal.append(Noted(level="error", message="internal error", data={"traceback": traceback.format_exc()}))
        told = f"{place.words}: an error of stepflow itself: {type(bug).__name__}: {bug}"
        return Ending(outcome=Outcome.INTERNAL_ERROR, reason=told, untold=True)


@contextmanager
def _opened(folder: Path) -> Iterator[None]:
    """The run folder, made with its parents."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise InputError(
            f"the run folder {folder} cannot be made: {exc.strerror}.",
            hint="Set the input run-folder, or RUNNER_TEMP, to a place where this process may write.",
        ) from exc
    yield


def _write(path: Path, document: object) -> None:
    # A lone surrogate, which only JSON can spell, stays spelled as JSON does.
    text = json.dumps(document, ensure_ascii=False, indent=2) + "\n"
    path.write_text(text, encoding="utf-8", errors="backslashreplace")
