"""Handles many issues: plans a matrix of jobs, and gathers their results in one table."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from pydantic import ValidationError

from stepflow.boundary.github_failures import RetryPolicy
from stepflow.definition.folder import walk_files
from stepflow.domain.effect import EffectKind, EffectStatus
from stepflow.domain.json import JsonObject, compact
from stepflow.domain.reports.report import BatchBudget, Gathered, IssuePage, IssueResult, PlannedIssue, RunReport
from stepflow.domain.run import Issue
from stepflow.domain.secrets import Redactor
from stepflow.errors import InputError
from stepflow.ports import Clock
from stepflow.report.document import read_report
from stepflow.report.safe_text import ADDRESS
from stepflow.run.proxy_config import ProxyConfig
from stepflow.run.start.input_maps import ManyIssuesInput
from stepflow.run.start.inputs import Inputs
from stepflow.run.start.server import check_addresses

if TYPE_CHECKING:
    from stepflow.boundary.github_api import GitHubReader

#: "Outputs can be a maximum of 1 MB per job … Size is approximated based on UTF-16 encoding" (docs.github.com, Actions,
#: "Passing information between jobs"). The remaining space is for the job's other outputs.
LARGEST_PAGE = 900_000
#: In characters. Each job gets the text in one environment variable, which is limited to 128 KiB (execve(2)).
LONGEST_TEXT = 30_000
LEFT_OUT = "\n\n[the rest of this issue's text is left out]"
#: Each request returns a hundred issues and pull requests. A job's token may make a thousand requests per hour.
MOST_REQUESTS = 500


def plan_issues(
    inputs: Inputs,
    repository: str,
    *,
    clock: Clock,
    proxy_config: ProxyConfig,
    redactor: Redactor | None = None,
    note: Callable[[str], None] = lambda _line: None,
) -> IssuePage:
    """Read all issues with the label and return a page of them. Pass a message to `note` for every wait for GitHub.

    Raise `InputError` if the label, the repository, the address or the token is wrong. Raise `BoundaryError` if GitHub
    fails for too long.
    """
    if not repository:
        raise InputError("It is not known which repository to read.", hint="Set GITHUB_REPOSITORY to owner/name.")
    check_addresses(inputs)
    for warning in proxy_config.notes:
        note(warning)
    from stepflow.boundary.github_api import GitHubReader  # noqa: PLC0415 - slow import that most runs do not need

    reader = GitHubReader(
        api_url=inputs.github_api_url,
        repository=repository,
        token=inputs.read_token.get_secret_value() if inputs.read_token else None,
        redactor=redactor,
        retry_policy=RetryPolicy.of(clock, None, note),
        connection=proxy_config.connection_to(inputs.github_api_url),
    )
    with closing(reader):
        return _read_page(reader, inputs.many_issues, batch_budget(inputs))


def batch_budget(inputs: Inputs) -> BatchBudget | None:
    """Return the budget for all issues together, if there is one."""
    total = inputs.many_issues.usd_total
    return None if total is None else BatchBudget(total=total, each=inputs.limits.usd)


def matrix_entry(issue: PlannedIssue) -> JsonObject:
    """Return the issue as an item of the jobs' `matrix.include`."""
    return {"issue": issue.number, "text": issue.text}


def _read_page(reader: GitHubReader, many: ManyIssuesInput, spending: BatchBudget | None) -> IssuePage:
    """Return all open issues after `after`, with the texts of as many as fit into a job's output and the budget. An
    issue that appears twice, because the list changed, counts once."""
    numbers, texts, requests = set[int](), dict[int, str](), 0
    most = min(many.limit, spending.most_issues) if spending else many.limit
    listed: Mapping[str, str] | None = {}
    while listed is not None:
        if requests == MOST_REQUESTS:
            raise InputError(
                f'More than {MOST_REQUESTS * 100:,} issues and pull requests have the label "{many.label}".',
                hint="Give the issues to take their own label.",
            )
        listing = reader.issues_page(many.label, listed)
        requests += 1
        behind = {issue.number: _text(issue) for issue in listing.issues if issue.number > (many.after or 0)}
        numbers.update(behind)
        texts = dict(sorted({**texts, **behind}.items())[:most])
        listed = listing.next
    issues: list[PlannedIssue] = []
    budget = LARGEST_PAGE
    for number, text in texts.items():
        issue = PlannedIssue(number=number, text=text)
        # Bytes in UTF-16, including the comma that follows.
        budget -= len((compact(matrix_entry(issue)) + ",").encode("utf-16-le", errors="surrogatepass"))
        if budget < 0:
            break
        issues.append(issue)
    waiting = len(numbers) - len(issues)
    return IssuePage(label=many.label, issues=tuple(issues), waiting=waiting, requests=requests, budget=spending)


def _text(issue: Issue) -> str:
    body = issue.body if len(issue.body) <= LONGEST_TEXT else issue.body[:LONGEST_TEXT] + LEFT_OUT
    # Environment variables cannot contain the null character.
    return f"{issue.title}\n\n{body}".replace("\0", "")


#: In bytes. The report of a run with a hundred iterations takes about a hundredth of this.
LARGEST_REPORT = 64 * 1024 * 1024
#: The name of the folder that the reusable workflow's artifact creates for each issue.
ARTIFACT = re.compile(r"stepflow-(\d{1,18})")
WRITTEN = (EffectStatus.APPLIED, EffectStatus.SKIPPED)
NO_REPORT = "its job left no report; the job's own log says why"


def gather_results(folders: Iterable[Path], planned: Sequence[int] = (), budget: BatchBudget | None = None) -> Gathered:
    """Return one result per report, and one for each planned issue without a report.

    Raise `InputError` if a folder does not exist.
    """
    results = [_read(file) for folder in folders for file in _reports(folder)]
    known = {result.issue for result in results}
    missing = (number for number in sorted(set(planned)) if number not in known)
    results += (IssueResult(issue=number, outcome=None, reason=NO_REPORT) for number in missing)
    return Gathered(results=tuple(sorted(results, key=lambda result: result.issue or 0)), budget=budget)


def _reports(folder: Path) -> Iterator[Path]:
    if not folder.is_dir():
        raise InputError(f"There is no folder {folder}.", hint="Name the folder with the downloaded reports.")
    files = sorted(folder / path for path in walk_files(folder) if PurePath(path).name == "report.json")
    return (file for file in files if file.is_file() and not file.is_symlink())


def _read(file: Path) -> IssueResult:
    """Return the part of a report that the table shows. A file that is not a report also gives a result, so that it is
    not overlooked."""
    try:
        if file.stat().st_size > LARGEST_REPORT:
            return _unreadable(file, "it is too large")
        report = read_report(json.loads(file.read_bytes()))
    except (OSError, ValueError, RecursionError) as exc:
        fault = f"{exc.error_count()} fields differ" if isinstance(exc, ValidationError) else type(exc).__name__
        return _unreadable(file, fault)
    return IssueResult(
        issue=report.issue,
        outcome=report.outcome,
        reason=report.reason,
        agent=report.agent,
        iterations=report.iterations,
        tokens=report.usage.total,
        cost_usd=report.cost_usd,
        seconds=report.seconds,
        pull_request_url=_pull_request(report),
    )


def _unreadable(file: Path, why: str) -> IssueResult:
    named = ARTIFACT.fullmatch(file.parent.name)
    number = int(named[1]) if named else None
    return IssueResult(issue=number, outcome=None, reason=f"{file.parent.name}/{file.name} cannot be read: {why}")


def _pull_request(report: RunReport) -> str:
    opened = (
        effect.url
        for effect in report.effects
        if effect.kind is EffectKind.OPEN_PULL_REQUEST and effect.status in WRITTEN and ADDRESS.fullmatch(effect.url)
    )
    return next(opened, "")
