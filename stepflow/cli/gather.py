"""`stepflow gather DIR…`: the results for many issues, as one table."""

from __future__ import annotations

import argparse
from pathlib import Path

from stepflow.cli.output import print_json
from stepflow.modes.batch import gather_results
from stepflow.report.batch import gathered_document, gathered_lines, gathered_summary


def add_gather_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `gather`."""
    parser.add_argument(
        "folders", metavar="DIR", nargs="+", help="a folder that contains report.json files, at any depth"
    )
    parser.add_argument("--format", choices=("text", "markdown", "json"), default="text", help="how to show it")


def execute_gather(arguments: argparse.Namespace) -> int:
    """Print the table."""
    gathered = gather_results(map(Path, arguments.folders))
    match arguments.format:
        case "json":
            print_json(gathered_document(gathered))
        case "markdown":
            print(gathered_summary(gathered))
        case _:
            print("\n".join(gathered_lines(gathered)))
    return 0
