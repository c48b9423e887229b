"""Everything that can happen in a run, one frozen event each: the lines of the journal.

A run's state is a fold of them. Types are imported at run time because the journal reads these classes with pydantic.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import not_
from typing import Annotated, Literal

from pydantic import Field

from stepflow.domain.approval import ApprovalAnswered, ApprovalAsked
from stepflow.domain.checkout import BaseCheck, DiffStat
from stepflow.domain.connection import HostsRequested
from stepflow.domain.conversation import ClearedResults, Refusal, RequestAdapted, Substitution, Usage
from stepflow.domain.effect import EffectKind, Receipt
from stepflow.domain.json import JsonObject, JsonValue
from stepflow.domain.ladder import ModelChanged
from stepflow.domain.run import FollowUp, GuidanceFile, ImagesRead, Issue, StartedBy, ToolImage
from stepflow.domain.text import RemovedPiece
from stepflow.domain.words import Effort, FailureAction, Intent, Outcome, Stage, StepKind


@dataclass(frozen=True, kw_only=True)
class RunStarted:
    """The first event, with all that a later process needs to go on: every option but secrets, the checked arguments,
    and what the model was shown of the `subject`, `nonce` being its delimiter. `root` is the workspace where the run
    began, `source` the checkout that it copies, whose branch a run `in_place` moves."""

    run_id: str
    agent: str
    dialect: str
    definition_digest: str
    verdict_type: str
    entry_step: str
    max_iterations: int
    repository: str = ""
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
    guidance: list[GuidanceFile] = field(default_factory=list)
    event: Literal["run_started"] = "run_started"


@dataclass(frozen=True, kw_only=True)
class RunResumed:
    """A later process goes on with the run. Of the `events` that the journal held, the first `from_seq` stand as they
    are; what followed is played again from what is recorded, up to where the run stopped: `iteration` is the last that
    began, `step_id` the step that goes on, empty between two. `attempts` are the failures of validators so far, and the
    tree is put back to `snapshot`, empty when none was kept."""

    events: int
    from_seq: int
    iteration: int
    step_id: str
    attempts: dict[str, int] = field(default_factory=dict)
    snapshot: str = ""
    event: Literal["run_resumed"] = "run_resumed"


@dataclass(frozen=True, kw_only=True)
class SnapshotTaken:
    """The working tree was kept under `name`: `files` that changed since the snapshot before, in so many `bytes` on
    disk. The same name means the same tree."""

    name: str
    files: int
    bytes: int
    seconds: float
    event: Literal["snapshot_taken"] = "snapshot_taken"


@dataclass(frozen=True, kw_only=True)
class SnapshotFailed:
    """The working tree could not be kept: from here a run cannot go on until the next snapshot."""

    reason: str
    event: Literal["snapshot_failed"] = "snapshot_failed"


@dataclass(frozen=True, kw_only=True)
class LayerReported:
    """What became known of a layer of the sandbox later. `is_warning`: a person must know of it."""

    layer: str
    state: str
    is_warning: bool
    event: Literal["layer_reported"] = "layer_reported"


@dataclass(frozen=True, kw_only=True)
class CanariesTried:
    """The sandbox was tried from inside before anything else: each place is `kept`, `reached` (how), or `not here`."""

    canaries: dict[str, str]
    event: Literal["canaries_tried"] = "canaries_tried"


@dataclass(frozen=True, kw_only=True)
class TextRemoved:
    """Text hidden from people was kept from the model. `pieces` are the first of `count`, cut."""

    count: int
    pieces: list[RemovedPiece] = field(default_factory=list)
    event: Literal["text_removed"] = "text_removed"


@dataclass(frozen=True, kw_only=True)
class BaseChecked(BaseCheck):
    """A validator ran before the first model call, on the tree as the run found it (flow.md §8)."""

    event: Literal["base_checked"] = "base_checked"


@dataclass(frozen=True, kw_only=True)
class ValidatorRan:
    """A validator ran at a closing. `action` is what its failure led to, None when it passed; `warnings` say what was
    changed under it or hidden from it, `restored` what was taken back in HOME and TMPDIR."""

    iteration: int
    entry: str
    name: str
    passed: bool
    exit_code: int
    pattern: str
    attempt: int
    max_attempts: int
    action: FailureAction | None
    recoverable: bool
    seconds: float
    output_tail: str
    command: str = ""
    warnings: list[str] = field(default_factory=list)
    restored: list[str] = field(default_factory=list)
    event: Literal["validator_ran"] = "validator_ran"


@dataclass(frozen=True, kw_only=True)
class CompletionJudged:
    """The completion procedure ended one closing. `done` false with a `retry_prompt`: the flow goes on at `step_id`."""

    entry: str
    done: bool
    validated: bool
    step_id: str
    retry_prompt: str | None = None
    retry_source: str | None = None
    event: Literal["completion_judged"] = "completion_judged"


@dataclass(frozen=True, kw_only=True)
class FlowEnded:
    """The flow is over, before the boundary. `answer` is the closing answer."""

    outcome: Outcome
    stage: Stage
    reason: str
    step_id: str
    answer: JsonObject | None
    validated: bool
    event: Literal["flow_ended"] = "flow_ended"


@dataclass(frozen=True, kw_only=True)
class WorkCollected:
    """What the run did in the workspace, seen after the last tool died. `commits` were made on top of the base; they
    change what `changes` says, None where that is not known. What is `uncommitted` or `created_by_checks` leaves with
    nothing; the former makes the run not `validated` (boundary.md §4)."""

    head_commit: str
    commits: int
    changes: DiffStat | None = None
    uncommitted: list[str] = field(default_factory=list)
    created_by_checks: list[str] = field(default_factory=list)
    event: Literal["work_collected"] = "work_collected"


@dataclass(frozen=True, kw_only=True)
class EffectPlanned:
    """The boundary intends this effect. `text` is what a dry run would have written, word by word."""

    kind: EffectKind
    detail: str
    text: str = ""
    event: Literal["effect_planned"] = "effect_planned"


@dataclass(frozen=True, kw_only=True)
class EffectApplied(Receipt):
    """The receipt of one effect, whatever became of it."""

    event: Literal["effect_applied"] = "effect_applied"

    @property
    def receipt(self) -> Receipt:
        """The receipt alone."""
        return Receipt(**{name: value for name, value in vars(self).items() if name != "event"})


@dataclass(frozen=True, kw_only=True)
class FailureReported:
    """A failure was reported; no effect of the plan (boundary.md). Work is kept at `commit` on `branch`, if any."""

    detail: str
    url: str
    branch: str = ""
    commit: str = ""
    event: Literal["failure_reported"] = "failure_reported"


@dataclass(frozen=True, kw_only=True)
class IssueCostSummed:
    """What all runs on the issue have cost, against its budget; `at_least`: some turns had no known price."""

    usd: float
    at_least: bool
    budget_usd: float
    event: Literal["issue_cost_summed"] = "issue_cost_summed"


@dataclass(frozen=True, kw_only=True)
class Noted:
    """A log entry that no other event stands for (flow.md §15). `level` is debug, info, warning or error."""

    level: str
    message: str
    data: JsonObject = field(default_factory=dict)
    event: Literal["noted"] = "noted"


@dataclass(frozen=True, kw_only=True)
class RunFinished:
    """The last event."""

    outcome: Outcome
    stage: Stage
    reason: str
    success: bool
    event: Literal["run_finished"] = "run_finished"


@dataclass(frozen=True, kw_only=True)
class IterationStarted:
    """A step attempt begins. `model` is empty for a command step; the agent may say the last two."""

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
    """The conversation's opening: system prompt and the text blocks of the first message. `source` is the prompt's file
    or template; `retry` marks a retry prompt. `substitutions` are in the first block, before secrets were masked."""

    system: str
    blocks: list[str]
    source: str
    retry: bool
    tools: list[str]
    substitutions: list[Substitution] = field(default_factory=list)
    event: Literal["prompt_rendered"] = "prompt_rendered"


@dataclass(frozen=True, kw_only=True)
class ModelWaited:
    """A model call failed in a way that passes; the run asks again after so many `seconds` (flow.md §10). `attempt` of
    `tries` failed; `deadline_in` are the seconds that were left, None without a deadline."""

    reason: str
    seconds: float
    attempt: int
    tries: int = 5
    deadline_in: float | None = None
    event: Literal["model_waited"] = "model_waited"


@dataclass(frozen=True, kw_only=True)
class ModelTurned:
    """The model answered one turn. `content` holds the API's content blocks. Few turns have one of the last three."""

    content: list[JsonObject]
    stop_reason: str
    usage: Usage
    cost_usd: float | None
    model: str
    seconds: float
    refusal: Annotated[Refusal | None, Field(exclude_if=not_)] = None
    cleared: Annotated[ClearedResults | None, Field(exclude_if=not_)] = None
    near_price_step: Annotated[bool, Field(exclude_if=not_)] = False
    event: Literal["model_turn"] = "model_turn"


@dataclass(frozen=True, kw_only=True)
class AnswerLost:
    """An answer had begun and never became a turn: it broke off, or could not be read. What the service said that it
    used until then is spent; the rest of what it may bill nobody knows."""

    reason: str
    usage: Usage
    cost_usd: float | None
    event: Literal["answer_lost"] = "answer_lost"


@dataclass(frozen=True, kw_only=True)
class CacheRenewed:
    """While a tool or a validator ran, what the service has cached of a step's conversation was used once more, so that
    it did not expire. `problem` says why that failed, and is empty where it did not."""

    step_id: str
    usage: Usage
    cost_usd: float | None
    seconds: float
    problem: str = ""
    event: Literal["cache_renewed"] = "cache_renewed"


@dataclass(frozen=True, kw_only=True)
class ToolStarted:
    """A tool call begins. Without the `tool_call` that answers it the run was stopped while the tool was at work."""

    tool_use_id: str
    name: str
    event: Literal["tool_started"] = "tool_started"


@dataclass(frozen=True, kw_only=True)
class ContextOverflowed:
    """The conversation did not fit the model: the step begins again, in a new one. `retry_prompt` is the one that the
    attempt began with; it is not used up. `by_fault`: the service refused the call, so no turn answers it. `work` says
    what was done in the conversation, for the one that takes its place."""

    step_id: str
    reason: str
    by_fault: bool
    retry_prompt: str | None = None
    retry_source: str | None = None
    work: str = ""
    event: Literal["context_overflowed"] = "context_overflowed"


@dataclass(frozen=True, kw_only=True)
class ToolCalled:
    """A tool call was answered. `denied`: the step may not use it, nothing ran. Few have `images`, and no other says
    that it has none."""

    tool_use_id: str
    name: str
    input: JsonObject
    output: str
    is_error: bool
    exit_code: int | None
    seconds: float
    denied: bool = False
    images: Annotated[list[ToolImage], Field(exclude_if=not_)] = field(default_factory=list)
    event: Literal["tool_call"] = "tool_call"


@dataclass(frozen=True, kw_only=True)
class UserMessage:
    """The engine said something more in the conversation: a format correction, a check question, a plea to go on.
    `format_retry` counts against the step's format retries."""

    text: str
    format_retry: bool
    errors: list[str] = field(default_factory=list)
    event: Literal["user_message"] = "user_message"


@dataclass(frozen=True, kw_only=True)
class CommandRan:
    """The process of a command step ended, with what it printed (flow.md §4.5)."""

    step_id: str
    argv: list[str]
    exit_code: int
    stdout: str
    stderr: str
    timed_out: bool
    started: bool
    error: str
    seconds: float
    event: Literal["command_ran"] = "command_ran"


@dataclass(frozen=True, kw_only=True)
class CheckJudged:
    """The outcome of a step's check, in the dialect with checks (flow.md §7). `message` is what was said about it."""

    step_id: str
    result: Literal["ok", "ng"]
    message: str
    event: Literal["check_judged"] = "check_judged"


@dataclass(frozen=True, kw_only=True)
class StepAnswered:
    """The gate has read the step's answer. `intent` is None when none was determined; `handoff` is what is stored."""

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
    """Where the flow goes: `to` is the next step, None when the flow closes or stops. `transition` is the history's
    word (flow.md §11); `by_prefix` marks the default `next`."""

    source: str
    to: str | None
    transition: str
    reason: str
    by_prefix: bool = False
    event: Literal["routed"] = "routed"


Event = (
    RunStarted
    | RunResumed
    | SnapshotTaken
    | SnapshotFailed
    | LayerReported
    | CanariesTried
    | HostsRequested
    | TextRemoved
    | ImagesRead
    | BaseChecked
    | IterationStarted
    | SchemaFailed
    | PromptRendered
    | ModelWaited
    | ModelTurned
    | AnswerLost
    | CacheRenewed
    | ToolStarted
    | ContextOverflowed
    | ModelChanged
    | RequestAdapted
    | ToolCalled
    | CommandRan
    | UserMessage
    | CheckJudged
    | StepAnswered
    | Routed
    | ValidatorRan
    | CompletionJudged
    | ApprovalAsked
    | ApprovalAnswered
    | FlowEnded
    | WorkCollected
    | EffectPlanned
    | EffectApplied
    | FailureReported
    | IssueCostSummed
    | Noted
    | RunFinished
)


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One line of the journal: the event, its number from 1, and the time in seconds since the epoch."""

    seq: int
    time: float
    event: Event
