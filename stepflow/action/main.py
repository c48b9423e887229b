"""Runs the action: takes the environment and the event, returns an exit code."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Mapping, MutableMapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import TextIO, assert_never

from stepflow.action.runner import (
    TEXT_CAP,
    Job,
    Runner,
    find_repository,
    make_request,
    outputs_of,
    proven_output,
    read_prove_input,
    read_pull_request,
    read_runner,
    read_trigger,
    secret_variables,
    secrets_in,
)
from stepflow.definition.rules import rules
from stepflow.domain.agent.definition import AgentDefinition, count_problems
from stepflow.domain.end import End
from stepflow.domain.json import compact
from stepflow.domain.proof import ProofVerdict
from stepflow.domain.reports.report import IssuePage, Rehearsed, RunReport
from stepflow.domain.secrets import Redactor
from stepflow.domain.text import cut
from stepflow.domain.words import Network, Outcome, Stage, exit_code
from stepflow.errors import BoundaryError, Problem, RunCancelled, StepflowError
from stepflow.modes.batch import batch_budget, gather_results, matrix_entry, plan_issues
from stepflow.modes.preflight import run_preflight
from stepflow.modes.prove import proof_comment_problem, prove, write_proof, write_proof_comment
from stepflow.modes.rehearse import rehearse_agents
from stepflow.modes.validate import check_agents, from_above
from stepflow.ports import Clock
from stepflow.report.collect import ReportFacts
from stepflow.report.diagnostic import (
    annotation,
    diagnostics,
    preflight_lines,
    preflight_reason,
    preflight_summary,
    problem_annotations,
)
from stepflow.report.log import ActionLog, folded_traceback
from stepflow.report.many_runs import (
    describe_page,
    describe_totals,
    gathered_json,
    gathered_lines,
    gathered_summary,
    page_summary,
)
from stepflow.report.proof import (
    LinkTo,
    describe_proof,
    link_into_diff,
    proof_annotations,
    proof_lines,
    proof_summary,
    without_links,
)
from stepflow.report.rehearsal import (
    describe_rehearsal,
    rehearsal_annotations,
    rehearsal_lines,
    rehearsal_summary,
    rehearsed_lines,
)
from stepflow.report.safe_text import Command, Line, Tone, one_line, text_lines
from stepflow.report.summary import final_words, job_summary, outcome_annotation
from stepflow.run.clock import Cancellation, SystemClock, clock_of_services
from stepflow.run.ending import is_bug, report_error, report_unbegun, send_run, write_missing, write_unbegun
from stepflow.run.execute import drive_run
from stepflow.run.finish import report_unprepared, with_confirmed_names
from stepflow.run.issue import follow_repository, skip_stranger
from stepflow.run.long_activity import log_long_activities
from stepflow.run.prepare import Prepared, clock_for, load_requested, prepare_run, reviews_pull_requests
from stepflow.run.proxy_config import proxy_passwords, proxy_secrets_in
from stepflow.run.pull_request.follow_up import find_follow_up
from stepflow.run.pull_request.review import find_review
from stepflow.run.request import (
    RunRequest,
    agents_folder,
    boundary_settings,
    proxy_config_of,
    with_retries,
)
from stepflow.run.resume import completed_report, waiting_request, without_foreign_addresses
from stepflow.run.start.event import PullRequestPayload, read_event
from stepflow.run.start.inputs import Mode
from stepflow.run.start.policy import refusal
from stepflow.run.start.trigger import Skip, Trigger
from stepflow.run.workspace import open_workspace
from stepflow.sandbox.change import pull_request_range
from stepflow.sandbox.environment import close_process, wipe_variables


def main(early: Sequence[int] = ()) -> int:
    """Run as the container's entry point, and protect this process from all others on the machine. `early` are the
    signals that arrived while the program was loading."""
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
    """Do what the inputs ask for. Outputs, summary and annotations are always written.

    Without `clock`, the run uses the clock that fits its model.
    """
    job = Job(environ, stdout)
    cancellation = cancellation or Cancellation()
    cancellation.hold()
    with cancellation.listening():
        job.mask((*secrets_in(environ), *proxy_passwords(environ)))
        with log_long_activities(job.say):
            result = _execute(environ, job, cancellation, clock)
        report = result.report
        annotations = outcome_annotation(report) if result.annotations is None else result.annotations
        job.say(*problem_annotations(result.problems), *annotations)
        job.write_summary(result.summary or job_summary(report, result.agent))
        job.write_outputs({**outputs_of(report), **result.outputs})
        # Everything is written by now, so nothing is lost if the runner ends this process first.
        job.warn(*(send_run(result.request) if result.request else ()))
    return exit_code(report.outcome)


def _execute(
    environ: MutableMapping[str, str], job: Job, cancellation: Cancellation, clock: Clock | None
) -> ActionResult:
    """Turn every error that has no report of a run into one clear message."""
    requested = RequestedRun()
    try:
        # Outside of this block, signals wait, so that the end of the work is always reported in full.
        with cancellation.obeyed():
            return execute_mode(read_runner(environ), job, cancellation, requested, clock=clock)
    except (RunCancelled, Exception) as error:  # noqa: BLE001 - the second of the two places where a bug becomes an outcome
        if is_bug(error):
            job.say(*folded_traceback(traceback.format_exc()))
        report = report_error(error, requested.facts)
        return ActionResult(report=report, problems=report.problems)


@dataclass(frozen=True, kw_only=True)
class ActionResult:
    """The result of an invocation."""

    report: RunReport
    #: None if no agent was loaded.
    agent: AgentDefinition | None = None
    #: Shown as annotations.
    problems: tuple[Problem, ...] = ()
    #: Replaces the report's summary.
    summary: str = ""
    #: Replaces the annotation of the report's outcome.
    annotations: tuple[Command, ...] | None = None
    #: Set by this mode in addition to the report's outputs.
    outputs: Mapping[str, str] = field(default_factory=dict)
    #: The run that took place, if any.
    request: RunRequest | None = None


@dataclass(kw_only=True)
class RequestedRun:
    """The agent and the issue, as far as they are known before the run. They are outputs even if the run never
    begins."""

    facts: ReportFacts = field(default_factory=ReportFacts)


def execute_mode(  # noqa: PLR0911 - one return per mode is the table
    runner: Runner, job: Job, cancellation: Cancellation, requested: RequestedRun, *, clock: Clock | None = None
) -> ActionResult:
    """Run the mode that the input `mode` names, and fill in `requested` as soon as it is known."""
    job.warn(*runner.warnings)
    match runner.inputs.mode:
        case Mode.RUN:
            return run_mode(runner, job, cancellation, requested, clock=clock or clock_for(runner.inputs))
        case Mode.VALIDATE:
            return validate_mode(runner, job)
        case Mode.REHEARSE:
            return rehearse_mode(runner, job, cancellation, requested)
        case Mode.PREFLIGHT:
            return preflight_mode(runner, job, cancellation, requested)
        case Mode.PLAN:
            return plan_mode(runner, job, clock_of_services(clock or SystemClock(), cancellation))
        case Mode.GATHER:
            return gather_mode(runner, job)
        case Mode.PROVE:
            return prove_mode(runner, job, cancellation, clock=clock_of_services(clock or SystemClock(), cancellation))
        case never:
            assert_never(never)


def without_run(outcome: Outcome, reason: str, facts: ReportFacts | None = None) -> ActionResult:
    """Return the result of a run that never began. `facts` are what else is known of it."""
    end = End(outcome=outcome, stage=Stage.BEFORE, reason=reason)
    report = report_unbegun(replace(facts or ReportFacts(), end=end))
    return ActionResult(report=report, problems=report.problems)


def run_mode(
    runner: Runner, job: Job, cancellation: Cancellation, requested: RequestedRun, *, clock: Clock
) -> ActionResult:
    """Perform one run, if the event asks for it."""
    trigger = read_trigger(runner)
    if isinstance(trigger, Skip):
        return without_run(Outcome.SKIPPED, trigger.reason)
    requested.facts = ReportFacts(agent=trigger.agent, issue=trigger.issue_number)
    services = clock_of_services(clock, cancellation)
    request = with_retries(make_request(runner, trigger), services, job.warn)
    if stranger := skip_stranger(request, load_requested):
        return without_run(Outcome.SKIPPED, stranger.reason)
    if request.inputs.names_run and (complete := completed_report(request)):
        job.say(annotation("notice", f"The run in {request.folder} is complete; there is nothing to resume."))
        job.warn(*write_missing(request, complete))
        return ActionResult(report=with_confirmed_names(complete, request))
    with ExitStack() as opened:
        try:
            if trigger.reply:
                request = waiting_request(request)
            if event := request.trigger.pull_request:
                request = follow_repository(request)
                find = find_review if reviews_pull_requests(request, event) else find_follow_up
                found = find(request, event)
                if isinstance(found, Skip):
                    return without_run(Outcome.SKIPPED, found.reason)
                request = found
            workspace = opened.enter_context(open_workspace(request))
            request = workspace.request
            requested.facts = ReportFacts(agent=request.trigger.agent, issue=request.trigger.issue_number)
            prepared = prepare_run(request, now=clock.now())
            workspace.fill(prepared, cancellation, lambda line: job.say(annotation("notice", line)))
        except RunCancelled as cancelled:
            return ActionResult(report=write_unbegun(request, cancelled, clock))
        except StepflowError as error:
            report = replace(report_error(error, requested.facts), explanation=str(error))
            commented = report_unprepared(request, report, services)
            if commented and commented.detail not in str(error):
                job.say(annotation("notice", commented.detail))
            raise
        return _drive(prepared, runner, job, cancellation, clock)


def _drive(prepared: Prepared, runner: Runner, job: Job, cancellation: Cancellation, clock: Clock) -> ActionResult:
    """Perform the run, and print its log to the job log."""
    if prepared.previous and prepared.previous.problem:
        job.say(annotation("notice", prepared.previous.notice))
    log = ActionLog(prepared.limits, debug=runner.debug)
    log.run_log.recall(prepared.resumed_run.events if prepared.resumed_run else ())
    listeners = (lambda entry: job.say(*log.render(entry)),)
    result = drive_run(prepared, clock=clock, cancellation=cancellation, listeners=listeners)
    report = result.report
    if prepared.resumed_run:
        report = without_foreign_addresses(report, prepared.request)
    # The log has just printed how the run ended, and why.
    job.say(*log.close(), *final_words(report)[1:])
    agent = prepared.agent
    return ActionResult(report=report, agent=agent, problems=agent.problems, request=prepared.request)


def validate_mode(runner: Runner, job: Job) -> ActionResult:
    """Validate every agent, and show each problem as an annotation on the diff."""
    inputs, root = runner.inputs, agents_folder(*find_repository(runner))
    checked = check_agents(
        (inputs.agent,) if inputs.agent else (),
        root,
        allow_spec_violations=inputs.allow_spec_violations,
        private=read_event(runner.event).repository.private,
    )
    job.say(*diagnostics(checked.inspections, rules()))
    problems = from_above(checked.problems, root, runner.workspace.resolve())
    return without_run(
        Outcome.INVALID_DEFINITION if checked.failed else Outcome.COMPLETED,
        f"checked {', '.join(checked.inspections)}: {count_problems(problems)}",
        ReportFacts(agent=inputs.agent or "", problems=problems),
    )


def rehearse_mode(runner: Runner, job: Job, cancellation: Cancellation, requested: RequestedRun) -> ActionResult:
    """Rehearse one agent, or all of them, on any event. Show each difference as an annotation on the scenario's
    file."""
    names = (runner.inputs.agent,) if runner.inputs.agent else ()
    requested.facts = ReportFacts(agent=runner.inputs.agent or "")

    def report_scenario(rehearsed: Rehearsed) -> None:
        job.say(*rehearsed_lines(rehearsed))
        if rehearsed.failed:
            log = (line for text in rehearsed.log for line in text_lines(text))
            job.say(Command("group", "what happened"), *log, Command("endgroup"))

    request = make_request(runner, Trigger(agent=requested.facts.agent))
    rehearsal = rehearse_agents(request, names, cancellation, report_one=report_scenario)
    job.say(*rehearsal_lines(rehearsal))
    facts = replace(requested.facts, run_folder=str(request.folder), host_run_folder=request.host_folder)
    return replace(
        without_run(rehearsal.outcome, f"rehearsed {describe_rehearsal(rehearsal)}", facts),
        summary=rehearsal_summary(rehearsal),
        annotations=rehearsal_annotations(rehearsal),
        # Each scenario has its own report. There is no report for all of them.
        outputs={"report": ""},
    )


def preflight_mode(runner: Runner, job: Job, cancellation: Cancellation, requested: RequestedRun) -> ActionResult:
    """Check everything that a run would check first. This needs only the input `agent`, and no label or comment."""
    trigger = read_trigger(runner)
    if isinstance(trigger, Trigger) and trigger.pull_request:
        trigger = Skip(reason="only a run can tell whose work a pull request is; name the agent in the input agent")
    if isinstance(trigger, Skip) and runner.inputs.agent:
        trigger = Trigger(agent=runner.inputs.agent, actor=runner.actor, actor_is_bot=runner.actor.endswith("[bot]"))
    if isinstance(trigger, Skip):
        return without_run(Outcome.SKIPPED, trigger.reason)
    requested.facts = ReportFacts(agent=trigger.agent, issue=trigger.issue_number)
    preflight = run_preflight(make_request(runner, trigger), cancellation)
    job.say(*preflight_lines(preflight, every_row=True))
    result = without_run(preflight.outcome, preflight_reason(preflight), requested.facts)
    return replace(result, summary=preflight_summary(preflight))


def plan_mode(runner: Runner, job: Job, clock: Clock) -> ActionResult:
    """Plan one page of issues, unless the policy lets no job of it start. This uses only `read-token`, and no file of
    the repository."""
    inputs = runner.inputs
    if inputs.policy and (reason := inputs.policy.objection_to(runner.actor)):
        nothing = IssuePage(label=inputs.many_issues.label)
        return replace(without_run(Outcome.SKIPPED, reason), outputs=_outputs_of_page(nothing))
    if inputs.policy and inputs.agent and (reason := inputs.policy.objection_to_agent(inputs.agent)):
        raise refusal(reason)
    page = plan_issues(
        inputs,
        runner.repository,
        clock=clock,
        proxy_config=proxy_config_of(inputs, runner.environment, runner.workspace),
        redactor=Redactor((*runner.secrets, *proxy_passwords(runner.environment))),
        note=job.warn,
    )
    reason = describe_page(page)
    job.say(Line(Tone.PLAIN, reason))
    return replace(without_run(Outcome.COMPLETED, reason), summary=page_summary(page), outputs=_outputs_of_page(page))


def _outputs_of_page(page: IssuePage) -> dict[str, str]:
    return {
        "plan": compact([matrix_entry(issue) for issue in page.issues]),
        "plan-issues": compact([issue.number for issue in page.issues]),
        "plan-next": str(page.after or ""),
        "budget-left": _dollars_left(page.budget_left),
    }


def _dollars_left(left: Decimal | None) -> str:
    return "" if left is None else f"{left:f}"


def gather_mode(runner: Runner, job: Job) -> ActionResult:
    """Gather all reports in one table."""
    many = runner.inputs.many_issues
    folder = runner.workspace / many.folder
    # If no job left a report, nothing was downloaded and the folder does not exist.
    folders = (folder,) if folder.exists() or not many.issues else ()
    gathered = gather_results(folders, many.issues, batch_budget(runner.inputs))
    job.say(*gathered_lines(gathered))
    outputs = {"gathered": gathered_json(gathered), "budget-left": _dollars_left(gathered.budget_left)}
    return replace(
        without_run(Outcome.COMPLETED, describe_totals(gathered)), summary=gathered_summary(gathered), outputs=outputs
    )


def prove_mode(runner: Runner, job: Job, cancellation: Cancellation, *, clock: Clock) -> ActionResult:
    """Prove the change of a pull request, or what is checked out beyond the main branch. This needs no agent, key or
    token."""
    asked, pull_request = read_prove_input(runner), read_pull_request(runner)
    request = make_request(runner, Trigger(actor=runner.actor))
    commits = ""
    link_to: LinkTo = without_links
    if pull_request:
        commits = pull_request_range(request.root, pull_request.base.sha, pull_request.head.sha)
        link_to = link_into_diff(f"{boundary_settings(request).repository_url}/pull/{pull_request.number}")
    proof = prove(
        request,
        cancellation,
        commits=commits,
        command=asked.command,
        settings=asked.settings,
        note=lambda text: job.say(Line(Tone.PLAIN, f"… {one_line(text)}")),
    )
    job.say(*proof_lines(proof))
    if not proof.is_accepted and request.inputs.network.reach is Network.NONE:
        job.say(Line(Tone.ASIDE, "… the tests had no network; if they need one, set the input `network`"))
    outputs = {
        "reason": cut(describe_proof(proof), TEXT_CAP),
        "proven": proven_output(proof),
        "report": f"{request.host_folder}/{write_proof(request, proof).name}",
    }
    if asked.comment and pull_request:
        text = proof_summary(proof, link_to, job_url=request.job_url)
        outputs["comment-url"] = _comment_on_proof(request, pull_request, text, job, clock)
    failed = Outcome.MISCONFIGURED if proof.verdict is ProofVerdict.NOT_TRIED else Outcome.VALIDATION_FAILED
    return replace(
        without_run(
            Outcome.COMPLETED if proof.is_accepted else failed,
            describe_proof(proof),
            ReportFacts(run_folder=str(request.folder), host_run_folder=request.host_folder),
        ),
        summary=proof_summary(proof, link_to),
        annotations=proof_annotations(proof),
        outputs=outputs,
    )


def _comment_on_proof(request: RunRequest, pull_request: PullRequestPayload, text: str, job: Job, clock: Clock) -> str:
    """Return the URL of the comment; empty if it cannot be written, which a notice then says."""
    why = proof_comment_problem(request)
    try:
        if not why:
            return write_proof_comment(request, pull_request.number, text, clock)
    except BoundaryError as error:
        why = f"{error} The token needs the permission `pull-requests: write`"
        why += ", which a job has on no pull request from a fork." if pull_request.is_from_fork else "."
    job.say(annotation("notice", why, title="There is no comment about the proof"))
    return ""
