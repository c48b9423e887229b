"""The modes of a matrix of jobs: what it begins with, and what came of it (action.md "Many issues").

Takes: what the runner handed over. Gives: outputs, lines and a summary, without a run of an agent.
May touch: the job log; GitHub only to read, with `read-token`; the folder of the downloaded reports.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepflow.domain.json import compact
from stepflow.domain.secrets import Redactor
from stepflow.errors import InputError
from stepflow.modes.batch import gather_results, matrix_entries, plan_issues
from stepflow.report.annotations import annotation
from stepflow.report.many import (
    describe_page,
    describe_totals,
    gathered_json,
    gathered_lines,
    gathered_summary,
    page_summary,
)
from stepflow.run.proxies import proxy_passwords
from stepflow.run.request import outbound_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepflow.action.job import Job
    from stepflow.action.runner import Runner
    from stepflow.ports import Clock


@dataclass(frozen=True, kw_only=True)
class Many:
    """What came of such a mode: the report's reason, the summary, the outputs that only this mode sets."""

    reason: str
    summary: str
    outputs: Mapping[str, str]


def plan_mode(runner: Runner, job: Job, clock: Clock) -> Many:
    """One page of issues. Only `read-token` is used, and no file of the repository."""
    page = plan_issues(
        runner.inputs,
        runner.repository,
        clock=clock,
        outbound=outbound_of(runner.inputs, runner.environment, runner.workspace),
        redactor=Redactor((*runner.secrets, *proxy_passwords(runner.environment))),
        note=lambda line: job.say(annotation("warning", line)),
    )
    told = describe_page(page)
    job.say(told)
    outputs = {
        "plan": compact(list(matrix_entries(page))),
        "plan-issues": compact([issue.number for issue in page.issues]),
        "plan-next": str(page.after or ""),
    }
    return Many(reason=told, summary=page_summary(page), outputs=outputs)


def gather_mode(runner: Runner, job: Job) -> Many:
    """One table of all reports."""
    inputs = runner.inputs
    if not inputs.gather_from:
        raise InputError("The input gather-from is empty.", hint="Name the folder with the downloaded reports.")
    folder = runner.workspace / inputs.gather_from
    # Where no job left a report, nothing was downloaded and no folder made.
    folders = (folder,) if folder.exists() or not inputs.gather_issues else ()
    gathered = gather_results(folders, inputs.gather_issues)
    job.say(*gathered_lines(gathered))
    told = describe_totals(gathered)
    return Many(reason=told, summary=gathered_summary(gathered), outputs={"gathered": gathered_json(gathered)})
