"""The action's modes: a run here, the others in `modes.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepflow.action.modes import perform_other
from stepflow.action.performed import Asked, Performed, skipped
from stepflow.action.request import request_of, root_of, trigger_of
from stepflow.errors import InputError, RunCancelled
from stepflow.report.annotations import annotation
from stepflow.report.summary import final_words
from stepflow.report.watch import ActionLog
from stepflow.run.execute import drive_run
from stepflow.run.inputs import Mode
from stepflow.run.prepare import clock_for, prepare_run
from stepflow.run.reports import leave_missing, leave_unbegun
from stepflow.run.request import Skip, restore_folder
from stepflow.run.resume import Fresh, completed_report
from stepflow.sandbox.restore import mend_checkouts

if TYPE_CHECKING:
    from stepflow.action.job import Job
    from stepflow.action.runner import Runner
    from stepflow.ports import Clock
    from stepflow.run.cancel import Cancellation

_READING_THE_CHECKOUT = frozenset({Mode.RUN, Mode.VALIDATE, Mode.REHEARSE, Mode.PREFLIGHT})


def perform(
    runner: Runner, job: Job, cancellation: Cancellation, asked: Asked, *, clock: Clock | None = None
) -> Performed:
    """Do what the input `mode` says; `asked` is filled on the way."""
    for name in runner.unknown:
        job.say(annotation("warning", f'The action has no input "{name}"; it is ignored.'))
    if runner.inputs.mode in _READING_THE_CHECKOUT:
        _mend(runner, job)
    if runner.inputs.mode is Mode.RUN:
        return run_mode(runner, job, cancellation, asked, clock=clock or clock_for(runner.inputs))

    return perform_other(runner.inputs.mode, runner, job, cancellation, asked, clock=clock)


def _mend(runner: Runner, job: Job) -> None:
    """What a run that was killed has taken comes back before anything is read."""
    try:
        root = root_of(runner)
    except InputError:
        # Not every event needs a checkout; what does says so.
        return
    for told, notes in mend_checkouts(restore_folder(root, runner.temp, runner.environment), root):
        job.say(annotation("notice", told), *(annotation("warning", note) for note in notes))


def run_mode(runner: Runner, job: Job, cancellation: Cancellation, asked: Asked, *, clock: Clock) -> Performed:
    """One run, if the event asks for one."""
    inputs = runner.inputs
    trigger = trigger_of(runner)
    if isinstance(trigger, Skip):
        return skipped(trigger)
    asked.agent, asked.issue = trigger.agent, trigger.issue_number
    request = request_of(runner, trigger, job)
    if complete := completed_report(request):
        job.say(annotation("notice", f"The run in {request.folder} is complete; there is nothing to resume."))
        job.say(*(annotation("warning", problem) for problem in leave_missing(request, complete)))
        return Performed(report=complete)
    try:
        prepared = prepare_run(request, now=clock.now())
    except RunCancelled as cancelled:
        return Performed(report=leave_unbegun(request, cancelled, clock))
    if isinstance(prepared.found, Fresh) and prepared.found.notice:
        job.say(annotation("notice", prepared.found.notice))
    log = ActionLog(prepared.limits, debug=inputs.debug or runner.debug)
    log.run_log.recall(prepared.past.events if prepared.past else ())
    result = drive_run(
        prepared,
        clock=clock,
        cancellation=cancellation,
        listeners=(lambda entry: job.say(*log.render(entry)),),
    )

    # The log has just said how the run ended, and why.
    job.say(*log.close(), *final_words(result.report)[1:])
    return Performed(
        report=result.report,
        agent=prepared.agent,
        problems=prepared.agent.problems,
        neutral_on_limit=inputs.neutral_on_limit,
    )
