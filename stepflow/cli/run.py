"""`stepflow run NAME`, `resume DIR` and `preflight NAME`: one run, on this machine."""

from __future__ import annotations

import argparse
import os
import secrets
import shlex
import sys
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from rich.console import Console

from stepflow.cli.options import SECRETS, add_agent, add_input_flags, add_repo, add_switch, read_flags
from stepflow.cli.terminal import (
    make_console,
    print_json,
    print_lines,
    runs_folder,
    show_lines,
    show_note,
    show_texts,
    watch_run,
)
from stepflow.domain.effect import EffectKind, EffectStatus
from stepflow.domain.event import RunStarted
from stepflow.domain.reports.report import RunReport
from stepflow.domain.secrets import holds_login, login_of, logs_in
from stepflow.domain.words import Outcome, Stage, exit_code, state_reason
from stepflow.errors import InputError, StepflowError
from stepflow.modes.preflight import run_preflight
from stepflow.report.diagnostic import preflight_lines
from stepflow.report.document import report_json
from stepflow.report.safe_text import Line, Tone, text_lines
from stepflow.report.summary import branch_ready, commits_saved, copy_began, final_words
from stepflow.run.clock import Cancellation, clock_of_services
from stepflow.run.ending import outcome_of, send_run, write_files, write_missing
from stepflow.run.execute import drive_run
from stepflow.run.prepare import clock_for, prepare_run
from stepflow.run.request import RunRequest, chosen_folder, locate_repository, with_retries
from stepflow.run.resume import completed_report, look_into, waiting_request
from stepflow.run.start.event import read_event, read_event_file
from stepflow.run.start.input_values import in_dashes
from stepflow.run.start.inputs import Inputs, read_inputs
from stepflow.run.start.policy import VARIABLE
from stepflow.run.start.server import VARIABLES, host_of, read_addresses
from stepflow.run.start.trigger import ApprovalReply, Trigger, issue_of
from stepflow.run.workspace import bring_back, bundle_of, open_workspace
from stepflow.sandbox.environment import user_programs
from stepflow.sandbox.host_git import CheckedOut, checked_out, has_commits


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `run`. The usage line only hints at the inputs, because there are too many."""
    add_switch(parser, "--json", "print the report as one JSON object on stdout")
    add_switch(parser, "--in-place", "move your branch to the commits of a completed run")
    add_switch(parser, "--allow-dirty", "with --in-place: copy uncommitted files, too")
    add_request_flags(parser)


def add_request_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that define the run."""
    add_agent(parser)
    add_repo(parser)
    parser.add_argument("--event", metavar="FILE", help="an event's payload (JSON) that carries the issue")
    add_input_flags(parser)


def execute_run(arguments: argparse.Namespace) -> int:
    """Run the agent and print how it ended."""
    if arguments.allow_dirty and not arguments.in_place:
        raise InputError(
            "--allow-dirty needs --in-place: any other run starts from your last commit.",
            hint="Add --in-place, or commit what the run should see and leave --allow-dirty out.",
        )
    demand_clean = arguments.in_place and not arguments.allow_dirty
    request = replace(_run_request(arguments), demand_clean=demand_clean)
    return carry_out(request, as_json=arguments.json, in_place=arguments.in_place)


def carry_out(request: RunRequest, *, as_json: bool, in_place: bool) -> int:
    """Run the request and print how it ended. If the run is already complete, print only the result."""
    console = make_console(sys.stderr if as_json else sys.stdout)
    request = replace(request, in_place=in_place, own_branch=not in_place)
    complete = completed_report(request)
    report = _finish_complete(request, complete, console) if complete else run_request(request, console)
    if as_json:
        print_json(report_json(report))
    return exit_code(report.outcome)


def _run_request(arguments: argparse.Namespace) -> RunRequest:
    """Return the request for the run that the flags describe."""
    inputs = read_flags(arguments, agent=arguments.agent)
    return request_from(arguments, inputs, trigger=_trigger(arguments, inputs))


def request_from(arguments: argparse.Namespace, inputs: Inputs, *, trigger: Trigger | None = None) -> RunRequest:
    """Return the request for the repository that the flags name. Raise `InputError` if its folder is invalid."""
    repository = Path(arguments.repo).resolve()
    root = (repository / inputs.working_directory).resolve()
    if not root.is_relative_to(repository):
        raise InputError(f"The working directory {root} lies outside {repository}.", hint="See --working-directory.")
    if not root.is_dir():
        raise InputError(f"There is no folder {root}.", hint="Name the repository with --repo.")
    root, inputs = locate_repository(root, repository, inputs)
    programs = user_programs(arguments.path, os.environ)
    return request_of(inputs, root, trigger=trigger or Trigger(), programs=programs)


def request_of(inputs: Inputs, root: Path, *, trigger: Trigger, programs: tuple[Path, ...] | None = None) -> RunRequest:
    """Return the request for a run on this machine, with a new run folder unless one is named."""
    secret_names = dict.fromkeys((*SECRETS.values(), *filter(holds_login, os.environ)))
    run_id = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"
    temp = os.environ.get("RUNNER_TEMP")
    folder = chosen_folder(inputs, runs_folder() / run_id)
    return RunRequest(
        run_id=run_id,
        inputs=inputs,
        trigger=trigger,
        root=root,
        folder=folder,
        repository=os.environ.get("GITHUB_REPOSITORY", ""),
        environment=dict(os.environ),
        withheld=frozenset((*SECRETS.values(), *filter(logs_in, os.environ))),
        credentials=tuple(os.environ[name] for name in secret_names if os.environ.get(name)),
        login=login_of(os.environ),
        runner_temp=Path(temp) if temp else None,
        programs=programs,
    )


def run_request(request: RunRequest, console: Console) -> RunReport:
    """Prepare and drive one run, and show its progress. If it completes, bring its commits back."""
    clock = clock_for(request.inputs)

    def note(line: str) -> None:
        show_lines(console, (Line(Tone.PLAIN, line),))

    with Cancellation().listening() as cancellation, open_workspace(request) as workspace:
        services = clock_of_services(clock, cancellation)
        prepared = prepare_run(with_retries(workspace.request, services, note), now=clock.now())
        left_behind = workspace.fill(prepared, cancellation, note)
        show_lines(console, copy_began(request.root, left_behind, in_place=request.in_place))
        before = prepared.resumed_run.events if prepared.resumed_run else ()
        with watch_run(console, prepared.limits, debug=request.inputs.debug, before=before) as listener:
            report = drive_run(prepared, clock=clock, cancellation=cancellation, listeners=(listener,)).report
        show_lines(console, final_words(report))
        report = _bring_back(prepared.request, report, workspace.before, console)
        show_texts(console, send_run(prepared.request))
        return report


def _finish_complete(request: RunRequest, report: RunReport, console: Console) -> RunReport:
    """Return the report of a run that was already complete. Its commits are brought into the user's repository if they
    are neither there nor on GitHub."""
    bundle = bundle_of(request)
    pushed = any(each.kind is EffectKind.PUSH_BRANCH and each.status is EffectStatus.APPLIED for each in report.effects)
    missing = bundle is not None and not pushed and not has_commits(request.checkout, bundle)
    left = f"its commits are not in {request.checkout} yet" if missing else "there is nothing to resume"
    show_texts(console, [f"The run in {request.folder} is complete; {left}."])
    if missing:
        # The old report says that the commits could not be brought back.
        show_texts(console, write_files(request.folder, report, {}))
    show_texts(console, write_missing(request, report))
    show_lines(console, final_words(report))
    if not missing:
        return report
    now = checked_out(request.checkout)
    before = now if request.in_place and now.commit == report.base_commit else None
    return _bring_back(request, report, before, console)


def _bring_back(request: RunRequest, report: RunReport, before: CheckedOut | None, console: Console) -> RunReport:
    """Return the report, after bringing the commits of a complete run into the user's repository."""
    bundle, git = bundle_of(request), _git_in(request.checkout)
    if report.outcome is not Outcome.COMPLETED:
        show_lines(console, commits_saved(bundle, git))
        return report
    try:
        branch, moved = bring_back(request, report, before)
        if request.in_place and branch and not moved:
            show_texts(console, ["", "Your branch was not moved: it has changed since, or files are in the way."])
        show_lines(console, branch_ready(branch, git, moved=moved))
    except StepflowError as error:
        print_lines(sys.stderr, text_lines(request.redactor(f"stepflow: {error}")))
        show_lines(console, commits_saved(bundle, git))
        again = f"The commits are kept in {bundle}; `stepflow resume {request.folder}` tries again."
        outcome, why = outcome_of(error), request.redactor(f"{error} {again}")
        reason = state_reason(Stage.COMPLETION, outcome, why)
        report = replace(report, outcome=outcome, success=False, stage=Stage.COMPLETION, explanation=why, reason=reason)
        show_texts(console, write_files(request.folder, report, {}))
    return report


def _git_in(repository: Path) -> str:
    """Return the beginning of a git command that works in the user's current folder."""
    return "git" if repository == Path.cwd() else f"git -C {shlex.quote(str(repository))}"


def _trigger(arguments: argparse.Namespace, inputs: Inputs) -> Trigger:
    """Return the trigger for the user at the terminal; the issue may come from an event file."""
    event = read_event(read_event_file(arguments.event or "", named_by="--event"))
    repository = os.environ.get("GITHUB_REPOSITORY") or event.repository.full_name
    named = inputs.issue.number_in(repository, inputs.github_server_url) if inputs.issue else None
    return Trigger(
        agent=arguments.agent,
        actor=os.environ.get("GITHUB_ACTOR", ""),
        actor_is_bot=False,
        issue=issue_of(event.issue) if event.issue else None,
        issue_number=event.issue.number if event.issue else named,
        locked=event.issue.locked if event.issue else None,
        default_branch=event.repository.default_branch,
        private=event.repository.private,
        # People who type the command spend their own money.
        by_writer=True,
    )


def add_resume_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `resume`."""
    parser.add_argument("folder", metavar="DIR", help="the run folder of the run")
    answer = parser.add_mutually_exclusive_group()
    answer.add_argument("--approve", metavar="DIGEST", help="approve the plan with this digest, and continue")
    answer.add_argument("--reject", metavar="WHY", help="reject the plan, which ends the run")
    add_switch(parser, "--json", "print the report as one JSON object on stdout")


def execute_resume(arguments: argparse.Namespace) -> int:
    """Resume the run and print how it ended."""
    folder = Path(arguments.folder).resolve()
    started = _read_start(folder)
    request = _resumed_request(folder, started, user_programs(arguments.path, os.environ))
    if arguments.approve is not None or arguments.reject is not None:
        reply = ApprovalReply(digest=arguments.approve, reason=arguments.reject or "")
        # The person who replies may not be the one who started the run.
        actor = os.environ.get("GITHUB_ACTOR", "")
        trigger = replace(request.trigger, reply=reply, actor=actor, actor_is_bot=False)
        request = waiting_request(replace(request, trigger=trigger))
    return carry_out(request, as_json=arguments.json, in_place=started.in_place)


def _read_start(folder: Path) -> RunStarted:
    """Return the first event of the run in the folder."""
    previous_run = look_into(folder)
    if previous_run is None:
        raise InputError(f"There is no run in {folder}: it has no journal.jsonl.", hint="Name a run folder.")
    if not previous_run.events:
        raise InputError(
            f"The run in {folder} cannot continue: {previous_run.problem}.", hint="Start a new one with `stepflow run`."
        )
    return previous_run.started


def _resumed_request(folder: Path, started: RunStarted, programs: tuple[Path, ...]) -> RunRequest:
    """Return a request that resumes the run in the folder."""
    root = Path(started.source or started.root)
    if not root.is_dir():
        raise InputError(
            f"The repository of the run, {root}, is not there.",
            hint=f"Where it is now, use `stepflow run {started.agent} --repo DIR --resume {folder}`.",
        )
    secrets = {name: os.environ[variable] for name, variable in SECRETS.items() if os.environ.get(variable)}
    known = {in_dashes(name) for name in Inputs.model_fields}
    options = {name: value for name, value in started.options.items() if value is not None and name in known}
    _demand_server_of_job(folder, options)
    policy = os.environ.get(VARIABLE, "")
    given = {
        **read_addresses(os.environ, {}),
        **options,
        **secrets,
        "policy": policy,
        "run-folder": "",
        "resume": str(folder),
    }
    request = request_of(read_inputs(given), root, trigger=_resumed_trigger(started), programs=programs)
    return replace(request, repository=started.repository, repository_id=started.repository_id)


def _demand_server_of_job(folder: Path, options: Mapping[str, object]) -> None:
    """Raise `InputError` if the run's server is not that of the job: a run folder may be forged, and the job's token
    is for the job's server alone."""
    for name, variable in VARIABLES.items():
        given, of_job = str(options.get(name) or ""), os.environ.get(variable, "")
        if given and of_job and given.rstrip("/") != of_job.rstrip("/"):
            raise InputError(
                f"The run in {folder} is of the server {host_of(given)}, and {variable} names {host_of(of_job)}, which "
                "the token is for.",
                hint=f"Resume it in a job of {host_of(given)}. At a terminal, set {variable} to the server of the run, "
                "with a token of that server.",
            )


def _resumed_trigger(started: RunStarted) -> Trigger:
    by = started.started_by
    return Trigger(
        agent=started.agent,
        actor=os.environ.get("GITHUB_ACTOR") or by.actor,
        actor_is_bot=by.actor_is_bot,
        issue_number=started.issue,
        label=by.label,
        default_branch=by.default_branch,
        private=by.private,
        by_writer=True,
    )


def add_preflight_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `preflight`. They are those of `run`, so that it checks what the run would do."""
    add_switch(parser, "--all", "show every row, including what is fine")
    add_request_flags(parser)


def execute_preflight(arguments: argparse.Namespace) -> int:
    """Check everything and print the rows."""
    # A run brings its commits back as a branch.
    request = replace(_run_request(arguments), own_branch=True)
    console = make_console(sys.stdout)
    with Cancellation().listening() as cancellation:
        preflight = run_preflight(request, cancellation, note=partial(show_note, console))
    show_lines(console, preflight_lines(preflight, every_row=arguments.all))
    return exit_code(preflight.outcome)
