"""The action: environment and event in, exit code out."""

from __future__ import annotations

import os
import sys
import traceback
from typing import TYPE_CHECKING, TextIO

from stepflow.action.modes import ActionResult, RequestedRun, execute_mode
from stepflow.action.outputs import Job, outputs_of
from stepflow.action.runner import read_runner, secret_variables, secrets_in
from stepflow.domain.words import exit_code
from stepflow.errors import RunCancelled, StepflowError
from stepflow.report.diagnostic import problem_annotations
from stepflow.report.log import folded_traceback
from stepflow.report.summary import job_summary, outcome_annotation
from stepflow.run.clock import Cancellation
from stepflow.run.ending import report_error
from stepflow.run.proxies import proxy_passwords, proxy_secrets_in
from stepflow.sandbox.environment import close_process, wipe_variables

if TYPE_CHECKING:
    from collections.abc import MutableMapping, Sequence

    from stepflow.ports import Clock


def main(early: Sequence[int] = ()) -> int:
    """The container's entry point: nobody else on the machine can look into this process from here on. `early` are
    the signals that came while the program was loaded."""
    close_process()
    environ = dict(os.environ)
    wipe_variables({*secret_variables(environ, secrets_in(environ)), *proxy_secrets_in(environ)})
    return act(environ, sys.stdout, cancellation=Cancellation(early, for_good=True))


def act(
    environ: MutableMapping[str, str],
    stdout: TextIO,
    *,
    clock: Clock | None = None,
    cancellation: Cancellation | None = None,
) -> int:
    """Do what the inputs ask for; outputs, summary and annotations are written whatever happened.

    Without a clock the run takes the one that fits its model.
    """
    job = Job(environ, stdout)
    cancellation = cancellation or Cancellation()
    cancellation.hold()
    with cancellation.listening():
        job.mask((*secrets_in(environ), *proxy_passwords(environ)))
        result = _execute(environ, job, cancellation, clock)
        report = result.report
        annotations = outcome_annotation(report) if result.annotations is None else result.annotations
        job.say(*problem_annotations(result.problems), *annotations)
        job.write_summary(result.summary or job_summary(report, result.agent))
        job.write_outputs({**outputs_of(report), **result.outputs})
    return exit_code(report.outcome)


def _execute(
    environ: MutableMapping[str, str], job: Job, cancellation: Cancellation, clock: Clock | None
) -> ActionResult:
    """The top handler: what goes wrong before a run has its own report ends here, as one clear message."""
    requested = RequestedRun()
    try:
        # Outside of this block a signal waits: whatever comes of the work, its end is reported in full.
        with cancellation.obeyed():
            return execute_mode(read_runner(environ), job, cancellation, requested, clock=clock)
    except (RunCancelled, Exception) as error:  # noqa: BLE001 - the second of the two places where a bug becomes an outcome
        if not isinstance(error, RunCancelled | StepflowError):
            job.say(*folded_traceback(traceback.format_exc()))
        report = report_error(error, agent=requested.agent, issue=requested.issue)
        return ActionResult(report=report, problems=report.problems)
