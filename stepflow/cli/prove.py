"""`stepflow prove [BASE..HEAD]`: shows whether the tests of a change test it."""

from __future__ import annotations

import argparse
import sys

from stepflow.cli.layouts.detect import find_proof_command
from stepflow.cli.options import add_flags, read_flags
from stepflow.cli.output import print_json
from stepflow.cli.run import request_from
from stepflow.cli.terminal import make_console, print_kinds
from stepflow.domain.proof import MOST_HUNKS, ProofSettings, ProofVerdict
from stepflow.modes.prove import prove
from stepflow.report.proof import proof_json, proof_lines
from stepflow.run.clock import Cancellation

#: Inputs that the user sets: how the command is run.
INPUTS = (
    *("timeout-minutes", "isolation", "network", "allowed-hosts", "setup", "apt-packages", "pass-env"),
    "working-directory",
)


def add_prove_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `prove`."""
    parser.usage = "stepflow prove [BASE..HEAD] [--command COMMAND] [--tests GLOB …] [--json] [--INPUT VALUE …]"
    parser.add_argument("change", nargs="?", default="", metavar="BASE..HEAD", help="the change (default: this branch)")
    parser.add_argument(
        "--command",
        dest="run",
        metavar="COMMAND",
        help="runs the tests; {tests} is the changed test files (default: what the repository's files suggest)",
    )
    parser.add_argument("--tests", nargs="+", metavar="GLOB", help="files that are tests (default: by convention)")
    parser.add_argument(
        "--max-hunks",
        type=int,
        default=MOST_HUNKS,
        metavar="N",
        help=f"parts to try by themselves (default: {MOST_HUNKS})",
    )
    parser.add_argument("--repo", default=".", metavar="DIR", help="the repository (default: the current folder)")
    parser.add_argument("--json", action="store_true", help="print the proof as one JSON object on stdout")
    add_flags(parser, INPUTS)


def execute_prove(arguments: argparse.Namespace) -> int:
    """Try the change, print the proof, and return 0 if it is proven."""
    request = request_from(arguments, read_flags(arguments))
    command = find_proof_command(request.root, request.programs or ()) if arguments.run is None else arguments.run
    console = make_console(sys.stderr if arguments.json else sys.stdout)
    if arguments.run is None and command:
        console.print(f"… the command {command}", style="dim", markup=False)
    with Cancellation().listening() as cancellation:
        proof = prove(
            request,
            cancellation,
            commits=arguments.change,
            command=command,
            settings=ProofSettings(tests=tuple(arguments.tests or ()), most_hunks=arguments.max_hunks),
            note=lambda name: console.print(f"… {name}", style="dim"),
        )
    print_kinds(console, proof_lines(proof))
    if arguments.json:
        print_json(proof_json(proof))
    return 0 if proof.verdict is ProofVerdict.PROVEN else 1
