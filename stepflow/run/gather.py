"""What came of many issues, read from the reports that their jobs left.

Takes: folders with report.json files below them, the numbers that were planned. Gives: `Gathered`.
May touch: those folders, to read.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from stepflow.domain.effect import EffectKind, EffectStatus
from stepflow.domain.many import Gathered, IssueResult
from stepflow.errors import InputError
from stepflow.report.document import ReportDocument

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

#: Bytes; the report of a run with a hundred iterations has about a hundredth of it.
LARGEST_REPORT = 64 * 1024 * 1024
#: The folder that the reusable workflow's artifact makes for each issue.
ARTIFACT = re.compile(r"stepflow-(\d{1,18})")
WRITTEN = (EffectStatus.APPLIED, EffectStatus.SKIPPED)
NO_REPORT = "its job left no report; the job's own log says why"


def gather_results(folders: Iterable[Path], planned: Sequence[int] = ()) -> Gathered:
    """One result per report, and one for each planned issue that has none.

    Raises `InputError` for a folder that is not there.
    """
    results = [_read(file) for folder in folders for file in _reports(folder)]
    known = {result.issue for result in results}
    missing = (number for number in sorted(set(planned)) if number not in known)
    results += (IssueResult(issue=number, outcome=None, reason=NO_REPORT) for number in missing)
    return Gathered(results=tuple(sorted(results, key=lambda result: result.issue or 0)))


def _reports(folder: Path) -> Iterator[Path]:
    if not folder.is_dir():
        raise InputError(f"There is no folder {folder}.", hint="Name the folder with the downloaded reports.")
    return (file for file in sorted(folder.rglob("report.json")) if file.is_file() and not file.is_symlink())


def _read(file: Path) -> IssueResult:
    """The part of a report that the table shows; a file that is none is a result too, so that nothing goes unseen."""
    try:
        if file.stat().st_size > LARGEST_REPORT:
            return _unreadable(file, "it is too large")
        report = ReportDocument.model_validate(json.loads(file.read_bytes()))
    except (OSError, ValueError, RecursionError) as exc:
        told = f"{exc.error_count()} fields differ" if isinstance(exc, ValidationError) else type(exc).__name__
        return _unreadable(file, told)
    return IssueResult(
        issue=report.issue,
        outcome=report.outcome,
        reason=report.reason,
        agent=report.agent,
        iterations=report.iterations,
        tokens=sum(report.usage.model_dump().values()),
        cost_usd=report.cost_usd,
        seconds=report.seconds,
        pull_request_url=_pull_request(report),
    )


def _unreadable(file: Path, why: str) -> IssueResult:
    named = ARTIFACT.fullmatch(file.parent.name)
    number = int(named[1]) if named else None
    return IssueResult(issue=number, outcome=None, reason=f"{file.parent.name}/{file.name} cannot be read: {why}")


def _pull_request(report: ReportDocument) -> str:
    opened = (
        effect.url
        for effect in report.effects
        if effect.kind is EffectKind.OPEN_PULL_REQUEST and effect.status in WRITTEN
    )
    return next(opened, "")
