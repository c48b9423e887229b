"""The flow: what the gate, the router and the completion decide, how it ends, and its state, which is a fold of the
run's events. The size of the state does not grow with the number of iterations."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from types import MappingProxyType
from typing import Any, NamedTuple

from stepflow.domain import event as events
from stepflow.domain.agent.agent_settings import ClimbCause, ModelChanged
from stepflow.domain.checkout import TreeState
from stepflow.domain.conversation import ModelTurn, Remedy, RequestAdapted, Usage
from stepflow.domain.effect import ApprovalAnswered
from stepflow.domain.end import End
from stepflow.domain.json import JsonObject, JsonValue, map_texts
from stepflow.domain.text import strip_unseen
from stepflow.domain.words import FailureAction, Intent, Outcome


@dataclass(frozen=True, kw_only=True)
class FormatError:
    """A mismatch between an answer and its schema. `path` is like `items[2].name`, or `(answer)` for the root."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


@dataclass(frozen=True, kw_only=True)
class Decided:
    """The gate found an allowed intent."""

    intent: Intent
    reason: str
    target: str | None = None
    #: The history's name for the decision if it differs from the intent (flow.md §7).
    transition: str | None = None
    #: Keyed by last segment and by full path (prompts.md §6.1).
    handoff: Mapping[str, JsonValue] = field(default_factory=dict)
    #: Handoff fields that the answer does not contain.
    missing: tuple[str, ...] = ()
    #: Set if `failFast: false` was used.
    violation: str | None = None

    @property
    def word(self) -> str:
        """Return the history's name for this decision (flow.md §11)."""
        return self.transition or self.intent


@dataclass(frozen=True, kw_only=True)
class Undecided:
    """The gate could not determine an intent. `reason` names what was found and what is allowed; `lacking` says in
    general terms what is missing."""

    reason: str
    lacking: str = "no intent in the answer"


Decision = Decided | Undecided


@dataclass(frozen=True, kw_only=True)
class GoTo:
    """Run this step next. `by_prefix`: the step is the default, `initial.X` → `continuation.X` (flow.md §6.1)."""

    step_id: str
    by_prefix: bool = False


@dataclass(frozen=True, kw_only=True)
class Close:
    """Start the completion procedure."""


#: An end is the end of the run, without success.
Move = GoTo | Close | End


def find_continuation(step_id: str, steps: Container[str]) -> str | None:
    """Return the default `next` of `initial.X`: `continuation.X`, if that step exists."""
    name = step_id.removeprefix("initial.")
    target = f"continuation.{name}"
    return target if name != step_id and target in steps else None


@dataclass(frozen=True, kw_only=True)
class ValidatorFailure:
    """A failed validator and the data for its retry prompt (prompts.md §9.3). `values` holds the extracted
    parameters."""

    validator: str
    pattern: str
    description: str
    error: str
    exit_code: int
    stdout: str
    stderr: str
    attempt: int
    max_attempts: int
    values: JsonObject = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Violation:
    """A boundary rule that a closing breaks. `message` names the rule and what breaks it; `advice` is for the agent,
    `hint` for people. If `refuses` is set, the run ends; otherwise the boundary only leaves something out."""

    message: str
    advice: str
    hint: str = ""
    refuses: bool = True


@dataclass(frozen=True, kw_only=True)
class Done:
    """No check is left. `validated` is false if a failed validator was skipped. `closing` is the state that the
    validators checked, None without validators."""

    validated: bool
    closing: TreeState | None = None


@dataclass(frozen=True, kw_only=True)
class NotDone:
    """A validator failed and the entry has attempts left: the flow continues with a retry prompt."""

    failure: ValidatorFailure


#: An end is `validation_failed` if a validator failed. It is `refused` if what the run would push breaks a rule of the
#: boundary, or differs from what the passing validators checked.
Verdict = Done | NotDone | End


_NONE: Mapping[str, Any] = MappingProxyType({})
#: flow.md §7: the transition of a check's `retry`, which has a limit per visit.
RETRY = "retry"


class RunState(NamedTuple):
    """The current position of a run and its counters.

    A visit of a step begins when the flow moves to it from another step.
    """

    #: The step that runs next or is running.
    step_id: str = ""
    iteration: int = 0
    #: Consecutive schema failures.
    strikes: int = 0
    #: Replaces the next step prompt.
    retry_prompt: str | None = None
    retry_source: str | None = None
    #: Why the step repeats itself; `repeats` counts how often in a row.
    repeat_reason: str = ""
    repeats: int = 0
    handoff: Mapping[str, Mapping[str, JsonValue]] = _NONE
    #: How often each step has begun.
    visits: Mapping[str, int] = _NONE
    #: Failures of each validation entry.
    attempts: Mapping[str, int] = _NONE
    #: Answers of the step in this visit.
    runs: int = 0
    #: How often the check's `retry` sent the step back in this visit.
    retries: int = 0
    #: Answers of all steps.
    answers: int = 0
    #: Model turns in the current iteration; `format_retries` also belongs to it.
    turns: int = 0
    format_retries: int = 0
    usage: Usage = Usage()
    cost_usd: float = 0.0
    #: True once the cost of a turn was unknown.
    unpriced: bool = False
    violations: int = 0
    #: Per model, what its service is known not to accept.
    remedies: Mapping[str, frozenset[Remedy]] = _NONE
    #: The current rung of each ladder that was climbed, by owner.
    rungs: Mapping[str, str] = _NONE
    #: What the step did in a conversation that ended before the answer; kept until the step begins again.
    work_before: str = ""
    #: Validator results from before the first model call, by command.
    base_checks: Mapping[str, events.BaseChecked] = _NONE
    #: The step whose `transition` led to this one; both are empty at the entry step.
    source: str = ""
    transition: str = ""
    #: Steps that a person approved; an approval expires when an answer leads to the step again.
    approved: frozenset[str] = frozenset()
    #: Who rejected the plan before a step, and why.
    rejection: str | None = None
    intent: Intent | None = None
    outcome: Outcome | None = None


def advance(state: RunState, event: events.Event) -> RunState:  # noqa: PLR0911, PLR0912 - one return per event is the table
    """Return the state after one event. An event that changes nothing returns the same object."""
    match event:
        case events.RunStarted():
            return state._replace(step_id=event.entry_step)
        case events.RunResumed():
            return state._replace(attempts=dict(event.attempts), outcome=None)
        case events.BaseChecked():
            return state._replace(base_checks={**state.base_checks, event.command: event})
        case events.IterationStarted():
            return _begin_iteration(state, event)
        case events.SchemaFailed():
            return state._replace(strikes=event.strikes)
        case events.PromptRendered():
            return state._replace(strikes=0, retry_prompt=None, retry_source=None, work_before="")
        case ModelTurn():
            return _paid(state, event)._replace(turns=state.turns + 1)
        case events.AnswerLost() | events.CacheRenewed():
            return _paid(state, event)
        case events.ContextOverflowed():
            return _begun_again(state, event)
        case ModelChanged():
            changed = state._replace(rungs={**state.rungs, event.owner: event.to})
            return changed if event.cause is ClimbCause.VALIDATOR else _begun_again(changed, event)
        case RequestAdapted():
            known = state.remedies.get(event.model, frozenset())
            return state._replace(remedies={**state.remedies, event.model: known | {event.remedy}})
        case events.UserMessage(format_retry=True):
            return state._replace(format_retries=state.format_retries + 1)
        case events.StepAnswered():
            return _take_answer(state, event)
        case events.Routed():
            return _take_route(state, event)
        case events.ValidatorRan(passed=False) if event.action is not FailureAction.SKIP:
            return state._replace(attempts={**state.attempts, event.entry: event.attempt})
        case events.CompletionJudged():
            return _take_judgment(state, event)
        case ApprovalAnswered():
            return _take_approval(state, event)
        case events.FlowEnded() | events.RunFinished():
            return state._replace(outcome=event.outcome)
        case _:
            return state


def fold(past: Iterable[events.Event], state: RunState | None = None) -> RunState:
    """Return the state after all these events."""
    return reduce(advance, past, state or RunState())


def _paid(state: RunState, event: ModelTurn | events.AnswerLost | events.CacheRenewed) -> RunState:
    return state._replace(
        usage=state.usage + event.usage,
        cost_usd=state.cost_usd + (event.cost_usd or 0.0),
        unpriced=state.unpriced or event.cost_usd is None,
    )


def _begin_iteration(state: RunState, event: events.IterationStarted) -> RunState:
    return state._replace(
        iteration=event.iteration,
        step_id=event.step_id,
        visits={**state.visits, event.step_id: state.visits.get(event.step_id, 0) + 1},
        turns=0,
        format_retries=0,
        intent=None,
    )


def _begun_again(state: RunState, event: events.ContextOverflowed | ModelChanged) -> RunState:
    return state._replace(
        intent=Intent.REPEAT,
        retry_prompt=event.retry_prompt,
        retry_source=event.retry_source,
        work_before=event.work,
    )


def _take_answer(state: RunState, event: events.StepAnswered) -> RunState:
    # People approve, the digest covers, and the next step receives the same text.
    seen = {key: map_texts(value, strip_unseen) for key, value in event.handoff.items()}
    stored = {**state.handoff.get(event.step_id, {}), **seen}
    return state._replace(
        strikes=0,
        retry_prompt=None,
        retry_source=None,
        intent=event.intent,
        runs=state.runs + 1,
        answers=state.answers + 1,
        violations=state.violations + bool(event.violation),
        handoff={**state.handoff, event.step_id: stored} if stored else state.handoff,
    )


def _take_route(state: RunState, event: events.Routed) -> RunState:
    if event.to is None:
        return state
    stays = event.to == event.source and state.intent is Intent.REPEAT
    return _visit(state, begins=event.to != event.source, retried=event.transition == RETRY)._replace(
        step_id=event.to,
        source=event.source,
        transition=event.transition,
        approved=state.approved - {event.to},
        repeat_reason=event.reason if stays else "",
        repeats=state.repeats + 1 if stays else 0,
    )


def _take_approval(state: RunState, event: ApprovalAnswered) -> RunState:
    if event.digest is not None:
        return state._replace(approved=state.approved | {event.step_id})
    why = f": {strip_unseen(event.reason)}" if event.reason else ""
    return state._replace(rejection=f'{event.actor} rejected the plan before step "{event.step_id}"{why}')


def _visit(state: RunState, *, begins: bool, retried: bool = False) -> RunState:
    """Return the state with the counters of the visit updated; they restart at zero for another step."""
    return state._replace(runs=0, retries=0) if begins else state._replace(retries=state.retries + retried)


def _take_judgment(state: RunState, event: events.CompletionJudged) -> RunState:
    if event.done:
        return state._replace(attempts={**state.attempts, event.entry: 0}) if event.validated else state
    return _visit(state, begins=event.step_id != state.step_id)._replace(
        step_id=event.step_id,
        source=state.step_id,
        transition=Intent.REPEAT,
        retry_prompt=event.retry_prompt,
        retry_source=event.retry_source,
        repeat_reason="",
        repeats=0,
    )
