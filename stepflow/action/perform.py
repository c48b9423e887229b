"""The action's modes.

Takes: what the runner handed over. Gives: `Performed`, a report with what belongs to it.
May touch: the job log; everything else through `run/` and `load/`.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

from stepflow.action.many import gather_mode, plan_mode
from stepflow.domain.problem import count_problems
from stepflow.domain.words import Outcome
from stepflow.errors import InputError, RunCancelled
from stepflow.load import find_agents, rules
from stepflow.report import (
    ActionLog,
    Paper,
    ReportFacts,
    annotation,
    collect_report,
    diagnostics,
    final_words,
    harmless,
    preflight_lines,
    preflight_reason,
    preflight_summary,
    rehearsal_annotations,
    rehearsal_lines,
    rehearsal_summary,
    rehearsal_told,
    rehearsed_lines,
)
from stepflow.run.clock import InterruptibleClock, SystemClock
from stepflow.run.drive import drive_run
from stepflow.run.input_types import Mode
from stepflow.run.preflight import run_preflight
from stepflow.run.prepare import clock_for, prepare_run
from stepflow.run.rehearse import rehearse_agents
from stepflow.run.request import RunRequest, login_files_in
from stepflow.run.resume import Fresh, chosen_folder, completed_report
from stepflow.run.trigger import Skip, Trigger, find_trigger, read_event
from stepflow.run.validate import check_agents, from_above
from stepflow.toolbox import find_credentials

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepflow.action.job import Job
    from stepflow.action.many import Many
    from stepflow.action.runner import Runner
    from stepflow.domain.definition import AgentDefinition
    from stepflow.domain.problem import Problem
    from stepflow.domain.rehearsal import Rehearsed
    from stepflow.domain.report import RunReport
    from stepflow.ports import Clock
    from stepflow.run.cancel import Cancellation


@dataclass(frozen=True, kw_only=True)
class Performed:
    """What came of an invocation. `problems` become annotations; `agent` is None when none was loaded; a `summary`
    stands in the place of the report's, and `annotations` in that of its outcome's."""

    report: RunReport
    agent: AgentDefinition | None = None
    problems: tuple[Problem, ...] = ()
    summary: str = ""
    annotations: tuple[str, ...] | None = None
    neutral_on_limit: bool = False
    outputs: Mapping[str, str] = field(default_factory=dict)
    """What this mode sets beside the report's."""


@dataclass(kw_only=True)
class Asked:
    """What is known of a run before there is one: its agent and its issue, for the outputs of one that never begins."""

    agent: str = ""
    issue: int | None = None


def perform(
    runner: Runner, job: Job, cancellation: Cancellation, asked: Asked, *, clock: Clock | None = None
) -> Performed:
    """Do what the input `mode` says; `asked` is filled on the way."""
    for name in runner.unknown:
        job.say(annotation("warning", f'The action has no input "{name}"; it is ignored.'))
    match runner.inputs.mode:
        case Mode.RUN:
            return run_mode(runner, job, cancellation, asked, clock=clock or clock_for(runner.inputs))
        case Mode.VALIDATE:
            return validate_mode(runner, job)
        case Mode.REHEARSE:
            return rehearse_mode(runner, job, cancellation, asked)
        case Mode.PREFLIGHT:
            return preflight_mode(runner, job, cancellation, asked)
        case Mode.PLAN:
            return _many(plan_mode(runner, job, InterruptibleClock(clock or SystemClock(), cancellation)))
        case Mode.GATHER:
            return _many(gather_mode(runner, job))
        case mode:
            assert_never(mode)


def run_mode(runner: Runner, job: Job, cancellation: Cancellation, asked: Asked, *, clock: Clock) -> Performed:
    """One run, if the event asks for one."""
    inputs = runner.inputs
    trigger = _trigger(runner)
    if isinstance(trigger, Skip):
        return _skipped(trigger)
    asked.agent, asked.issue = trigger.agent, trigger.issue_number
    request = _request(runner, trigger, job)
    if complete := completed_report(request):
        job.say(annotation("notice", f"The run in {request.folder} is complete; there is nothing to resume."))
        return Performed(report=complete)
    try:
        prepared = prepare_run(request, now=clock.now())
    except RunCancelled as cancelled:
        from stepflow.run.leave import leave_unbegun  # noqa: PLC0415 - costs time that only an end may take

        return Performed(report=leave_unbegun(request, cancelled, clock))
    if isinstance(prepared.found, Fresh) and prepared.found.notice:
        job.say(annotation("notice", prepared.found.notice))
    log = ActionLog(prepared.limits, debug=inputs.debug or runner.debug)
    log.story.recall(prepared.past.events if prepared.past else ())
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


def preflight_mode(runner: Runner, job: Job, cancellation: Cancellation, asked: Asked) -> Performed:
    """All that a run would ask first. The input `agent` is enough for it: no label or comment is needed."""
    trigger = _trigger(runner)
    if isinstance(trigger, Skip) and runner.inputs.agent:
        trigger = Trigger(agent=runner.inputs.agent, actor=runner.actor, actor_is_bot=runner.actor.endswith("[bot]"))
    if isinstance(trigger, Skip):
        return _skipped(trigger)
    asked.agent, asked.issue = trigger.agent, trigger.issue_number
    preflight = run_preflight(_request(runner, trigger, job), cancellation)
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

    request = _request(runner, nobody, job)
    rehearsal = rehearse_agents(request, names, cancellation, tell=tell)
    job.say(*(line for _kind, line in rehearsal_lines(rehearsal)))
    reason = f"Before the run: rehearsed {rehearsal_told(rehearsal)}"
    facts = ReportFacts(
        agent=asked.agent,
        outcome=rehearsal.outcome,
        reason=reason,
        run_folder=str(request.folder),
        host_run_folder=request.host_folder,
    )
    report = replace(collect_report((), facts=facts), success=not rehearsal.failed)
    summary, annotations = rehearsal_summary(rehearsal), rehearsal_annotations(rehearsal)
    return Performed(report=report, summary=summary, annotations=annotations)


def validate_mode(runner: Runner, job: Job) -> Performed:
    """Every problem of every agent, as annotations on the diff."""
    inputs, root = runner.inputs, _root(runner)
    checked = check_agents(
        (inputs.agent,) if inputs.agent else (),
        root,
        allow_spec_violations=inputs.allow_spec_violations,
        allow_custom_verdict=inputs.allow_custom_verdict,
    )
    job.say(*diagnostics(checked.found, rules(), Paper()))
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


def _trigger(runner: Runner) -> Trigger | Skip:
    agents = () if runner.inputs.label_prefix else find_agents(_root(runner))
    event = read_event(runner.event)
    return find_trigger(runner.event_name, event, runner.inputs, actor=runner.actor, agents=agents)


def _skipped(skip: Skip) -> Performed:
    facts = ReportFacts(outcome=Outcome.SKIPPED, reason=f"Before the run: {skip.reason}")
    return Performed(report=collect_report((), facts=facts))


def _root(runner: Runner) -> Path:
    workspace = runner.workspace.resolve()
    root = (workspace / runner.inputs.working_directory).resolve()
    if not root.is_relative_to(workspace):
        raise InputError(
            f"The working directory {root} lies outside the workspace {workspace}.",
            hint="Give working-directory relative to the workspace, without leaving it.",
        )
    if not root.is_dir():
        raise InputError(
            f"The working directory {root} does not exist.",
            hint="Check out the repository first (actions/checkout), and check the input working-directory.",
        )
    return root


def _request(runner: Runner, trigger: Trigger, job: Job) -> RunRequest:
    run_id = f"{runner.run_id}-{secrets.token_hex(3)}"
    folder = chosen_folder(runner.inputs, runner.temp / "stepflow" / run_id)
    root = _root(runner)
    left = find_credentials(root, runner.temp, login_files_in(root, runner.login)).secrets
    job.mask(left)
    return RunRequest(
        run_id=run_id,
        inputs=runner.inputs,
        trigger=trigger,
        root=root,
        folder=folder.resolve(),
        host_folder=_on_host(folder, runner),
        repository=runner.repository,
        job_url=runner.job_url,
        environment=runner.environment,
        withheld=runner.withheld,
        credentials=(*runner.secrets, *left),
        login=runner.login,
        runner_temp=runner.temp,
    )


def _on_host(folder: Path, runner: Runner) -> str:
    """The folder's name outside the container: the runner translates input values, so one of them tells (action.md)."""
    host_temp = runner.inputs.host.removeprefix("host=")
    if not host_temp or not folder.is_relative_to(runner.temp):
        return str(folder)
    return str(Path(host_temp) / folder.relative_to(runner.temp))
