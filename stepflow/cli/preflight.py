"""`stepflow preflight NAME`: a table of all that can be known before a token is spent."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from stepflow.cli.run import add_request_flags, request_from
from stepflow.cli.terminal import make_console, print_kinds
from stepflow.domain.words import exit_code
from stepflow.modes.preflight import run_preflight
from stepflow.report.preflight import preflight_lines
from stepflow.run.clock import Cancellation

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `preflight` are those of a run, so that it looks at what the run would do."""
    parser.usage = "stepflow preflight NAME [--all] [--repo DIR] [--issue N | --event FILE] [--INPUT VALUE …]"
    parser.add_argument("--all", action="store_true", help="show every row, also of what is fine")
    add_request_flags(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Look at everything and print the rows."""
    request = request_from(arguments)
    # A run brings its commits back as a branch.
    request = replace(request, own_branch=True)
    cancellation = Cancellation()
    with cancellation.listening():
        preflight = run_preflight(request, cancellation)
    print_kinds(make_console(sys.stdout), preflight_lines(preflight, every_row=arguments.all))
    return exit_code(preflight.outcome)
