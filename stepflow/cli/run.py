"""`stepflow run NAME`: one run, here."""

from __future__ import annotations

import os
import secrets
import shlex
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from stepflow.cli.options import SECRETS, add_agent, add_input_flags, read_flags
from stepflow.cli.output import print_json, runs_folder
from stepflow.cli.terminal import make_console, show_lines, watch_run
from stepflow.domain.effect import EffectKind, EffectStatus
from stepflow.domain.secrets import holds_login, login_of, logs_in
from stepflow.domain.words import Outcome, exit_code
from stepflow.errors import InputError, StepflowError
from stepflow.report.document import report_json
from stepflow.report.safe_text import harmless
from stepflow.report.summary import branch_ready, commits_saved, copy_began, final_words
from stepflow.run.clock import Cancellation, clock_of_services
from stepflow.run.ending import outcome_of
from stepflow.run.execute import drive_run
from stepflow.run.prepare import clock_for, prepare_run
from stepflow.run.reports import write_files, write_missing
from stepflow.run.request import RunRequest, locate_repository, with_retries
from stepflow.run.resume import chosen_folder, completed_report
from stepflow.run.trigger import Trigger, issue_of, read_event, read_event_file
from stepflow.run.workspace import bring_back, bundle_of, open_workspace
from stepflow.sandbox.environment import user_programs
from stepflow.sandbox.host_git import checked_out, has_commits

if TYPE_CHECKING:
    import argparse

    from rich.console import Console

    from stepflow.domain.report import AgentResult, RunReport
    from stepflow.ports import Clock
    from stepflow.run.inputs import Inputs
    from stepflow.run.prepare import Prepared
    from stepflow.sandbox.host_git import CheckedOut


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `run`. There are too many for a usage line that anybody would read."""
    parser.usage = "stepflow run NAME [--repo DIR] [--issue N | --event FILE] [--json] [--INPUT VALUE …]"
    parser.add_argument("--json", action="store_true", help="print the report as one JSON object on stdout")
    parser.add_argument("--in-place", action="store_true", help="move your branch to the commits of a complete run")
    parser.add_argument("--allow-dirty", action="store_true", help="with --in-place: also where files are uncommitted")
    add_request_flags(parser)


def add_request_flags(parser: argparse.ArgumentParser) -> None:
    """What says which run is meant."""
    add_agent(parser)
    parser.add_argument("--repo", default=".", metavar="DIR", help="the repository (default: the current folder)")
    parser.add_argument("--event", metavar="FILE", help="an event's payload (JSON) that carries the issue")
    add_input_flags(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Run the agent and say how it ended."""
    request = request_from(arguments)
    demand_clean = arguments.in_place and not arguments.allow_dirty
    request = replace(request, demand_clean=demand_clean)
    return carry_out(request, as_json=arguments.json, in_place=arguments.in_place)


def carry_out(request: RunRequest, *, as_json: bool, in_place: bool) -> int:
    """Run what is asked for and say how it ended; of a complete run only the result is shown."""
    console = make_console(sys.stderr if as_json else sys.stdout)
    request = replace(request, in_place=in_place, own_branch=not in_place)
    complete = completed_report(request)
    report = _finish_complete(request, complete, console) if complete else run_request(request, console)
    if as_json:
        print_json(report_json(report))
    return exit_code(report.outcome)


def request_from(arguments: argparse.Namespace) -> RunRequest:
    """The run that the flags ask for."""
    inputs = read_flags(arguments, agent=arguments.agent)
    root, inputs = root_of(Path(arguments.repo).resolve(), inputs)
    programs = user_programs(arguments.path, os.environ)
    return replace(request_of(inputs, root, trigger=_trigger(arguments, inputs)), programs=programs)


def root_of(repository: Path, inputs: Inputs) -> tuple[Path, Inputs]:
    """The root of the repository, and the inputs with the working directory relative to it; or an `InputError`."""
    root = (repository / inputs.working_directory).resolve()
    if not root.is_relative_to(repository):
        raise InputError(f"The working directory {root} lies outside {repository}.", hint="See --working-directory.")
    if not root.is_dir():
        raise InputError(f"There is no folder {root}.", hint="Name the repository with --repo.")
    return locate_repository(root, repository, inputs)


def request_of(inputs: Inputs, root: Path, *, trigger: Trigger) -> RunRequest:
    """A run of this machine, with a run folder of its own unless one is named."""
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
        credentials=_own_secrets(),
        login=login_of(os.environ),
        runner_temp=Path(temp) if temp else None,
    )


def _own_secrets() -> tuple[str, ...]:
    names = (*SECRETS.values(), *filter(holds_login, os.environ))
    return tuple(os.environ[name] for name in dict.fromkeys(names) if os.environ.get(name))


def run_request(request: RunRequest, console: Console) -> RunReport:
    """Prepare and drive one run, and show it as it goes; what it did comes back when it is complete."""
    cancellation = Cancellation()
    clock = clock_for(request.inputs)
    with cancellation.listening(), open_workspace(request) as workspace:
        prepared = prepare_run(_patient(workspace.request, console, clock, cancellation), now=clock.now())
        left_behind = workspace.fill(prepared, cancellation, lambda line: show_lines(console, (line,)))
        show_lines(console, copy_began(request.root, left_behind, in_place=request.in_place))
        report = _drive(prepared, console, clock, cancellation).report
        show_lines(console, final_words(report))
        return _bring_back(prepared.request, report, workspace.before, console)


def _finish_complete(request: RunRequest, report: RunReport, console: Console) -> RunReport:
    """The report of a complete run, whose commits come into the user's repository if they are neither there nor on
    GitHub."""
    bundle = bundle_of(request)
    pushed = any(each.kind is EffectKind.PUSH_BRANCH and each.status is EffectStatus.APPLIED for each in report.effects)
    missing = bundle is not None and not pushed and not has_commits(request.checkout, bundle)
    left = f"its commits are not in {request.checkout} yet" if missing else "there is nothing to resume"
    console.print(f"The run in {request.folder} is complete; {left}.")
    if missing:
        # It says of the run before that the commits could not be brought.
        show_lines(console, write_files(request.folder, report, {}))
    show_lines(console, [*write_missing(request, report), *final_words(report)])
    if not missing:
        return report
    now = checked_out(request.checkout)
    before = now if request.in_place and now.commit == report.base_commit else None
    return _bring_back(request, report, before, console)


def _bring_back(request: RunRequest, report: RunReport, before: CheckedOut | None, console: Console) -> RunReport:
    """The report, after the commits of a complete run have come into the user's repository."""
    bundle, git = bundle_of(request), _git_in(request.checkout)
    if report.outcome is not Outcome.COMPLETED:
        show_lines(console, commits_saved(bundle, git))
        return report
    try:
        branch, moved = bring_back(request, report, before)
        if request.in_place and branch and not moved:
            show_lines(console, ["", "Your branch was not moved: it has changed since, or files are in the way."])
        show_lines(console, branch_ready(branch, git, moved=moved))
    except StepflowError as error:
        print(harmless(request.redactor(f"stepflow: {error}")), file=sys.stderr)
        show_lines(console, commits_saved(bundle, git))
        again = f"The commits are kept in {bundle}; `stepflow resume {request.folder}` tries again."
        reason = request.redactor(f"Completion loop: {error} {again}")
        report = replace(report, outcome=outcome_of(error), success=False, reason=reason)
        show_lines(console, write_files(request.folder, report, {}))
    return report


def _git_in(repository: Path) -> str:
    """How a command of git begins that works where the person is."""
    return "git" if repository == Path.cwd() else f"git -C {shlex.quote(str(repository))}"


def _patient(request: RunRequest, console: Console, clock: Clock, cancellation: Cancellation) -> RunRequest:
    """The request, whose waits for GitHub are shown."""
    services = clock_of_services(clock, cancellation)
    return with_retries(request, services, lambda line: show_lines(console, (line,)))


def _drive(prepared: Prepared, console: Console, clock: Clock, cancellation: Cancellation) -> AgentResult:
    before = prepared.resumed_run.events if prepared.resumed_run else ()
    with watch_run(console, prepared.limits, debug=prepared.request.inputs.debug, before=before) as listener:
        return drive_run(prepared, clock=clock, cancellation=cancellation, listeners=(listener,))


def _trigger(arguments: argparse.Namespace, inputs: Inputs) -> Trigger:
    """You yourself are the trigger; the issue may come from an event's file."""
    event = read_event(read_event_file(arguments.event or "", named_by="--event"))
    return Trigger(
        agent=arguments.agent,
        actor=os.environ.get("GITHUB_ACTOR", ""),
        actor_is_bot=False,
        issue=issue_of(event.issue) if event.issue else None,
        issue_number=event.issue.number if event.issue else inputs.issue,
        locked=event.issue.locked if event.issue else None,
        default_branch=event.repository.default_branch,
        private=event.repository.private,
        # Who types the command spends their own money.
        by_writer=True,
    )
