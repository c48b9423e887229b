"""What is left for people and programs: the report of a run, of a rehearsal, of a preflight and of many issues.

Types are imported at run time because `report.json` and its schema are made from these classes with pydantic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, Literal

from stepflow.domain.approval import ApprovalRequest
from stepflow.domain.checkout import BaseCheck, DiffStat
from stepflow.domain.connection import HostRequests
from stepflow.domain.conversation import Usage
from stepflow.domain.effect import Receipt
from stepflow.domain.json import JsonObject, JsonValue
from stepflow.domain.ladder import ClimbCause
from stepflow.domain.problem import Problem
from stepflow.domain.run import FollowUp, GuidanceFile, IssueImage
from stepflow.domain.text import RemovedText
from stepflow.domain.words import Dialect, Effort, Intent, Outcome, Stage, StepKind, VerdictType

#: Fields of a run's report and its history that have another name in JSON.
NAMES_IN_JSON = {"final_step_id": "final_step", "step_id": "step"}


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """The outcome of a check-dialect step."""

    result: Literal["ok", "ng"]
    message: str


@dataclass(frozen=True, kw_only=True)
class ModelChange:
    """A model gave way to the next one: `before` and `to` as they are written in `models` or `fallbackModel`."""

    before: str
    to: str
    fallback: bool
    cause: ClimbCause
    reason: str


@dataclass(frozen=True, kw_only=True)
class HistoryEntry:
    """One iteration. `intent` and `target` are None when the iteration produced none; then `transition` is `none`.

    `usage`, `cost_usd` and `seconds` are sums over the iteration; `tool_calls` counts calls, denied ones too. `effort`
    and `max_output_tokens` are what the agent says of them; `model_change` is what the iteration led to, if it did.
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
    effort: Effort | None = None
    max_output_tokens: int | None = None
    usage: Usage = field(default_factory=Usage)
    cost_usd: float | None = 0.0
    seconds: float = 0.0
    model_change: ModelChange | None = None


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
    command: str = ""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RunReport:
    """Everything about one run (flow.md §11). `cost_usd` is None when a price is unknown; `seconds` is wall time;
    `issue_cost` tells what all runs on the issue have cost, where that has a budget; `provider` who answered;
    `kept_branch` and `kept_commit` are where the work of a failed run was kept; `changes` what its commits changed,
    None where there are none or that is not known; `approval` is what the run waits for; `follow_up` is what
    a run on a pull request of ours went on from; `guidance` is what the model was shown of the repository's; `hosts`
    are those that the sandbox asked for with `network: allow`, in the order of the first time; `images` are those of
    the issue, seen or not."""

    #: Read by pydantic; the classes of the fields follow it.
    __pydantic_config__: ClassVar = {
        "extra": "forbid",
        "alias_generator": lambda name: NAMES_IN_JSON.get(name, name),
    }

    run_id: str
    outcome: Outcome
    code: str | None
    reason: str
    stage: Stage
    explanation: str
    success: bool
    iterations: int
    agent: str
    dialect: Dialect | Literal[""]
    definition_digest: str
    verdict_type: VerdictType | Literal[""]
    entry_step_id: str
    final_step_id: str
    history: tuple[HistoryEntry, ...] = ()
    structured_output: JsonObject | None = None
    verdict: str | None = None
    handoff: Mapping[str, Mapping[str, JsonValue]] = field(default_factory=dict)
    validators: tuple[ValidatorRun, ...] = ()
    base_checks: tuple[BaseCheck, ...] = ()
    changes: DiffStat | None = None
    validated: bool = False
    effects: tuple[Receipt, ...] = ()
    texts: Mapping[str, str] = field(default_factory=dict)
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
    approval: ApprovalRequest | None = None
    follow_up: FollowUp | None = None
    guidance: tuple[GuidanceFile, ...] = ()
    hosts: tuple[HostRequests, ...] = ()
    images: tuple[IssueImage, ...] = ()


@dataclass(frozen=True, kw_only=True)
class AgentResult:
    """The result of a run. Three fields are what is compared and printed; `report` has everything else.

    `reason` begins with where the run stopped: `Before the run:`, `Flow loop:` or `Completion loop:`.
    """

    success: bool
    reason: str
    iterations: int
    report: RunReport = field(compare=False, repr=False)

    @classmethod
    def of(cls, report: RunReport) -> AgentResult:
        """The result that belongs to a report."""
        return cls(success=report.success, reason=report.reason, iterations=report.iterations, report=report)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of a comparison. `where` says: an iteration, a validator, a line of a file."""

    where: str
    expected: str
    came: str

    @property
    def same(self) -> bool:
        """True for a row that only shows what stands around a difference."""
        return self.expected == self.came


@dataclass(frozen=True, kw_only=True)
class Mismatch:
    """`what` was compared: a key of `expect`, with the file's name for one of `files`."""

    what: str
    rows: tuple[Row, ...]


@dataclass(frozen=True, kw_only=True)
class Rehearsed:
    """One scenario. `file` is relative to the repository, `line` where its `expect` stands; `reason` is the run's.

    `red` is what the last check said, where it was red. `updated`: the differences were written into the file as what
    is expected from now on; `refusal` says why they were not although that was asked for. `log` is the run's; and
    `run_folder` is empty for a run that could not begin.
    """

    agent: str
    name: str
    file: str
    line: int
    outcome: Outcome
    reason: str
    iterations: int = 0
    seconds: float = 0.0
    differences: tuple[Mismatch, ...] = ()
    notes: tuple[str, ...] = ()
    updated: bool = False
    refusal: str = ""
    log: tuple[str, ...] = ()
    run_folder: str = ""
    red: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """What came is what is expected, if only since now."""
        return self.updated or not self.differences


@dataclass(frozen=True, kw_only=True)
class Rehearsal:
    """Every scenario in the order of playing, and the agents that have none."""

    scenarios: tuple[Rehearsed, ...]
    unrehearsed: tuple[str, ...] = ()

    @property
    def failed(self) -> tuple[Rehearsed, ...]:
        """The scenarios that differ."""
        return tuple(each for each in self.scenarios if not each.passed)

    @property
    def outcome(self) -> Outcome:
        """A scenario is a check of the agent: where one differs, validation failed."""
        return Outcome.VALIDATION_FAILED if self.failed else Outcome.COMPLETED


@dataclass(frozen=True, kw_only=True)
class PlannedIssue:
    """An issue for a job of its own; `text` is its title and body as they were when it was planned."""

    number: int
    text: str


@dataclass(frozen=True, kw_only=True)
class IssuePage:
    """The issues of one matrix, by number. `waiting` counts those that come after them, which a page that begins
    `after` the last number of this one takes; `requests` were made to find all that out."""

    label: str
    issues: tuple[PlannedIssue, ...] = ()
    waiting: int = 0
    requests: int = 0

    @property
    def after(self) -> int | None:
        """Where the next page begins; None when there is none."""
        return self.issues[-1].number if self.waiting and self.issues else None


@dataclass(frozen=True, kw_only=True)
class IssueResult:
    """What came of one issue. `outcome` is None when its job left no report that can be read; `cost_usd` is None when
    a price is unknown."""

    issue: int | None
    outcome: Outcome | None
    reason: str
    agent: str = ""
    iterations: int = 0
    tokens: int = 0
    cost_usd: float | None = 0.0
    seconds: float = 0.0
    pull_request_url: str = ""


@dataclass(frozen=True, kw_only=True)
class Gathered:
    """What came of all issues, by number."""

    results: tuple[IssueResult, ...]

    @property
    def completed(self) -> int:
        """How many are done."""
        return sum(result.outcome is Outcome.COMPLETED for result in self.results)

    @property
    def cost_usd(self) -> float:
        """What they cost together, as far as it is known."""
        return sum(result.cost_usd or 0.0 for result in self.results)

    @property
    def unpriced(self) -> int:
        """How many cost nobody knows what."""
        return sum(result.cost_usd is None for result in self.results)


class CheckState(StrEnum):
    """`unknown`: nobody may ask, or nobody was asked; the row says where to look."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class PreflightCheck:
    """One row. `outcome` is how a run would end if this failed."""

    name: str
    state: CheckState
    detail: str = ""
    outcome: Outcome = Outcome.REFUSED


@dataclass(frozen=True, kw_only=True)
class Preflight:
    """The rows in order, for one agent."""

    agent: str
    checks: tuple[PreflightCheck, ...]

    @property
    def failed(self) -> tuple[PreflightCheck, ...]:
        """The rows that stand in the way of a run."""
        return tuple(check for check in self.checks if check.state is CheckState.FAILED)

    @property
    def outcome(self) -> Outcome:
        """How a run would end now, as far as can be known: by what comes first."""
        return self.failed[0].outcome if self.failed else Outcome.COMPLETED
