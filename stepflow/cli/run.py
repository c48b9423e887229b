"""`stepflow run NAME`: one run, here."""

from __future__ import annotations

import os
import secrets
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from stepflow.cli.options import SECRETS, add_agent, add_input_flags, read_flags
from stepflow.cli.output import print_json, runs_folder
from stepflow.cli.terminal import make_console, show_lines, watch_run
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
from stepflow.run.repository_copy import bundle_of, repository_copy
from stepflow.run.request import RunRequest, locate_repository, login_files_in, restore_folder, with_retries
from stepflow.run.resume import chosen_folder, completed_report
from stepflow.run.trigger import Trigger, issue_of, read_event, read_event_file
from stepflow.sandbox.credentials.stripped_credentials import find_credentials
from stepflow.sandbox.programs import user_programs
from stepflow.sandbox.restore import mend_checkouts

if TYPE_CHECKING:
    import argparse

    from rich.console import Console

    from stepflow.domain.report import AgentResult, RunReport
    from stepflow.ports import Clock
    from stepflow.run.inputs import Inputs
    from stepflow.run.prepare import Prepared
    from stepflow.run.repository_copy import RepositoryCopy


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `run`. There are too many for a usage line that anybody would read."""
    parser.usage = "stepflow run NAME [--repo DIR] [--issue N | --event FILE] [--json] [--INPUT VALUE …]"
    parser.add_argument("--json", action="store_true", help="print the report as one JSON object on stdout")
    parser.add_argument("--in-place", action="store_true", help="work in the checkout itself, not in a copy of it")
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
    if arguments.in_place:
        request = replace(request, demand_clean=not arguments.allow_dirty)
    return carry_out(request, as_json=arguments.json, in_place=arguments.in_place)


def carry_out(request: RunRequest, *, as_json: bool, in_place: bool) -> int:
    """Run what is asked for and say how it ended; of a complete run only the result is shown."""
    console = make_console(sys.stderr if as_json else sys.stdout)
    report = completed_report(request)
    if report:
        console.print(f"The run in {request.folder} is complete; there is nothing to resume.")
        show_lines(console, [*write_missing(request, report), *final_words(report)])
    elif in_place:
        report = run_request(request, console).report
        show_lines(console, final_words(report))
        if report.outcome is not Outcome.COMPLETED:
            show_lines(console, commits_saved(bundle_of(request)))
    else:
        report = _run_in_copy(request, console)
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
    """A run of this machine, with a run folder of its own unless one is named. What a run that was killed has taken
    comes back before anything is read."""
    run_id = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"
    temp = os.environ.get("RUNNER_TEMP")
    for message, notes in mend_checkouts(restore_folder(root, Path(temp) if temp else None, os.environ), root):
        print(message, *notes, sep="\n", file=sys.stderr)
    folder = chosen_folder(inputs, runs_folder() / run_id)
    login = login_of(os.environ)
    left = find_credentials(root, Path(temp) if temp else None, login_files_in(root, login))
    return RunRequest(
        run_id=run_id,
        inputs=inputs,
        trigger=trigger,
        root=root,
        folder=folder,
        repository=os.environ.get("GITHUB_REPOSITORY", ""),
        environment=dict(os.environ),
        withheld=frozenset((*SECRETS.values(), *filter(logs_in, os.environ))),
        credentials=(*_own_secrets(), *left.secrets),
        login=login,
        runner_temp=Path(temp) if temp else None,
    )


def _own_secrets() -> tuple[str, ...]:
    names = (*SECRETS.values(), *filter(holds_login, os.environ))
    return tuple(os.environ[name] for name in dict.fromkeys(names) if os.environ.get(name))


def run_request(request: RunRequest, console: Console) -> AgentResult:
    """Prepare and drive one run in the checkout itself, and show it as it goes."""
    cancellation = Cancellation()
    clock = clock_for(request.inputs)
    with cancellation.listening():
        prepared = prepare_run(_patient(request, console, clock, cancellation), now=clock.now())
        return _drive(prepared, console, clock, cancellation)


def _run_in_copy(request: RunRequest, console: Console) -> RunReport:
    """The same in a copy of the repository; what it did comes back as a branch when it is complete. It says all of
    that."""
    cancellation = Cancellation()
    clock = clock_for(request.inputs)
    with cancellation.listening(), repository_copy(request) as copied:
        prepared = prepare_run(_patient(copied.request, console, clock, cancellation), now=clock.now())
        left_behind = copied.fill(prepared, cancellation)
        show_lines(console, copy_began(copied.repository, left_behind))
        report = _drive(prepared, console, clock, cancellation).report
        show_lines(console, final_words(report))
        return _bring_back(copied, prepared, report, console)


def _bring_back(copied: RepositoryCopy, prepared: Prepared, report: RunReport, console: Console) -> RunReport:
    """The report, after the commits of a complete run have become a branch in the user's repository."""
    bundle = bundle_of(prepared.request)
    if report.outcome is not Outcome.COMPLETED:
        show_lines(console, commits_saved(bundle))
        return report
    try:
        show_lines(console, branch_ready(copied.fetch(prepared)))
    except StepflowError as error:
        print(harmless(prepared.request.redactor(f"stepflow: {error}")), file=sys.stderr)
        show_lines(console, commits_saved(bundle))
        reason = prepared.request.redactor(f"Completion loop: {error} The commits are kept in {bundle}.")
        report = replace(report, outcome=outcome_of(error), success=False, reason=reason)
        show_lines(console, write_files(prepared.request.folder, report, {}))
    return report


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
