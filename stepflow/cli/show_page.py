"""`stepflow show DIR --html FILE`: the page of a run folder, such as one that an artifact brought.

Takes: a journal and its report. Gives: the page in a file, and where it is on stderr.
May touch: that file; the agent's folder through `load/`, where this repository has the very definition of the run.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from stepflow.definition.loading import load_agent
from stepflow.errors import InputError, StepflowError
from stepflow.report.plain import harmless
from stepflow.run.reports import page_of_journal

if TYPE_CHECKING:
    from stepflow.domain.definition import AgentDefinition
    from stepflow.domain.report import RunReport


def write_page(journal: Path, report: RunReport, place: Path) -> None:
    """Write the page; without the run's own definition it has no picture of the graph."""
    agent = _definition(report)
    try:
        page_of_journal(journal, report, agent, place)
    except OSError as exc:
        reason = f"The page {place} cannot be written: {exc.strerror}."
        raise InputError(reason, hint="Name a file in a folder that you may write to.") from exc
    missing = "" if agent else f" (no picture: this repository does not have agent {report.agent} as it ran)"
    print(harmless(f"{place}{missing}"), file=sys.stderr)


def _definition(report: RunReport) -> AgentDefinition | None:
    """The agent as the run had it: another version of it would draw ways that the run did not have."""
    try:
        agent = load_agent(report.agent, root=Path.cwd(), allow_spec_violations=True, allow_custom_verdict=True)
    except StepflowError:
        return None
    return agent if agent.digest == report.definition_digest else None
