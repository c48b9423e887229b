"""Every event of a run, as frozen classes: the lines of the journal.

A run's state is a fold of its events. The types are imported at run time because pydantic reads these classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import not_
from typing import Annotated, Literal

from pydantic import Field

from stepflow.domain.agent.agent_settings import ModelChanged
from stepflow.domain.checkout import BaseCheck, CommandResult, DiffStat, TreeState
from stepflow.domain.connection import HostsRequested
from stepflow.domain.conversation import ModelTurn, RequestAdapted, Substitution, ToolCall, Usage
from stepflow.domain.effect import ApprovalAnswered, ApprovalAsked, EffectKind, Receipt, SuggestionsTried
from stepflow.domain.end import End
from stepflow.domain.json import JsonObject, JsonValue
from stepflow.domain.proof import Proof
from stepflow.domain.run import FollowUp, GuidanceFile, ImagesRead, Issue, ReviewedPull, StartedBy
from stepflow.domain.text import Spent, TextRemoved
from stepflow.domain.words import Effort, FailureAction, Intent, StepKind


@dataclass(frozen=True, kw_only=True)
class RunStarted:
    """The first event. It records everything a later process needs to continue the run: all options except secrets, the
    checked arguments, and what the model sees of the `subject`. `nonce` delimits that text. `root` is the workspace at
    the start of the run; `source` is the checkout that it copies. A run `in_place` moves the branch of `source`.
    `repository_id` is GitHub's, which stays the same when the repository is renamed."""

    run_id: str
    agent: str
    dialect: str
    definition_digest: str
    verdict_type: str
    entry_step: str
    max_iterations: int
    repository: str = ""
    repository_id: Annotated[int | None, Field(exclude_if=not_)] = None
    issue: int | None = None
    base_commit: str = ""
    isolation: dict[str, str] = field(default_factory=dict)
    options: JsonObject = field(default_factory=dict)
    args: JsonObject = field(default_factory=dict)
    subject: Issue | None = None
    context_text: str = ""
    nonce: str = ""
    base_branch: str = ""
    started_by: StartedBy = field(default_factory=StartedBy)
    root: str = ""
    source: str = ""
    in_place: bool = False
    follow_up: FollowUp | None = None
    reviewed: ReviewedPull | None = None
    guidance: list[GuidanceFile] = field(default_factory=list)
    stepflow_version: str = ""
    event: Literal["run_started"] = "run_started"


@dataclass(frozen=True, kw_only=True)
class RunResumed:
    """A later process continues the run. Of the journal's `events`, the first `from_seq` are those before the iteration
    that was under way. `iteration` is the last one that began; `step_id` is empty between two steps. `attempts` counts
    validator failures. `snapshot` is the tree's, empty if there is none."""

    events: int
    from_seq: int
    iteration: int
    step_id: str
    attempts: dict[str, int] = field(default_factory=dict)
    snapshot: str = ""
    stepflow_version: str = ""
    event: Literal["run_resumed"] = "run_resumed"


@dataclass(frozen=True, kw_only=True)
class SnapshotTaken:
    """The working tree was saved as `name`, which names its content. `files` changed since the previous snapshot, and
    the store grew by `bytes`."""

    name: str
    files: int = 0
    bytes: int = 0
    seconds: float = 0.0
    event: Literal["snapshot_taken"] = "snapshot_taken"


@dataclass(frozen=True, kw_only=True)
class SnapshotFailed:
    """The working tree could not be saved. The run cannot be resumed from here until the next snapshot."""

    reason: str
    event: Literal["snapshot_failed"] = "snapshot_failed"


@dataclass(frozen=True, kw_only=True)
class LayerReported:
    """A sandbox layer reported its state after the start. `is_warning`: a person needs to know."""

    layer: str
    state: str
    is_warning: bool
    event: Literal["layer_reported"] = "layer_reported"


@dataclass(frozen=True, kw_only=True)
class CanariesTried:
    """The sandbox tested itself at the start, from inside. Each place is `kept`, `reached` (how), or `not here`."""

    canaries: dict[str, str]
    event: Literal["canaries_tried"] = "canaries_tried"


@dataclass(frozen=True, kw_only=True)
class BaseChecked(BaseCheck):
    """A validator ran before the first model call, on the tree that the run started with (flow.md §8)."""

    event: Literal["base_checked"] = "base_checked"


@dataclass(frozen=True, kw_only=True)
class ValidatorRan:
    """A validator ran at a closing. `action` is the response to a failure, None if the validator passed.
    `warnings` say which files that it depends on were changed since the run began."""

    # A report publishes neither `entry`, `max_attempts` nor `recoverable`, so one that is read back has the defaults.
    iteration: int
    entry: str = ""
    name: str
    passed: bool
    exit_code: int
    pattern: str
    attempt: int
    max_attempts: int = 0
    action: FailureAction | None
    recoverable: bool = True
    seconds: float
    output_tail: str
    command: str = ""
    warnings: tuple[str, ...] = ()
    proof: Proof | None = None
    event: Literal["validator_ran"] = "validator_ran"


@dataclass(frozen=True, kw_only=True)
class CompletionJudged:
    """The completion procedure ended one closing. If not `done`, the flow returns to `step_id` to retry."""

    entry: str
    done: bool
    validated: bool
    step_id: str
    retry_prompt: str | None = None
    retry_source: str | None = None
    event: Literal["completion_judged"] = "completion_judged"


@dataclass(frozen=True, kw_only=True)
class FlowEnded(End):
    """The flow ended; the boundary has not run yet. `answer` is the closing answer."""

    #: The step that gave the closing answer; without one, the last step that began.
    step_id: str
    answer: JsonObject | None = None
    #: True only if every validator passed at the last closing.
    validated: bool = False
    # Not in the journal: the first two are in the fold of its events.
    iterations: Annotated[int, Field(exclude=True)] = field(default=0, compare=False)
    handoff: Annotated[Mapping[str, Mapping[str, JsonValue]], Field(exclude=True)] = field(
        default_factory=dict, compare=False
    )
    #: The state that the validators checked; nothing else may be pushed (boundary.md §4).
    closing: Annotated[TreeState | None, Field(exclude=True)] = field(default=None, compare=False)
    event: Literal["flow_ended"] = "flow_ended"


@dataclass(frozen=True, kw_only=True)
class WorkCollected:
    """The run's work in the workspace, collected after the last tool exited. `commits` counts commits on top of the
    base, and `tree` is the last one's, empty without any. `changes` is their diff, None if unknown. Files that are
    `uncommitted` are not pushed, and make the run not `validated` (boundary.md §4)."""

    head_commit: str
    commits: int
    tree: str = ""
    changes: DiffStat | None = None
    uncommitted: list[str] = field(default_factory=list)
    event: Literal["work_collected"] = "work_collected"


@dataclass(frozen=True, kw_only=True)
class EffectPlanned:
    """The boundary plans this effect. In a dry run, `text` is exactly what it would have written; else it is empty."""

    kind: EffectKind
    detail: str
    text: str = ""
    event: Literal["effect_planned"] = "effect_planned"


@dataclass(frozen=True, kw_only=True)
class EffectApplied(Receipt):
    """The receipt of one effect, whatever its status."""

    event: Literal["effect_applied"] = "effect_applied"

    @property
    def receipt(self) -> Receipt:
        """Return the receipt without the event's name."""
        return Receipt(**{name: value for name, value in vars(self).items() if name != "event"})


@dataclass(frozen=True, kw_only=True)
class FailureReported:
    """A failure report, outside the plan (boundary.md). `url` is empty if no comment was written. `branch` and `commit`
    hold the saved work, if any."""

    #: One line for people.
    detail: str
    url: str = ""
    branch: str = ""
    commit: str = ""
    #: The cost of all runs on the issue, None if nobody looked. It has an event of its own.
    spent: Annotated[Spent | None, Field(exclude=True)] = field(default=None, compare=False)
    event: Literal["failure_reported"] = "failure_reported"


@dataclass(frozen=True, kw_only=True)
class IssueCostSummed:
    """The cost of all runs on the issue, compared with its budget. `at_least`: some turns had no known price."""

    usd: float
    at_least: bool
    most_usd: float
    event: Literal["issue_cost_summed"] = "issue_cost_summed"


@dataclass(frozen=True, kw_only=True)
class Noted:
    """A log entry that has no event of its own (flow.md §15). `level` is debug, info, warning or error."""

    level: str
    message: str
    data: JsonObject = field(default_factory=dict)
    event: Literal["noted"] = "noted"


@dataclass(frozen=True, kw_only=True)
class RunFinished(End):
    """The last event."""

    success: bool
    event: Literal["run_finished"] = "run_finished"


@dataclass(frozen=True, kw_only=True)
class IterationStarted:
    """A step attempt begins. `model` is empty for a command step; `effort` and the token cap are optional."""

    iteration: int
    step_id: str
    kind: StepKind | None
    model: str
    effort: Annotated[Effort | None, Field(exclude_if=not_)] = None
    max_output_tokens: Annotated[int | None, Field(exclude_if=not_)] = None
    event: Literal["iteration_started"] = "iteration_started"


@dataclass(frozen=True, kw_only=True)
class SchemaFailed:
    """The step's answer schema could not be resolved; the iteration ends without a model call (definition.md §8.4)."""

    step_id: str
    strikes: int
    reason: str
    event: Literal["schema_failed"] = "schema_failed"


@dataclass(frozen=True, kw_only=True)
class PromptRendered:
    """The start of a conversation: the system prompt and the text blocks of the first message. `source` is the file
    or template of its prompt; `retry` marks a retry prompt. `substitutions` locate values in the first block, before
    masking."""

    system: str
    blocks: list[str]
    source: str
    retry: bool
    tools: list[str]
    substitutions: list[Substitution] = field(default_factory=list)
    event: Literal["prompt_rendered"] = "prompt_rendered"


@dataclass(frozen=True, kw_only=True)
class ModelWaited:
    """A model call failed with a transient error; the run tries again after `seconds` (flow.md §10). This was `attempt`
    of `tries`. `deadline_in` is the time left in seconds, None without a deadline."""

    reason: str
    seconds: float
    attempt: int
    tries: int = 5
    deadline_in: float | None = None
    event: Literal["model_waited"] = "model_waited"


@dataclass(frozen=True, kw_only=True)
class AnswerLost:
    """An answer began but never became a turn: it broke off or could not be read. `usage` is what the service reported
    before that, and counts as spent. The service may bill more."""

    reason: str
    usage: Usage
    cost_usd: float | None
    event: Literal["answer_lost"] = "answer_lost"


@dataclass(frozen=True, kw_only=True)
class CacheRenewed:
    """The run refreshed the service's cache of a step's conversation during a long tool call or validator, so that the
    cache did not expire. `problem` says why the refresh failed; it is empty on success."""

    step_id: str
    usage: Usage
    cost_usd: float | None
    seconds: float
    problem: str = ""
    event: Literal["cache_renewed"] = "cache_renewed"


@dataclass(frozen=True, kw_only=True)
class ToolStarted:
    """A tool call begins. If no `tool_call` follows, the run was stopped while the tool was running."""

    tool_use_id: str
    name: str
    event: Literal["tool_started"] = "tool_started"


@dataclass(frozen=True, kw_only=True)
class ContextOverflowed:
    """The conversation did not fit the model; the step starts over in a new one. `retry_prompt` is the prompt that
    began the attempt, to be used again. `by_fault`: the service refused the call, so no turn answers it. `work`
    summarizes the old conversation for the new one."""

    step_id: str
    reason: str
    by_fault: bool
    retry_prompt: str | None = None
    retry_source: str | None = None
    work: str = ""
    event: Literal["context_overflowed"] = "context_overflowed"


@dataclass(frozen=True, kw_only=True)
class UserMessage:
    """The engine added a message to the conversation: a format correction, a check question, or a request to continue.
    `format_retry`: the message counts against the step's format retries."""

    text: str
    format_retry: bool
    errors: list[str] = field(default_factory=list)
    event: Literal["user_message"] = "user_message"


@dataclass(frozen=True, kw_only=True)
class CheckJudged:
    """The result of a step's check, in the check dialect (flow.md §7). `message` explains it."""

    step_id: str
    result: Literal["ok", "ng"]
    message: str
    event: Literal["check_judged"] = "check_judged"


@dataclass(frozen=True, kw_only=True)
class StepAnswered:
    """The gate read the step's answer. `intent` is None if it could not be determined. `handoff` is what is stored."""

    step_id: str
    answer: JsonObject | None
    intent: Intent | None
    target: str | None
    reason: str
    handoff: dict[str, JsonValue] = field(default_factory=dict)
    violation: str | None = None
    event: Literal["step_output"] = "step_output"


@dataclass(frozen=True, kw_only=True)
class Routed:
    """Where the flow goes next. `to` is the next step, None if the flow closes or stops. `transition` is the name used
    in the history (flow.md §11). `by_prefix` marks the default `next`."""

    source: str
    to: str | None
    transition: str
    reason: str
    by_prefix: bool = False
    event: Literal["routed"] = "routed"


#: At any time: of the process, its snapshots and its sandbox.
ProcessEvent = RunStarted | RunResumed | SnapshotTaken | SnapshotFailed | LayerReported | CanariesTried | HostsRequested
#: Before the first step: what was read, and what the checks say of the base.
IntakeEvent = TextRemoved | ImagesRead | BaseChecked
#: Inside a step: what the model is asked and answers, what runs for it, and what its answer means.
ModelEvent = IterationStarted | SchemaFailed | PromptRendered | ModelWaited | ModelTurn | AnswerLost | CacheRenewed
DialogueEvent = ToolStarted | ContextOverflowed | ModelChanged | RequestAdapted | ToolCall | CommandResult | UserMessage
AnswerEvent = CheckJudged | StepAnswered | Routed
StepEvent = ModelEvent | DialogueEvent | AnswerEvent
#: After a step: a closing's checks, an approval, the end of the flow, and what is written.
ClosingEvent = ValidatorRan | CompletionJudged | ApprovalAsked | ApprovalAnswered | FlowEnded | WorkCollected
EffectEvent = SuggestionsTried | EffectPlanned | EffectApplied | FailureReported | IssueCostSummed
Event = ProcessEvent | IntakeEvent | StepEvent | ClosingEvent | EffectEvent | Noted | RunFinished


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One line of the journal: the event, its number from 1, and the time in seconds since the epoch."""

    seq: int
    time: float
    event: Event
