"""What happens in one attempt at a step, one frozen event each.

Takes: nothing. Gives: the events of the journal from a step's start to where its answer leads (cli.md).
May touch: nothing. The types are imported at run time because the journal reads these classes with pydantic.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from stepflow.domain.conversation import Usage
from stepflow.domain.json import JsonObject, JsonValue
from stepflow.domain.words import Intent, StepKind, Strategy

#: registry.md §8.4: this many schema failures in a row end the run.
MAX_STRIKES = 2


@dataclass(frozen=True, kw_only=True)
class IterationStarted:
    """A step attempt begins. `model` is empty for a command step."""

    iteration: int
    step_id: str
    kind: StepKind | None
    model: str
    event: Literal["iteration_started"] = "iteration_started"


@dataclass(frozen=True, kw_only=True)
class SchemaFailed:
    """The step's answer schema could not be resolved; the iteration ends without a model call (registry.md §8.4)."""

    step_id: str
    strikes: int
    reason: str
    event: Literal["schema_failed"] = "schema_failed"


@dataclass(frozen=True, kw_only=True)
class PromptRendered:
    """The conversation's opening: system prompt and the text blocks of the first message. `source` says which file
    or template the prompt came from; `retry` marks a retry prompt; `tools` are the effective tools."""

    system: str
    blocks: list[str]
    source: str
    retry: bool
    tools: list[str]
    event: Literal["prompt_rendered"] = "prompt_rendered"


@dataclass(frozen=True, kw_only=True)
class ModelWaited:
    """A model call failed in a way that passes; the run waits this many seconds and asks again (flow.md §10).
    `attempt` is the try that failed, of `tries` at most; `deadline_in` are the seconds that were left when the wait
    began, None without a deadline."""

    reason: str
    seconds: float
    attempt: int
    tries: int = 5
    deadline_in: float | None = None
    event: Literal["model_waited"] = "model_waited"


@dataclass(frozen=True, kw_only=True)
class ModelTurned:
    """The model answered one turn. `content` holds the API's content blocks."""

    content: list[JsonObject]
    stop_reason: str
    usage: Usage
    cost_usd: float | None
    model: str
    seconds: float
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
class ToolStarted:
    """A tool call begins. Without the `tool_call` that answers it the run was stopped while the tool was at work."""

    tool_use_id: str
    name: str
    event: Literal["tool_started"] = "tool_started"


@dataclass(frozen=True, kw_only=True)
class ContextCompacted:
    """The conversation did not fit the model: `results` old tool results, `characters` in all, were replaced by notes;
    `left` characters remain. `by_fault`: the service refused the call, so no turn stands for it."""

    reason: str
    by_fault: bool
    results: int
    characters: int
    left: int
    event: Literal["context_compacted"] = "context_compacted"


@dataclass(frozen=True, kw_only=True)
class ContextOutgrown:
    """The conversation did not fit the model and could not be made shorter: the step is begun again. `retry_prompt` is
    the one that the attempt began with; it is not used up."""

    step_id: str
    reason: str
    by_fault: bool
    retry_prompt: str | None = None
    retry_source: str | None = None
    event: Literal["context_outgrown"] = "context_outgrown"


@dataclass(frozen=True, kw_only=True)
class StrategyChosen:
    """From here on this model is asked for structured output in another way, since its service did not heed the one
    before (input structured-output `auto`). `by_fault`: the service refused the call, so no turn stands for it."""

    model: str
    strategy: Strategy
    reason: str
    by_fault: bool
    event: Literal["strategy_chosen"] = "strategy_chosen"


@dataclass(frozen=True, kw_only=True)
class ToolCalled:
    """A tool call was answered. `denied`: the step may not use it, nothing ran."""

    tool_use_id: str
    name: str
    input: JsonObject
    output: str
    is_error: bool
    exit_code: int | None
    seconds: float
    denied: bool = False
    event: Literal["tool_call"] = "tool_call"


@dataclass(frozen=True, kw_only=True)
class UserSpoke:
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
