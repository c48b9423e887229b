"""`stepflow rehearse [NAME …]`: plays agents' scenarios and compares the results with what they expect."""

from __future__ import annotations

import argparse
import os
import sys
from functools import partial
from pathlib import Path

from stepflow.cli.options import add_flags, add_repo, add_switch, read_flags
from stepflow.cli.run import request_from
from stepflow.cli.terminal import make_console, print_json, show_lines, show_note, writing
from stepflow.domain.reports.report import Rehearsal, Rehearsed
from stepflow.domain.words import exit_code
from stepflow.errors import InputError
from stepflow.modes.rehearse import rehearse_agents
from stepflow.report.document import rehearsal_json
from stepflow.report.rehearsal import junit_xml, rehearsal_lines, rehearsed_lines
from stepflow.run.clock import Cancellation

#: Inputs that the user sets for a rehearsal. The scenario sets everything else.
INPUTS = (
    *("limits", "isolation", "network", "setup", "apt-packages", "pass-env", "mcp-secrets"),
    *("working-directory", "run-folder", "allow"),
)
NOT_WRITABLE = "Name a file in a folder that is there and that you may write to."


def add_rehearse_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `rehearse`."""
    parser.add_argument("names", nargs="*", metavar="NAME", help="agents, or AGENT/SCENARIO (default: all agents)")
    add_repo(parser)
    add_switch(parser, "--update", "update the scenarios' `expect` with the actual results")
    parser.add_argument("--junit", metavar="FILE", help="write the results as JUnit XML, which CI services read")
    add_switch(parser, "--json", "print the results as one JSON object on stdout")
    add_flags(parser, INPUTS)


def execute_rehearse(arguments: argparse.Namespace) -> int:
    """Play the scenarios, print the results, and return 1 if any differs."""
    inputs = read_flags(arguments)
    if arguments.junit:
        _check_junit(Path(arguments.junit))
    request = request_from(arguments, inputs)
    console = make_console(sys.stderr if arguments.json else sys.stdout)

    def show_scenario(rehearsed: Rehearsed) -> None:
        show_lines(console, rehearsed_lines(rehearsed))

    with Cancellation().listening() as cancellation:
        rehearsal = rehearse_agents(
            request,
            arguments.names,
            cancellation,
            update=arguments.update,
            report_one=show_scenario,
            note=partial(show_note, console),
        )
    show_lines(console, rehearsal_lines(rehearsal))
    _write(rehearsal, arguments)
    return exit_code(rehearsal.outcome)


def _write(rehearsal: Rehearsal, arguments: argparse.Namespace) -> None:
    if arguments.junit:
        with writing(f"The JUnit file {arguments.junit}", hint=NOT_WRITABLE):
            Path(arguments.junit).write_text(junit_xml(rehearsal), encoding="utf-8")
    # Comes last, because an error would print an object of its own.
    if arguments.json:
        print_json(rehearsal_json(rehearsal))


def _check_junit(file: Path) -> None:
    """Raise `InputError` if the file cannot be written. Called before anything is played, which may take long."""
    why = ""
    if file.is_dir() or not file.parent.is_dir():
        why = "it is a folder" if file.is_dir() else f"there is no folder {file.parent}"
    elif not os.access(file if file.exists() else file.parent, os.W_OK):
        why = "you may not write there"
    if why:
        raise InputError(f"The JUnit file {file} cannot be written: {why}.", hint=NOT_WRITABLE)
