"""What the action does but to run an agent.

Takes: what the runner handed over. Gives: `Performed`, a report with what belongs to it.
May touch: the job log; everything else through `run/` and `load/`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal, assert_never

from stepflow.action.many import gather_mode, plan_mode
from stepflow.action.performed import Asked, Performed, skipped
from stepflow.action.request import request_of, root_of, trigger_of
from stepflow.definition.diagnostics import rules
from stepflow.domain.problem import count_problems
from stepflow.domain.words import Outcome
from stepflow.modes.preflight import run_preflight
from stepflow.modes.rehearse import rehearse_agents
from stepflow.modes.validate import check_agents, from_above
from stepflow.report.collect import ReportFacts, collect_report
from stepflow.report.diagnostic import Theme, diagnostics
from stepflow.report.plain import harmless
from stepflow.report.preflight import preflight_lines, preflight_reason, preflight_summary
from stepflow.report.rehearsal import (
    describe_rehearsal,
    rehearsal_annotations,
    rehearsal_lines,
    rehearsal_summary,
    rehearsed_lines,
)
from stepflow.run.cancel import clock_of_services
from stepflow.run.clock import SystemClock
from stepflow.run.inputs import Mode
from stepflow.run.request import Skip, Trigger

if TYPE_CHECKING:
    from stepflow.action.job import Job
    from stepflow.action.many import Many
    from stepflow.action.runner import Runner
    from stepflow.domain.report import Rehearsed
    from stepflow.ports import Clock
    from stepflow.run.cancel import Cancellation

    OtherMode = Literal[Mode.VALIDATE, Mode.REHEARSE, Mode.PREFLIGHT, Mode.PLAN, Mode.GATHER]


def perform_other(
    mode: OtherMode, runner: Runner, job: Job, cancellation: Cancellation, asked: Asked, *, clock: Clock | None
) -> Performed:
    """Do what a mode says that is no run; `asked` is filled on the way."""
    match mode:
        case Mode.VALIDATE:
            return validate_mode(runner, job)
        case Mode.REHEARSE:
            return rehearse_mode(runner, job, cancellation, asked)
        case Mode.PREFLIGHT:
            return preflight_mode(runner, job, cancellation, asked)
        case Mode.PLAN:
            return _many(plan_mode(runner, job, clock_of_services(clock or SystemClock(), cancellation)))
        case Mode.GATHER:
            return _many(gather_mode(runner, job))
        case never:
            assert_never(never)


def preflight_mode(runner: Runner, job: Job, cancellation: Cancellation, asked: Asked) -> Performed:
    """All that a run would ask first. The input `agent` is enough for it: no label or comment is needed."""
    trigger = trigger_of(runner)
    if isinstance(trigger, Skip) and runner.inputs.agent:
        trigger = Trigger(agent=runner.inputs.agent, actor=runner.actor, actor_is_bot=runner.actor.endswith("[bot]"))
    if isinstance(trigger, Skip):
        return skipped(trigger)
    asked.agent, asked.issue = trigger.agent, trigger.issue_number
    preflight = run_preflight(request_of(runner, trigger, job), cancellation)
    job.say(*(line for _kind, line in preflight_lines(preflight)))
    reason = f"Before the run: {preflight_reason(preflight)}"
    facts = ReportFacts(agent=trigger.agent, issue=trigger.issue_number, outcome=preflight.outcome, reason=reason)
    report = replace(collect_report((), facts=facts), success=not preflight.failed)
    return Performed(report=report, summary=preflight_summary(preflight))


def rehearse_mode(runner: Runner, job: Job, cancellation: Cancellation, asked: Asked) -> Performed:
    """The scenarios of one agent, or of all, on any event; what differs is an annotation on the scenario's file."""
    names = (runner.inputs.agent,) if runner.inputs.agent else ()
    asked.agent = runner.inputs.agent or ""
    nobody = Trigger(agent=asked.agent, actor="", actor_is_bot=False)

    def tell(rehearsed: Rehearsed) -> None:
        job.say(*(line for _kind, line in rehearsed_lines(rehearsed)))
        if not rehearsed.passed:
            job.say("::group::what happened", *map(harmless, rehearsed.story), "::endgroup::")

    request = request_of(runner, nobody, job)
    rehearsal = rehearse_agents(request, names, cancellation, tell=tell)
    job.say(*(line for _kind, line in rehearsal_lines(rehearsal)))
    reason = f"Before the run: rehearsed {describe_rehearsal(rehearsal)}"
    facts = ReportFacts(
        agent=asked.agent,
        outcome=rehearsal.outcome,
        reason=reason,
        run_folder=str(request.folder),
        host_run_folder=request.host_folder,
    )
    report = replace(collect_report((), facts=facts), success=not rehearsal.failed)
    summary, annotations = rehearsal_summary(rehearsal), rehearsal_annotations(rehearsal)
    # Each scenario has a report of its own, and there is none of them all.
    return Performed(report=report, summary=summary, annotations=annotations, outputs={"report": ""})


def validate_mode(runner: Runner, job: Job) -> Performed:
    """Every problem of every agent, as annotations on the diff."""
    inputs, root = runner.inputs, root_of(runner)
    checked = check_agents(
        (inputs.agent,) if inputs.agent else (),
        root,
        allow_spec_violations=inputs.allow_spec_violations,
        allow_custom_verdict=inputs.allow_custom_verdict,
    )
    job.say(*diagnostics(checked.found, rules(), Theme()))
    problems = from_above(checked.problems, root, runner.workspace.resolve())
    outcome = Outcome.INVALID_DEFINITION if checked.failed else Outcome.COMPLETED
    reason = f"Before the run: checked {', '.join(checked.found)}: {count_problems(problems)}"
    facts = ReportFacts(agent=inputs.agent or "", outcome=outcome, reason=reason, problems=problems)
    report = replace(collect_report((), facts=facts), success=not checked.failed)
    return Performed(report=report, problems=problems)


def _many(came: Many) -> Performed:
    facts = ReportFacts(outcome=Outcome.COMPLETED, reason=f"Before the run: {came.reason}")
    report = replace(collect_report((), facts=facts), success=True)
    return Performed(report=report, summary=came.summary, outputs=came.outputs)
