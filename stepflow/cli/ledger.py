"""`stepflow ledger`: what a repository's runs cost, and what became of their changes. `stepflow gather DIR…`: the
results for many issues, as one table."""

from __future__ import annotations

import argparse
import os
import sys
from argparse import ArgumentTypeError
from datetime import date
from pathlib import Path

from stepflow.cli.options import add_flags, read_flags
from stepflow.cli.output import print_json, writing
from stepflow.cli.terminal import make_console
from stepflow.modes.batch import gather_results
from stepflow.modes.ledger import read_ledger
from stepflow.report.batch import gathered_document, gathered_lines, gathered_summary
from stepflow.report.ledger import ledger_html, ledger_json, ledger_lines
from stepflow.run.clock import SystemClock
from stepflow.run.request import proxy_config_of

#: Inputs that the user sets: how to reach GitHub.
INPUTS = ("github-token", "read-token", "github-api-url", "github-server-url", "ca-certificates")


def add_ledger_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `ledger`."""
    parser.usage = (
        "stepflow ledger [--repository OWNER/NAME] [--since DATE] [--author LOGIN] [--json] [--html FILE] "
        "[--INPUT VALUE …]"
    )
    parser.add_argument("--repository", metavar="OWNER/NAME", help="the repository (default: GITHUB_REPOSITORY)")
    parser.add_argument(
        "--since", type=_day, metavar="DATE", help="leave out pull requests opened and runs recorded before this day"
    )
    parser.add_argument(
        "--author",
        default="",
        metavar="LOGIN",
        help="the account that the runs write as, such as github-actions[bot] (default: that of the token)",
    )
    parser.add_argument(
        "--json", action="store_true", help="print the ledger as one JSON object (`stepflow schema ledger`)"
    )
    parser.add_argument("--html", metavar="FILE", help="write a page with plots, too")
    add_flags(parser, INPUTS)


def execute_ledger(arguments: argparse.Namespace) -> int:
    """Read, print the table or the JSON, and write the page."""
    inputs = read_flags(arguments)
    ledger = read_ledger(
        inputs,
        arguments.repository or os.environ.get("GITHUB_REPOSITORY", ""),
        proxy_config=proxy_config_of(inputs, os.environ, Path.cwd()),
        clock=SystemClock(),
        note=lambda line: make_console(sys.stderr).print(f"… {line}", style="dim"),
        since=arguments.since,
        author=arguments.author,
    )
    if arguments.html:
        with writing(f"The page {arguments.html}", hint="Name another file."):
            Path(arguments.html).write_text(ledger_html(ledger), encoding="utf-8")
    if arguments.json:
        print_json(ledger_json(ledger))
    else:
        print(*ledger_lines(ledger), sep="\n")
    return 0


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is no day such as 2026-01-31") from None


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
