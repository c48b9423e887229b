"""What a run leaves behind for people and programs.

Takes: nothing. Gives: `AgentResult` (three fields, S3) and `RunReport` beside it (flow.md §11).
May touch: nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stepflow.domain.conversation import Usage
from stepflow.domain.json import JsonObject, JsonValue
from stepflow.domain.removal import RemovedText
from stepflow.domain.words import Intent, Outcome, StepKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepflow.domain.effect import Receipt
    from stepflow.domain.problem import Problem


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """The outcome of a check-dialect step: `result` is `ok` or `ng`."""

    result: str
    message: str


@dataclass(frozen=True, kw_only=True)
class HistoryEntry:
    """One iteration. `intent` and `target` are None when the iteration produced none; then `transition` is `none`.

    `usage`, `cost_usd` and `seconds` are sums over the iteration; `tool_calls` counts calls, denied ones too.
    """

    iteration: int
    step_id: str
    kind: StepKind | None
    intent: Intent | None = None
    transition: str = "none"
    target: str | None = None
    reason: str = ""
    check_result: CheckResult | None = None
    format_retries: int = 0
    tool_calls: int = 0
    model: str = ""
    usage: Usage = field(default_factory=Usage)
    cost_usd: float | None = 0.0
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class ValidatorRun:
    """One run of a validator at a closing. `action` is what a failure led to, None when it passed; `warnings` say what
    was changed under it or hidden from it."""

    iteration: int
    name: str
    passed: bool
    exit_code: int
    pattern: str
    attempt: int
    action: str | None
    seconds: float
    output_tail: str
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RunReport:
    """Everything about one run (flow.md §11). `cost_usd` is None when a price is unknown; `seconds` is wall time;
    `issue_cost` tells what all runs on the issue have cost, where that has a budget; `provider` who answered;
    `kept_branch` and `kept_commit` are where the work of a failed run was kept."""

    run_id: str
    outcome: Outcome
    code: str | None
    reason: str
    success: bool
    iterations: int
    agent: str
    dialect: str
    definition_digest: str
    verdict_type: str
    entry_step_id: str
    final_step_id: str
    history: tuple[HistoryEntry, ...] = ()
    structured_output: JsonObject | None = None
    verdict: str | None = None
    handoff: Mapping[str, Mapping[str, JsonValue]] = field(default_factory=dict)
    validators: tuple[ValidatorRun, ...] = ()
    validated: bool = False
    effects: tuple[Receipt, ...] = ()
    usage: Usage = field(default_factory=Usage)
    cost_usd: float | None = 0.0
    seconds: float = 0.0
    problems: tuple[Problem, ...] = ()
    spec_violations: int = 0
    issue: int | None = None
    base_commit: str = ""
    isolation: Mapping[str, str] = field(default_factory=dict)
    canaries: Mapping[str, str] = field(default_factory=dict)
    removed_text: RemovedText = field(default_factory=RemovedText)
    failure_report: str | None = None
    kept_branch: str = ""
    kept_commit: str = ""
    issue_cost: str = ""
    run_folder: str = ""
    host_run_folder: str = ""
    provider: str = ""


@dataclass(frozen=True, kw_only=True)
class AgentResult:
    """What is compared, printed and serialised as the result of a run: exactly three fields (S3, flow.md §11).

    `reason` begins with where the run stopped: `Before the run:`, `Flow loop:` or `Completion loop:`.
    """

    success: bool
    reason: str
    iterations: int

    @classmethod
    def of(cls, report: RunReport) -> AgentResult:
        """The result that belongs to a report; the report stays reachable as `.report`."""
        result = cls(success=report.success, reason=report.reason, iterations=report.iterations)
        object.__setattr__(result, "_report", report)
        return result

    @property
    def report(self) -> RunReport:
        """The full report, which is no field of the result."""
        report: RunReport = self.__dict__["_report"]
        return report
