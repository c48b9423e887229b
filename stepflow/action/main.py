"""The action: environ and event in, exit code out.

Takes: the runner's environment. Gives: exit code, outputs, summary, annotations and the job log (action.md).
May touch: environ, the `GITHUB_*` files, stdout.
"""

from __future__ import annotations

import os
import sys
import traceback
from typing import TYPE_CHECKING, TextIO, cast

from stepflow.action.job import Job
from stepflow.action.outputs import outputs_of
from stepflow.action.perform import perform
from stepflow.action.performed import Asked, Performed
from stepflow.action.runner import read_runner, secret_variables, secrets_in
from stepflow.domain.words import Outcome, exit_code
from stepflow.errors import DefinitionError, RunCancelled, StepflowError
from stepflow.report.annotations import outcome_annotation, problem_annotations
from stepflow.report.collect import ReportFacts, collect_report
from stepflow.report.summary import job_summary
from stepflow.report.watch import folded_traceback
from stepflow.run.cancel import Cancellation
from stepflow.run.ending import outcome_of
from stepflow.run.proxies import proxy_passwords, proxy_secrets_in
from stepflow.sandbox.own_process import close_process, wipe_variables

if TYPE_CHECKING:
    from collections.abc import MutableMapping, Sequence

    from stepflow.domain.problem import Problem
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
        performed = _performed(environ, job, cancellation, clock)

        report = performed.report
        told = outcome_annotation(report) if performed.annotations is None else performed.annotations
        job.say(*problem_annotations(performed.problems), *told)
        job.write_summary(performed.summary or job_summary(report, performed.agent))
        job.write_outputs({**outputs_of(report), **performed.outputs})
    return exit_code(report.outcome, neutral_on_limit=performed.neutral_on_limit)


def _performed(
    environ: MutableMapping[str, str], job: Job, cancellation: Cancellation, clock: Clock | None
) -> Performed:
    """The top handler: what goes wrong before a run has its own report ends here, as one clear message."""
    asked = Asked()
    try:
        # Outside of this block a signal waits: whatever comes of the work, its end is told whole.
        with cancellation.obeyed():
            return perform(read_runner(environ), job, cancellation, asked, clock=clock)
    except RunCancelled as cancelled:
        return _not_begun(asked, Outcome.CANCELLED, str(cancelled))
    except DefinitionError as error:
        # `errors` stands below `domain` on the map and cannot name the type of its problems.
        problems = cast("tuple[Problem, ...]", error.problems)
        return _not_begun(asked, Outcome.INVALID_DEFINITION, error.message, problems)
    except StepflowError as error:
        return _not_begun(asked, outcome_of(error), str(error), code=error.code)
    except Exception as bug:  # noqa: BLE001 - the second of the two places where a bug becomes an outcome (house.md)
        job.say(*folded_traceback(traceback.format_exc()))
        return _not_begun(asked, Outcome.INTERNAL_ERROR, f"an error of stepflow itself: {type(bug).__name__}: {bug}")


def _not_begun(
    asked: Asked, outcome: Outcome, reason: str, problems: tuple[Problem, ...] = (), *, code: str | None = None
) -> Performed:
    facts = ReportFacts(
        agent=asked.agent,
        issue=asked.issue,
        outcome=outcome,
        reason=f"Before the run: {reason}",
        problems=problems,
        code=code,
    )
    return Performed(report=collect_report((), facts=facts), problems=problems)
