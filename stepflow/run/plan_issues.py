"""One page of the open issues with a label, for a matrix of jobs.

Takes: the inputs `plan-…`, a token that can read, or none for a public repository. Gives: `IssuePage`.
May touch: GitHub, through the boundary's reader; the clock, when GitHub asks for patience.

A page begins after an issue's number, so that issues that are closed, opened or labelled meanwhile move nothing.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stepflow.boundary.patience import Patience
from stepflow.domain.json import compact
from stepflow.domain.many import IssuePage, PlannedIssue
from stepflow.domain.redact import Redactor
from stepflow.errors import InputError
from stepflow.run.addresses import check_addresses

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from stepflow.boundary.github_reader import GitHubReader
    from stepflow.domain.json import JsonObject
    from stepflow.domain.run import Issue
    from stepflow.ports import Clock
    from stepflow.run.inputs import Inputs
    from stepflow.run.outbound import Outbound

#: "Outputs can be a maximum of 1 MB per job … Size is approximated based on UTF-16 encoding" (docs.github.com, Actions,
#: "Passing information between jobs"). The rest is for the job's other outputs.
LARGEST_PAGE = 900_000
#: In characters. Each job gets the text as one variable of its environment, which may have 128 KiB (execve(2)).
LONGEST_TEXT = 30_000
LEFT_OUT = "\n\n[the rest of this issue's text is left out]"
#: Of a hundred issues and pull requests each; a job's token may ask a thousand times an hour.
MOST_REQUESTS = 500


def plan_issues(
    inputs: Inputs,
    repository: str,
    *,
    clock: Clock,
    outbound: Outbound,
    redactor: Redactor | None = None,
    note: Callable[[str], None] = lambda _line: None,
) -> IssuePage:
    """Read all issues with the label and take a page of them; every wait for GitHub is told to `note`.

    Raises `InputError` where label, repository, address or token are wrong, `BoundaryError` where GitHub fails for too
    long.
    """
    if not inputs.plan_label:
        raise InputError("The input plan-label is empty.", hint="Name the label of the issues to take.")
    if not repository:
        raise InputError("It is not known which repository to read.", hint="Set GITHUB_REPOSITORY to owner/name.")
    check_addresses(inputs)
    for warning in outbound.notes:
        note(warning)
    from stepflow.boundary.github_reader import GitHubReader  # noqa: PLC0415 - costs time that most runs need not pay

    reader = GitHubReader(
        api_url=inputs.github_api_url,
        repository=repository,
        token=inputs.read_token.get_secret_value() if inputs.read_token else None,
        redactor=redactor,
        patience=Patience.of(clock, None, note),
        way=outbound.way_to(inputs.github_api_url),
    )
    with closing(reader):
        return _page_of(_read_all(reader, inputs.plan_label, inputs.plan_after or 0, inputs.plan_limit))


def matrix_entries(page: IssuePage) -> list[JsonObject]:
    """The page as the jobs' `matrix.include`."""
    return [_entry(issue) for issue in page.issues]


@dataclass(kw_only=True)
class _Read:
    """What was read so far: all numbers, and the texts of as many as a page can hold."""

    label: str
    numbers: set[int] = field(default_factory=set)
    texts: dict[int, str] = field(default_factory=dict)
    requests: int = 0


def _read_all(reader: GitHubReader, label: str, after: int, limit: int) -> _Read:
    """Every open issue behind `after`. One that a change of the list shows twice counts once."""
    read = _Read(label=label)
    page: Mapping[str, str] | None = {}
    while page is not None:
        if read.requests == MOST_REQUESTS:
            raise InputError(
                f'More than {MOST_REQUESTS * 100:,} issues and pull requests have the label "{label}".',
                hint="Give the issues to take a label of their own.",
            )
        found = reader.issues_page(label, page)
        read.requests += 1
        behind = {issue.number: _text(issue) for issue in found.issues if issue.number > after}
        read.numbers.update(behind)
        read.texts = dict(sorted({**read.texts, **behind}.items())[:limit])
        page = found.next
    return read


def _page_of(read: _Read) -> IssuePage:
    """As many of the texts as fit into a job's output together."""
    taken: list[PlannedIssue] = []
    room = LARGEST_PAGE
    for number, text in read.texts.items():
        issue = PlannedIssue(number=number, text=text)
        room -= _size(issue)
        if room < 0:
            break
        taken.append(issue)
    waiting = len(read.numbers) - len(taken)
    return IssuePage(label=read.label, issues=tuple(taken), waiting=waiting, requests=read.requests)


def _text(issue: Issue) -> str:
    body = issue.body if len(issue.body) <= LONGEST_TEXT else issue.body[:LONGEST_TEXT] + LEFT_OUT
    # No variable of an environment can hold the character that ends it.
    return f"{issue.title}\n\n{body}".replace("\0", "")


def _size(issue: PlannedIssue) -> int:
    """Bytes in UTF-16, with the comma behind it."""
    return len((compact(_entry(issue)) + ",").encode("utf-16-le", errors="surrogatepass"))


def _entry(issue: PlannedIssue) -> JsonObject:
    return {"issue": issue.number, "text": issue.text}
