"""The reports that a run, a rehearsal, a preflight, a batch of issues and the check of a statement produce for people
and programs.

The types are imported at run time because pydantic builds `report.json` and its schema from these classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from typing import ClassVar, Literal

from stepflow.domain.agent.agent_settings import ModelChanged
from stepflow.domain.checkout import BaseCheck, DiffStat
from stepflow.domain.connection import HostRequests
from stepflow.domain.conversation import Usage
from stepflow.domain.effect import ApprovalRequest, Receipt, SuggestionResults
from stepflow.domain.event import ValidatorRan
from stepflow.domain.json import JsonObject, JsonValue
from stepflow.domain.proof import Proof
from stepflow.domain.run import FollowUp, GuidanceFile, IssueImage, ReviewedPull
from stepflow.domain.text import TextRemoved
from stepflow.domain.words import Dialect, Effort, Intent, Outcome, Stage, StepKind
from stepflow.errors import Problem

#: Fields of a run's report and history whose names differ in JSON.
NAMES_IN_JSON = {"final_step_id": "final_step", "step_id": "step"}


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """The outcome of a check-dialect step."""

    result: Literal["ok", "ng"]
    message: str


@dataclass(frozen=True, kw_only=True)
class HistoryEntry:
    """One iteration of a run. `usage`, `cost_usd` and `seconds` are sums over the iteration. `intent` and `target` are
    None if the iteration produced none; `transition` is then `none`."""

    iteration: int
    step_id: str
    kind: StepKind | None
    intent: Intent | None = None
    transition: str = "none"
    target: str | None = None
    reason: str = ""
    check_result: CheckResult | None = None
    format_retries: int = 0
    #: Number of tool calls, including denied ones.
    tool_calls: int = 0
    model: str = ""
    #: As the agent specifies it.
    effort: Effort | None = None
    #: As the agent specifies it.
    max_output_tokens: int | None = None
    usage: Usage = field(default_factory=Usage)
    cost_usd: float | None = 0.0
    seconds: float = 0.0
    #: The model change that the iteration caused, if any.
    model_change: ModelChanged | None = None


@dataclass(frozen=True, kw_only=True)
class RunReport:
    """Everything about one run (flow.md §11). `cost_usd` is None if a price is unknown; `seconds` is wall time."""

    #: Read by pydantic; also applies to the classes of the fields.
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
    verdict_type: str
    entry_step_id: str
    final_step_id: str
    history: tuple[HistoryEntry, ...] = ()
    structured_output: JsonObject | None = None
    verdict: str | None = None
    handoff: Mapping[str, Mapping[str, JsonValue]] = field(default_factory=dict)
    validators: tuple[ValidatorRan, ...] = ()
    base_checks: tuple[BaseCheck, ...] = ()
    #: What the run's commits changed; None if there are no commits or the changes are unknown.
    changes: DiffStat | None = None
    validated: bool = False
    #: The last proof of the run's change; None if no validator asked for one.
    proof: Proof | None = None
    #: What became of the suggestions of a review; None without any.
    suggestions: SuggestionResults | None = None
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
    removed_text: TextRemoved = field(default_factory=TextRemoved)
    failure_report: str | None = None
    #: Where the work of a failed run was saved; empty if nowhere.
    kept_branch: str = ""
    #: The commit on `kept_branch`.
    kept_commit: str = ""
    #: The cost of all runs on the issue; set only if the issue has a budget.
    issue_cost: str = ""
    run_folder: str = ""
    host_run_folder: str = ""
    #: The provider that answered.
    provider: str = ""
    #: The approval that the run is waiting for.
    approval: ApprovalRequest | None = None
    #: What a follow-up run on a stepflow pull request started from.
    follow_up: FollowUp | None = None
    #: The pull request of another author that the run reviewed.
    reviewed: ReviewedPull | None = None
    #: The repository's guidance files that the model was shown.
    guidance: tuple[GuidanceFile, ...] = ()
    #: Hosts that the sandbox requested of a network with listed hosts, ordered by first request.
    hosts: tuple[HostRequests, ...] = ()
    #: All images of the issue, including those that the model could not see.
    images: tuple[IssueImage, ...] = ()
    #: The file in the run folder that states what the run pushed and how it was checked; empty if it pushed nothing.
    statement: str = ""


@dataclass(frozen=True, kw_only=True)
class AgentResult:
    """The result of a run. Only the first three fields are compared and printed; `report` holds everything else.

    `reason` begins with the stage in which the run stopped: `Before the run:`, `Flow loop:` or `Completion loop:`.
    """

    success: bool
    reason: str
    iterations: int
    report: RunReport = field(compare=False, repr=False)

    @classmethod
    def of(cls, report: RunReport) -> AgentResult:
        """Build the result from a report."""
        return cls(success=report.success, reason=report.reason, iterations=report.iterations, report=report)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of a comparison. `where` names an iteration, a validator, or a line of a file."""

    where: str
    expected: str
    came: str

    @property
    def same(self) -> bool:
        """Return True for a context row, in which nothing differs."""
        return self.expected == self.came


#: The key of `expect` for how a run ends.
OUTCOME = "outcome"


@dataclass(frozen=True, kw_only=True)
class Mismatch:
    """A failed expectation. `what` is a key of `expect`, followed by the file's name for an entry of `files`."""

    what: str
    rows: tuple[Row, ...]


@dataclass(frozen=True, kw_only=True)
class Rehearsed:
    """The result of one scenario."""

    agent: str
    name: str
    #: Relative to the repository root.
    file: str
    #: The line of `expect` in `file`.
    line: int
    outcome: Outcome
    #: The reason that the run reported.
    reason: str
    iterations: int = 0
    seconds: float = 0.0
    differences: tuple[Mismatch, ...] = ()
    notes: tuple[str, ...] = ()
    #: Why the scenario was not played. It is neither as expected nor a failure.
    skipped: str = ""
    #: The actual results were written to the file as the new expectations.
    updated: bool = False
    #: Why the file was not updated although an update was requested.
    refusal: str = ""
    #: The log of the run.
    log: tuple[str, ...] = ()
    #: Empty if the run could not start.
    run_folder: str = ""
    #: Output of the last check, if it failed.
    red: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Return True if it was played, and the results match or have just been accepted as the new expectations."""
        return not self.skipped and not self.failed

    @property
    def failed(self) -> bool:
        """Return True if the results differ."""
        return bool(self.differences) and not self.updated


@dataclass(frozen=True, kw_only=True)
class Rehearsal:
    """All scenarios in the order they were played, and the agents without any."""

    scenarios: tuple[Rehearsed, ...]
    unrehearsed: tuple[str, ...] = ()

    @property
    def failed(self) -> tuple[Rehearsed, ...]:
        """Return the scenarios whose results differ."""
        return tuple(each for each in self.scenarios if each.failed)

    @property
    def skipped(self) -> tuple[Rehearsed, ...]:
        """Return the scenarios that were not played."""
        return tuple(each for each in self.scenarios if each.skipped)

    @property
    def outcome(self) -> Outcome:
        """Return `validation_failed` if any scenario differs: a scenario is a check of the agent. Return `base_failed`
        if none was played, because then nothing is known about the agent."""
        if self.failed:
            return Outcome.VALIDATION_FAILED
        return Outcome.BASE_FAILED if len(self.skipped) == len(self.scenarios) else Outcome.COMPLETED


@dataclass(frozen=True, kw_only=True)
class PlannedIssue:
    """An issue that gets its own job. `text` is its title and body at planning time."""

    number: int
    text: str


@dataclass(frozen=True, kw_only=True)
class BatchBudget:
    """US dollars for all issues of a batch together, and the most that `each` of them may cost."""

    total: float
    each: float

    @property
    def most_issues(self) -> int:
        """Return how many issues can be worked on at the same time."""
        return int(_exact(self.total) // _exact(self.each))

    def left_after(self, costs: Iterable[float | None]) -> Decimal:
        """Return what these costs leave. An unknown one counts as the most that it may be."""
        spent = sum((_exact(self.each if cost is None else cost) for cost in costs), Decimal())
        return max(_exact(self.total) - spent, Decimal())


def _exact(dollars: float) -> Decimal:
    """Return the number as people write it: sums of floats differ from it."""
    return Decimal(str(dollars))


@dataclass(frozen=True, kw_only=True)
class IssuePage:
    """The issues of one matrix, by number. `waiting` counts the issues left for later pages. The next page begins
    `after` the last number on this one. `requests` counts the API requests made. `budget` is for this page and the
    later ones; None means that nothing limits their sum."""

    label: str
    issues: tuple[PlannedIssue, ...] = ()
    waiting: int = 0
    requests: int = 0
    budget: BatchBudget | None = None

    @property
    def budget_left(self) -> Decimal | None:
        """Return what is left of the budget if every issue of the page costs the most that it may."""
        return self.budget.left_after([None] * len(self.issues)) if self.budget else None

    @property
    def after(self) -> int | None:
        """Return the issue number that the next page begins after; None on the last page."""
        return self.issues[-1].number if self.waiting and self.issues else None


@dataclass(frozen=True, kw_only=True)
class IssueResult:
    """The result for one issue. `outcome` is None if its job left no readable report; `cost_usd` is None if a price is
    unknown."""

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
    """The results for all issues, by number."""

    results: tuple[IssueResult, ...]
    budget: BatchBudget | None = None

    @property
    def completed(self) -> int:
        """Return the number of completed issues."""
        return sum(result.outcome is Outcome.COMPLETED for result in self.results)

    @property
    def cost_usd(self) -> float:
        """Return the sum of the known costs."""
        return sum(result.cost_usd or 0.0 for result in self.results)

    @property
    def budget_left(self) -> Decimal | None:
        """Return what is left of the budget. A job without a readable report may have cost as much as it could."""
        costs = (None if each.outcome is None else each.cost_usd for each in self.results)
        return self.budget.left_after(costs) if self.budget else None

    @property
    def unpriced(self) -> int:
        """Return the number of issues whose cost is unknown."""
        return sum(result.cost_usd is None for result in self.results)


class CheckState(StrEnum):
    """The state of a preflight check. `unknown`: the check was not possible or not requested; the row says where to
    look."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class PreflightCheck:
    """One row of a preflight. `outcome` is how a run would end if this check failed."""

    name: str
    state: CheckState
    detail: str = ""
    outcome: Outcome = Outcome.REFUSED


@dataclass(frozen=True, kw_only=True)
class Preflight:
    """The preflight checks of one agent, in order."""

    agent: str
    checks: tuple[PreflightCheck, ...]

    @property
    def failed(self) -> tuple[PreflightCheck, ...]:
        """Return the checks that would block a run."""
        return tuple(check for check in self.checks if check.state is CheckState.FAILED)

    @property
    def outcome(self) -> Outcome:
        """Return how a run would end now, as far as can be predicted: by the first failed check."""
        return self.failed[0].outcome if self.failed else Outcome.COMPLETED


#: Bytes of one link.
LINK = 32
#: The check of who made a statement.
SIGNATURE = "signature"


@dataclass(frozen=True, kw_only=True)
class JournalDigest:
    """SHA-256 of a journal's file, and a chain over its lines: each link is the SHA-256 of the link before it and the
    line with its line break. The link before the first line is 32 zero bytes."""

    sha256: str
    #: The links of all lines, one after the other.
    links: bytes

    @property
    def lines(self) -> int:
        """Return the number of lines."""
        return len(self.links) // LINK

    def link(self, line: int) -> str:
        """Return the link of a line, counted from 1, which stands for this line and all before it; empty if there is no
        such line."""
        return self.links[LINK * (line - 1) : LINK * line].hex() if line > 0 else ""


@dataclass(frozen=True, kw_only=True)
class StatementCheck:
    """One check of a statement. `hint` says what to do if it did not pass."""

    name: str
    state: CheckState
    detail: str
    hint: str = ""


@dataclass(frozen=True, kw_only=True)
class Verification:
    """What was checked of a pull request, which is written as `owner/name#number`. Without its signature a statement
    may be anybody's."""

    pull_request: str
    head: str
    checks: tuple[StatementCheck, ...]

    @property
    def is_signed(self) -> bool:
        """Return whether it is known who made each statement."""
        return {each.state for each in self.checks if each.name == SIGNATURE} == {CheckState.OK}

    @property
    def failed(self) -> tuple[StatementCheck, ...]:
        """Return the checks that did not pass."""
        return tuple(each for each in self.checks if each.state is CheckState.FAILED)

    @property
    def is_verified(self) -> bool:
        """Return whether everything passed, and who made the statements is known."""
        return self.is_signed and not self.failed
