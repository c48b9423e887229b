"""`stepflow ledger`: what a repository's runs cost, and what became of their changes. `stepflow gather DIR…`: the
results for many issues, as one table."""

from __future__ import annotations

import argparse
import os
import sys
from argparse import ArgumentTypeError
from contextlib import closing
from datetime import UTC, date, datetime
from pathlib import Path

from stepflow.boundary.github_failures import RetryPolicy
from stepflow.cli.options import add_flags, read_flags
from stepflow.cli.terminal import make_console, print_json, writing
from stepflow.domain.reports.ledger import Ledger
from stepflow.errors import InputError
from stepflow.modes.batch import gather_results
from stepflow.report.ledger import compute_ledger, ledger_html, ledger_json, ledger_lines
from stepflow.report.many_runs import gathered_document, gathered_lines, gathered_summary
from stepflow.run.clock import SystemClock
from stepflow.run.readiness import check_addresses
from stepflow.run.request import proxy_config_of
from stepflow.run.start.inputs import Inputs

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
    ledger = _read(arguments, read_flags(arguments))
    if arguments.html:
        with writing(f"The page {arguments.html}", hint="Name another file."):
            Path(arguments.html).write_text(ledger_html(ledger), encoding="utf-8")
    if arguments.json:
        print_json(ledger_json(ledger))
    else:
        print(*ledger_lines(ledger), sep="\n")
    return 0


def _read(arguments: argparse.Namespace, inputs: Inputs) -> Ledger:
    """Read with `read-token`, or with `github-token` if there is no other. Raises `InputError` for a wrong token or
    repository, and `BoundaryError` where GitHub fails or its limit is nearly used up."""
    # Imported here because `gather` reads nothing on GitHub.
    from stepflow.boundary.ledger_reader import LedgerReader  # noqa: PLC0415

    def note(text: str) -> None:
        make_console(sys.stderr).print(f"… {text}", style="dim")

    repository = arguments.repository or os.environ.get("GITHUB_REPOSITORY", "")
    owner, slash, name = repository.partition("/")
    if not (owner and slash and name) or "/" in name:
        raise InputError(f'"{repository}" is no repository.', hint="Give it as owner/name, or set GITHUB_REPOSITORY.")
    token = inputs.read_token or inputs.github_token
    if token is None:
        raise InputError(
            "GitHub gives this list to no one without a token.", hint="Set GITHUB_TOKEN; reading is enough."
        )
    check_addresses(inputs)
    proxy_config, clock = proxy_config_of(inputs, os.environ, Path.cwd()), SystemClock()
    for warning in proxy_config.notes:
        note(warning)
    reader = LedgerReader(
        api_url=inputs.github_api_url,
        repository=repository,
        token=token.get_secret_value(),
        retry_policy=RetryPolicy.of(clock, None, note),
        connection=proxy_config.connection_to(inputs.github_api_url),
    )
    read_on = datetime.fromtimestamp(clock.now(), UTC).date()
    with closing(reader):
        return compute_ledger(reader.history(read_on=read_on, since=arguments.since, author=arguments.author))


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
