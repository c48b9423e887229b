"""The canary self-test of a run: nothing is set up and no model asked before it is through (security.md).

Takes: a running toolbox, a request. Gives: nothing; the journal tells, and what must not be reachable refuses the run.
May touch: nothing itself; the toolbox room plants and tries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepflow.domain.event import CanariesTried, Noted
from stepflow.sandbox.selftest.outside import Outside
from stepflow.sandbox.selftest.trial import try_canaries

if TYPE_CHECKING:
    from stepflow.ports import Journal
    from stepflow.run.request import RunRequest
    from stepflow.sandbox.box import Toolbox


def outside_of(request: RunRequest) -> Outside:
    """What the request knows of the machine around the toolbox."""
    return Outside(environment=request.environment, run_folder=request.folder, secrets=request.own_secrets())


def demand_nothing_in_reach(toolbox: Toolbox, request: RunRequest, journal: Journal) -> None:
    """Try every place; raises `IsolationError` for a reach that this run does not allow."""
    report = try_canaries(toolbox, outside_of(request))
    journal.append(CanariesTried(canaries=dict(report.states)))
    report.demand(request.inputs.isolation)
    for warning in report.open:
        journal.append(Noted(level="warning", message=f"[Isolation] {warning}"))
