"""One run, from its first event to its report.

Takes: a prepared run. Gives: `AgentResult` with its `RunReport`, always; a bug of ours becomes `internal_error`.
May touch: the run folder; everything else through the real parts that `stages.py` builds.
"""

from __future__ import annotations

import errno
import traceback
from typing import TYPE_CHECKING

from stepflow.domain.attempt_event import IterationStarted
from stepflow.domain.event import Entry, FlowEnded, Noted, RunFinished, RunResumed
from stepflow.domain.words import Outcome
from stepflow.errors import InputError, RunCancelled, StepflowError
from stepflow.journal.file import JournalFile
from stepflow.journal.memory import Fanout
from stepflow.report.advice import BUG
from stepflow.run.earlier import JOURNAL, move_aside
from stepflow.run.ending import Ending, outcome_of
from stepflow.run.folder import make_folder
from stepflow.run.log import LogFile
from stepflow.run.resume import Fresh
from stepflow.run.stages import facts_of, run_stages
from stepflow.run.work import Work

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stepflow.domain.event import Event
    from stepflow.domain.report import AgentResult
    from stepflow.ports import Clock, Journal
    from stepflow.run.cancel import Cancellation
    from stepflow.run.prepare import Prepared

#: What keeps a file from being written or made that no change of ours could: the disk is full or cannot be written.
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO})


def drive_run(
    prepared: Prepared,
    *,
    clock: Clock,
    cancellation: Cancellation,
    listeners: Sequence[Callable[[Entry], None]] = (),
) -> AgentResult:
    """Run the stages, write every event down, and give the result, whatever happened."""
    # A signal strikes inside the stages alone: what stands around them is never left half done.
    cancellation.hold()
    request = prepared.request
    notice = _make_room(prepared)
    with (
        prepared.resources,
        JournalFile(request.folder / JOURNAL, clock, redact=request.redactor) as file,
        LogFile(request.folder / "log.jsonl", prepared.agent.log_format) as log,
    ):
        _demand_unchanged(prepared, file)
        place = Place()
        journal = Fanout(file, place, log, *listeners)
        if notice:
            journal.append(Noted(level="info", message=f"[Run] {notice}"))
        ending = guarded(lambda: run_stages(prepared, journal, clock, cancellation), journal, place)
        if ending.untold:
            guarded(lambda: _tell_unfinished(prepared, ending, journal, clock, cancellation), journal, place)
        finished = RunFinished(
            outcome=ending.outcome, reason=ending.reason, success=ending.outcome is Outcome.COMPLETED
        )
        told = _written(journal, finished)
    aloud = Aloud(listeners, clock)
    if not told:
        aloud.say(finished)
    # Loaded here: the flow neither waits for what draws reports nor holds it.
    from stepflow.run.leave import leave_reports  # noqa: PLC0415

    return leave_reports(prepared, ending, unwritten=log.problems, say=aloud.say)


class Aloud:
    """Tells listeners what can no longer be written down."""

    def __init__(self, listeners: Sequence[Callable[[Entry], None]], clock: Clock) -> None:
        self._listeners, self._clock = listeners, clock

    def say(self, event: Event) -> None:
        """Tell it, under the number 0."""
        for listener in self._listeners:
            listener(Entry(seq=0, time=self._clock.now(), event=event))


class Place:
    """Remembers where a run is, for the first words of its reason (flow.md §11)."""

    words = "Before the run"
    begun = False

    def __call__(self, entry: Entry) -> None:
        """Follow one entry."""
        match entry.event:
            case IterationStarted() | RunResumed():
                self.words, self.begun = "Flow loop", True
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
        return Ending(outcome=outcome_of(error), reason=f"{place.words}: {error}", untold=True, begun=place.begun)
    except Exception as bug:  # noqa: BLE001 - one of the two places where a bug becomes an outcome (house.md "Errors")
        if isinstance(bug, OSError) and bug.errno in NO_ROOM:
            return Ending(outcome=Outcome.INTERNAL_ERROR, reason=f"{place.words}: {_no_room(bug)}", untold=True)
        _written(journal, Noted(level="error", message="internal error", data={"traceback": traceback.format_exc()}))
        told = f"{place.words}: {BUG}: {type(bug).__name__}: {bug}"
        return Ending(outcome=Outcome.INTERNAL_ERROR, reason=told, untold=True)


def _tell_unfinished(
    prepared: Prepared, ending: Ending, journal: Journal, clock: Clock, cancellation: Cancellation
) -> Ending:
    """Tell the issue of an end that came before anything could be planned or collected."""
    # Loaded here, as in the stages: only an end needs it.
    from stepflow.run.finish import Finish, tell_failure  # noqa: PLC0415

    finish = Finish(
        prepared=prepared,
        facts=facts_of(prepared),
        work=Work(),
        journal=journal,
        cancellation=cancellation,
        clock=clock,
    )
    return tell_failure(finish, ending)


def _make_room(prepared: Prepared) -> str:
    """The run folder, made with its parents; an earlier run that does not go on is moved out of its way, and told."""
    notice, folder = "", prepared.request.folder
    if isinstance(prepared.found, Fresh) and prepared.found.aside is not None:
        notice = f"{prepared.found.notice} It is kept in {move_aside(folder, prepared.found.aside)}."
    make_folder(folder)
    return notice


def _demand_unchanged(prepared: Prepared, file: JournalFile) -> None:
    """Between reading a journal and holding it, another process may have written it."""
    if prepared.past is None or file.seq == len(prepared.past.events):
        return
    raise InputError(
        f"Another run has just gone on in {prepared.request.folder}.",
        hint="Start this one again when that one has ended.",
    )


def _written(journal: Journal, event: Event) -> bool:
    """Write the last things down where that is still possible: a journal that cannot be written ends a run, not its
    end."""
    try:
        journal.append(event)
    except StepflowError:
        return False
    return True


def _no_room(error: OSError) -> str:
    where = f" ({error.filename})" if error.filename else ""
    return f"this machine cannot write{where}: {error.strerror}. Free space on its disks, then start the run again."
