"""What came of an invocation of the action.

Takes: nothing. Gives: `Performed`; `Asked`, which is known before anything came.
May touch: nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stepflow.domain.words import Outcome
from stepflow.report.collect import ReportFacts, collect_report

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepflow.domain.definition import AgentDefinition
    from stepflow.domain.problem import Problem
    from stepflow.domain.report import RunReport
    from stepflow.run.request import Skip


@dataclass(frozen=True, kw_only=True)
class Performed:
    """What came of an invocation. `problems` become annotations; `agent` is None when none was loaded; a `summary`
    stands in the place of the report's, and `annotations` in that of its outcome's."""

    report: RunReport
    agent: AgentDefinition | None = None
    problems: tuple[Problem, ...] = ()
    summary: str = ""
    annotations: tuple[str, ...] | None = None
    neutral_on_limit: bool = False
    outputs: Mapping[str, str] = field(default_factory=dict)
    """What this mode sets beside the report's."""


@dataclass(kw_only=True)
class Asked:
    """What is known of a run before there is one: its agent and its issue, for the outputs of one that never begins."""

    agent: str = ""
    issue: int | None = None


def skipped(skip: Skip) -> Performed:
    """The event asks for no run."""

    facts = ReportFacts(outcome=Outcome.SKIPPED, reason=f"Before the run: {skip.reason}")
    return Performed(report=collect_report((), facts=facts))
