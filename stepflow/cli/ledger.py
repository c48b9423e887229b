"""`stepflow ledger`: what a repository's runs cost, and what became of their changes. `stepflow gather DIR…`: the
results for many issues, as one table."""

from __future__ import annotations

import argparse
import os
import re
import sys
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import TYPE_CHECKING

from stepflow.boundary.github_failures import RetryPolicy
from stepflow.boundary.own_texts import NUMBER, Marker, read_author, read_marker
from stepflow.cli.options import add_flags, add_option, add_switch, read_flags
from stepflow.cli.terminal import make_console, print_document, print_json, print_lines, show_note, writing
from stepflow.domain.reports.ledger import (
    AgentChange,
    AgentRun,
    Ledger,
    RepositoryHistory,
    RunRecord,
)
from stepflow.domain.reports.reverts import Landed, find_reverted
from stepflow.domain.text import Spent
from stepflow.errors import InputError
from stepflow.modes.batch import gather_results
from stepflow.report.ledger import compute_ledger, ledger_html, ledger_json, ledger_lines
from stepflow.report.many_runs import gathered_document, gathered_lines, gathered_summary
from stepflow.run.clock import SystemClock
from stepflow.run.request import proxy_config_of
from stepflow.run.start.inputs import Inputs
from stepflow.run.start.server import check_addresses

if TYPE_CHECKING:
    from stepflow.boundary.repository_reader import IssueText, LedgerReader, ListedPull

#: Inputs that the user sets: how to reach GitHub.
INPUTS = ("github-token", "read-token", "github-api-url", "github-server-url", "ca-certificates")
_LINK = re.compile(rf"^Pull request: #({NUMBER})$", re.MULTILINE)
#: Costs are written with six digits, and up to twenty of them are added.
_ROUNDING = 0.0001
#: Names of repositories in what pull requests and commits say that they revert, about which GitHub is asked.
MOST_NAMES = 20


def add_ledger_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `ledger`."""
    parser.add_argument("--repository", metavar="OWNER/NAME", help="the repository (default: GITHUB_REPOSITORY)")
    parser.add_argument(
        "--since", type=_day, metavar="DATE", help="leave out pull requests opened and runs recorded before this day"
    )
    account = "the account that the runs write as, such as github-actions[bot] (default: that of the token)"
    add_option(parser, "--author", "LOGIN", account)
    add_switch(parser, "--json", "print the ledger as one JSON object (`stepflow schema ledger`)")
    parser.add_argument("--html", metavar="FILE", help="write a page with a plot, too")
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
        print_lines(sys.stdout, ledger_lines(ledger))
    return 0


def _read(arguments: argparse.Namespace, inputs: Inputs) -> Ledger:
    """Read with `read-token`, or with `github-token` if there is no other. Raises `InputError` for a wrong token or
    repository, and `BoundaryError` where GitHub fails or its limit is nearly used up."""
    # Imported here because `gather` reads nothing on GitHub.
    from stepflow.boundary.repository_reader import LedgerReader  # noqa: PLC0415

    def note(text: str) -> None:
        show_note(make_console(sys.stderr), text)

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
        return compute_ledger(
            read_history(reader, repository, read_on=read_on, since=arguments.since, author=arguments.author)
        )


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
            print_document(gathered_summary(gathered))
        case _:
            print_lines(sys.stdout, gathered_lines(gathered))
    return 0


def read_history(
    reader: LedgerReader, repository: str, *, read_on: date, since: date | None = None, author: str = ""
) -> RepositoryHistory:
    """Read what the runs of a repository left on GitHub: the markers of their comments and reviews, their pull
    requests, and what became of those; all of it, or what was opened and recorded from the day `since` on. `author` is
    the account whose texts count, if it is not the token's own; others can copy a marker."""
    begin = datetime.combine(since, time(), UTC) if since else None
    found = HistoryBuilder(account=author or reader.viewer().login, since=since)
    pulls, issues = tuple(reader.pulls(begin)), tuple(reader.issues(begin))
    texts = [(each.number, text) for each in (*issues, *pulls) for text in reader.texts(each)]
    for pull in pulls:
        found.add_pull(pull)
    for number, text in texts:
        found.add_text(number, text)
    merges = [pull.merged_at for pull in found.pulls if pull.merged_at]
    if merges:
        found.reverted = find_reverted(_landed(pulls, reader, min(merges)), _own_names(reader, repository))
    return found.history(repository, read_on)


def _own_names(reader: LedgerReader, repository: str) -> Callable[[str], bool]:
    """Return whether a name is the repository's: a revert from before it was renamed has its former name. GitHub is
    asked about `MOST_NAMES` at most, each once."""
    known = {repository.casefold(): True}

    def is_own(name: str) -> bool:
        name = name.casefold()
        if name not in known and len(known) <= MOST_NAMES:
            known[name] = reader.has_had(name)
        return known.get(name, False)

    return is_own


def _landed(pulls: Sequence[ListedPull], reader: LedgerReader, begin: datetime) -> Iterator[Landed]:
    """Yield the merged pull requests with all that their titles, bodies and commits say, and the other commits."""
    merged = {pull.number: pull for pull in pulls if pull.merged_at}
    number_of = {oid: pull.number for pull in merged.values() for oid in pull.oids}
    messages: dict[int, list[str]] = {number: [] for number in merged}
    for commit in reader.commits(begin):
        if (number := number_of.get(commit.oid)) is not None:
            messages[number].append(commit.message)
        else:
            oids = (commit.oid,) if commit.oid else ()
            yield Landed(at=commit.committed_at, oids=oids, branch=reader.commits_branch, texts=(commit.message,))
    for number, pull in merged.items():
        if pull.merged_at:
            texts = (f"{pull.title}\n\n{pull.body}", *messages[number])
            yield Landed(at=pull.merged_at, number=number, oids=pull.oids, branch=pull.base, texts=texts)


@dataclass(kw_only=True)
class HistoryBuilder:
    """What was found so far."""

    account: str
    since: date | None
    pulls: list[ListedPull] = field(default_factory=list)
    #: By agent, issue and run; a pull request of a run without an issue counts as its issue.
    runs: dict[tuple[str, int, str], RunRecord] = field(default_factory=dict)
    #: The marker that knows of the highest cost, by agent and issue.
    costliest: dict[tuple[str, int], Marker] = field(default_factory=dict)
    #: Agent and digest by pull request, as comments say it.
    links: dict[int, tuple[str, str]] = field(default_factory=dict)
    reverted: frozenset[int] = frozenset()
    others: set[str] = field(default_factory=set)

    def is_ours(self, account: str) -> bool:
        """Return whether this is the account whose texts count."""
        return account.casefold() == self.account.casefold()

    def add_pull(self, pull: ListedPull) -> None:
        """Add a pull request, and the run that wrote it."""
        if not self.is_ours(pull.account):
            return
        self.pulls.append(pull)
        if written := read_author(pull.body, pull.branch):
            self._add_run(written.agent, written.issue or pull.number, written.record)

    def add_text(self, number: int, text: IssueText) -> None:
        """Add what the marker of a comment or review says. Another workflow of the same account may have copied one
        from another issue."""
        marker = read_marker(text.body)
        if marker is None or marker.issue != number:
            return
        if not self.is_ours(text.account):
            self.others.add(text.account)
            return
        for record in marker.history:
            self._add_run(marker.agent, number, record)
        for link in _LINK.findall(text.body):
            self.links[int(link)] = (marker.agent, marker.history[-1].digest if marker.history else "")
        known = self.costliest.get((marker.agent, number))
        if known is None or marker.cost.usd >= known.cost.usd:
            self.costliest[marker.agent, number] = marker

    def _add_run(self, agent: str, issue: int, record: RunRecord) -> None:
        """Keep of several records of a run the one that was written last."""
        known = self.runs.get((agent, issue, record.run))
        if known is None or _age(record) >= _age(known):
            self.runs[agent, issue, record.run] = record

    def history(self, repository: str, read_on: date) -> RepositoryHistory:
        """Return all of it."""
        begin = self.since.isoformat() if self.since else ""
        runs = sorted(self.runs.items(), key=lambda each: (each[1].day, each[0]))
        return RepositoryHistory(
            repository=repository,
            account=self.account,
            read_on=read_on,
            since=self.since,
            runs=tuple(AgentRun(agent=agent, record=record) for (agent, _, _), record in runs if record.day >= begin),
            changes=tuple(filter(None, map(self._change, reversed(self.pulls)))),
            unlisted=Spent() if self.since else self._unlisted_cost(),
            other_accounts=tuple(sorted(self.others)),
        )

    def _change(self, pull: ListedPull) -> AgentChange | None:
        """Return a pull request of a run; None for one that the account opened for another reason."""
        written = read_author(pull.body, pull.branch)
        of = (written.agent, written.record.digest) if written else self.links.get(pull.number)
        if of is None:
            return None
        return AgentChange(
            number=pull.number,
            agent=of[0],
            digest=of[1],
            merged_on=pull.merged_at.date() if pull.merged_at else None,
            is_open=pull.state == "OPEN",
            is_untouched=pull.is_only_by(self.account),
            is_reverted=pull.number in self.reverted,
        )

    def _unlisted_cost(self) -> Spent:
        """Return the cost of the runs that have no record: those of old comments, and those before the newest."""
        known: dict[tuple[str, int], Spent] = {}
        for (agent, issue, _), record in self.runs.items():
            known[agent, issue] = known.get((agent, issue), Spent()) + record.cost
        total = Spent()
        for of, marker in self.costliest.items():
            listed = known.get(of, Spent())
            if (usd := marker.cost.usd - listed.usd) > _ROUNDING:
                total += Spent(usd=usd, at_least=marker.before.at_least)
        return replace(total, usd=round(total.usd, 6))


def _age(record: RunRecord) -> tuple[bool, float, float]:
    """Order the records of one run by when they were written: its cost and its time only grow."""
    return record.outcome is not None, record.cost.usd, record.minutes
