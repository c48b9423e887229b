"""Decides what a completed run writes to GitHub.

Takes: the agent, the run's facts, the flow's result, the settings, the commits at hand. Gives: a `Plan`.
May touch: nothing (boundary.md "Plan, then apply"). Repository, issue and base branch never come from the answer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from stepflow.boundary.asked import read_asked
from stepflow.boundary.outlet import Outlet
from stepflow.boundary.planner import Planner
from stepflow.domain.effect import CloseIssue, Effect, PushBranch
from stepflow.domain.redact import Redactor
from stepflow.domain.spent import Spent
from stepflow.domain.words import Outcome, StepKind, VerdictType

if TYPE_CHECKING:
    from stepflow.boundary.planner import CommitsInfo
    from stepflow.boundary.settings import BoundarySettings
    from stepflow.domain.decision import FlowResult
    from stepflow.domain.definition import AgentDefinition
    from stepflow.domain.run import Issue, RunFacts

_BRANCH = re.compile(r"(?![-/])(?!.*(?:\.\.|//|/\.|\.lock(?:/|\Z)|@\{))[A-Za-z0-9._/+@=-]{1,200}(?<![./])")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What will be written, in order, and what writing needs to know.

    `base` is empty when the default branch is meant. `expects` is the state in which the issue must be found after
    the last effect; None when any will do. `reads_back`: the state is read at all (verdict type `poll:state`).
    `cost` is what this run has cost, all its parts together. A plan with a `refusal` has no effects.
    """

    run_id: str
    agent: str
    settings: BoundarySettings
    outlet: Outlet
    issue: Issue | None = None
    base: str = ""
    effects: tuple[Effect, ...] = ()
    warnings: tuple[str, ...] = ()
    refusal: str | None = None
    expects: str | None = None
    reads_back: bool = False
    cost: Spent = field(default_factory=Spent)


def plan_effects(
    agent: AgentDefinition,
    facts: RunFacts,
    result: FlowResult,
    settings: BoundarySettings,
    *,
    summary: str,
    removed: str = "",
    commits: CommitsInfo | None,
    redactor: Redactor | None = None,
    cost: Spent | None = None,
) -> Plan:
    """The effects of one completed run; none unless a closure step closed it.

    `summary` is the engine's own comment, used when the closing answer brings no `comment`; `removed` tells what was
    taken out of the issue's text, below a comment of the answer.
    """
    outlet = Outlet(allowed_hosts=settings.link_hosts, redactor=redactor or Redactor())
    plan = Plan(
        run_id=facts.run_id,
        agent=agent.name,
        settings=settings,
        outlet=outlet,
        issue=facts.issue,
        cost=cost or Spent(),
    )
    step = agent.steps.get(result.step_id)
    if result.outcome is not Outcome.COMPLETED or step is None or step.kind is not StepKind.CLOSURE:
        return plan
    if not agent.github.enabled:
        return plan
    planner = Planner(
        agent=agent, facts=facts, settings=settings, outlet=outlet, asked=read_asked(result.answer), commits=commits
    )
    return _planned(plan, planner, summary, removed)


def branch_name(agent: AgentDefinition, facts: RunFacts, settings: BoundarySettings) -> str:
    """`<prefix><agent>/issue-<n>`, or `run-<id>` without an issue."""
    prefix = agent.github.pull_request.branch_prefix if settings.branch_prefix is None else settings.branch_prefix
    last = f"issue-{facts.issue.number}" if facts.issue else f"run-{facts.run_id}"
    return f"{prefix}{re.sub(r'[^A-Za-z0-9._-]+', '-', agent.name)}/{last}"


def _planned(plan: Plan, planner: Planner, summary: str, removed: str) -> Plan:
    branch = branch_name(planner.agent, planner.facts, plan.settings)
    opens = planner.opens_pull_request()
    if opens and (not _BRANCH.fullmatch(branch) or branch == planner.base):
        return replace(plan, refusal=_bad_branch(branch))
    closes = planner.closes()
    by_merge = closes and planner.by_merge(opens)
    effects: tuple[Effect, ...] = (
        *((PushBranch(branch=branch), planner.pull_request(branch, by_merge)) if opens else ()),
        *planner.comment(summary, removed),
        *planner.labels(),
        *planner.release(),
        *((CloseIssue(),) if closes and not by_merge else ()),
    )
    return replace(
        plan,
        base=planner.base,
        effects=effects,
        warnings=tuple(plan.outlet.redactor(warning) for warning in planner.warnings),
        expects=("open" if by_merge else "closed") if closes else None,
        reads_back=plan.issue is not None and planner.agent.verdict.type is VerdictType.POLL_STATE,
    )


def _bad_branch(branch: str) -> str:
    return (
        f"The branch for this run's commits would be called {branch!r}, which git does not allow or which is the base "
        "branch. Change `branch-prefix` or `runner.integrations.github.pullRequest.branchPrefix`."
    )
