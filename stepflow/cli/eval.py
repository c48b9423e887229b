"""`stepflow eval AGENT`: compares two definitions of an agent on the same cases."""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
from collections.abc import Callable
from dataclasses import asdict, replace

from stepflow.cli.layouts.find import find_proof_command
from stepflow.cli.options import add_agent, add_flags, add_option, add_repo, add_switch, read_flags
from stepflow.cli.run import request_from
from stepflow.cli.terminal import make_console, print_document, print_json, runs_folder, show_lines, show_note
from stepflow.domain.reports.evaluation import EvalTrial, EvalVerdict
from stepflow.domain.text import count
from stepflow.errors import InputError
from stepflow.modes.eval.evaluate import EvalListener, EvalRequest, evaluate
from stepflow.modes.eval.history import CollectRequest, collect_cases
from stepflow.report.many_runs import evaluation_json, evaluation_lines, trial_lines
from stepflow.report.safe_text import one_line
from stepflow.run.clock import Cancellation, SystemClock, clock_of_services
from stepflow.run.request import RunRequest, with_retries
from stepflow.run.start.trigger import Trigger

#: Inputs that the user sets for an eval. A case sets the issue.
INPUTS = (
    *("model", "scenario", "anthropic-api-key"),
    *("limits", "isolation", "network", "setup", "apt-packages", "pass-env", "mcp-secrets"),
    *("working-directory", "run-folder", "allow", "read-token", "github-api-url", "github-server-url"),
)
#: Characters of a message.
NOTE = 600
MOST_USD, MOST_MINUTES, MOST_CASES = 10.0, 300.0, 40


def add_eval_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `eval`."""
    add_agent(parser)
    baseline = "the baseline: a commit, tag or branch, or the digest of a definition (default: the last commit)"
    add_option(parser, "--against", "REF|DIGEST", baseline)
    add_option(parser, "--against-model", "MODEL", "the baseline's model (default: as the candidate)")
    add_option(parser, "--usd", "USD", "US dollars for the whole eval", default=MOST_USD, dest="most_usd")
    whole = "minutes for the whole eval, from this start on"
    add_option(parser, "--minutes", "N", whole, default=MOST_MINUTES, dest="most_minutes")
    add_option(parser, "--cases", "N", "most cases, always the same ones", default=MOST_CASES, dest="most_cases")
    add_switch(parser, "--collect", "run nothing; write cases from merged pull requests that bring tests")
    parser.add_argument(
        "--command",
        dest="run",
        metavar="COMMAND",
        help="with --collect: runs the tests; {tests} is the test files (default: what the repository's files suggest)",
    )
    add_repo(parser)
    add_switch(parser, "--json", "print the results as one JSON object on stdout")
    add_flags(parser, INPUTS)


def execute_eval(arguments: argparse.Namespace) -> int:
    """Run the eval, print the comparison, and return 1 if the candidate is worse."""
    for name in ("most_usd", "most_minutes", "most_cases"):
        if not getattr(arguments, name) > 0:
            raise InputError("--usd, --minutes and --cases must be more than 0.", hint="Leave one out.")
    inputs = read_flags(arguments, agent=arguments.agent)
    request = request_from(arguments, inputs, trigger=Trigger(agent=arguments.agent, by_writer=True))
    if not inputs.run_folder:
        # The same for the next start, which continues.
        place = hashlib.sha256(os.fsencode(request.root)).hexdigest()[:8]
        request = replace(request, folder=(runs_folder() / f"eval-{arguments.agent}-{place}").resolve())
    console = make_console(sys.stderr if arguments.json else sys.stdout)

    def note(text: str) -> None:
        show_note(console, one_line(text, NOTE))

    if arguments.collect:
        return _collect(arguments, request, note)
    asked = EvalRequest(
        against=arguments.against,
        against_model=arguments.against_model,
        most_usd=arguments.most_usd,
        most_minutes=arguments.most_minutes,
        most_cases=arguments.most_cases,
    )

    def show_trial(case: str, is_candidate: bool, trial: EvalTrial) -> None:
        show_lines(console, trial_lines(case, is_candidate, trial))

    with Cancellation().listening() as cancellation:
        evaluation = evaluate(request, asked, cancellation, EvalListener(on_note=note, on_trial=show_trial))
    show_lines(console, evaluation_lines(evaluation))
    if arguments.json:
        print_json(evaluation_json(evaluation))
    return 1 if evaluation.comparison.verdict is EvalVerdict.WORSE else 0


def _collect(arguments: argparse.Namespace, request: RunRequest, note: Callable[[str], None]) -> int:
    """Write cases, and print which."""
    command = arguments.run
    if command is None:
        command = find_proof_command(request.root, request.programs or ())
        note(f"the tests run by {command or 'no known command'}")
    asked = CollectRequest(command=command, most_cases=arguments.most_cases, most_minutes=arguments.most_minutes)
    with Cancellation().listening() as cancellation:
        services = clock_of_services(SystemClock(), cancellation)
        collected = collect_cases(with_retries(request, services, note), asked, cancellation, note)
    if arguments.json:
        print_json({"cases": [*collected.files], "left_out": [asdict(each) for each in collected.left_out]})
    else:
        print_document(f"{count(len(collected.files), 'case')} written. Read them before you commit them.")
    return 0
