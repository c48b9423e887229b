"""The loop's state: a fold of the run's events, whose size does not grow with the number of iterations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from types import MappingProxyType
from typing import Any, NamedTuple

from stepflow.domain.approval import ApprovalAnswered
from stepflow.domain.conversation import Remedy, RequestAdapted, Usage
from stepflow.domain.event import (
    AnswerLost,
    BaseChecked,
    CacheRenewed,
    CompletionJudged,
    ContextOverflowed,
    Event,
    FlowEnded,
    IterationStarted,
    ModelTurned,
    PromptRendered,
    Routed,
    RunFinished,
    RunResumed,
    RunStarted,
    SchemaFailed,
    StepAnswered,
    UserMessage,
    ValidatorRan,
)
from stepflow.domain.json import JsonValue, map_texts
from stepflow.domain.ladder import ClimbCause, ModelChanged
from stepflow.domain.text import strip_unseen
from stepflow.domain.words import FailureAction, Intent, Outcome

_NONE: Mapping[str, Any] = MappingProxyType({})
#: flow.md §7: the transition of a check's `retry`, which has a budget in each visit.
RETRY = "retry"


class RunState(NamedTuple):
    """Where a run stands.

    `step_id` runs next, or is running; `strikes` are schema failures in a row; `retry_prompt` replaces the next
    step prompt; `repeat_reason` and `repeats` say why and how often in a row the step repeats itself; `visits`
    counts the beginnings of each step, `attempts` the failures of each validation entry; `turns` and `format_retries`
    belong to the iteration in flight; `unpriced` is true once a turn's cost was unknown. A visit of a step begins when
    another step moves to it: `runs` are the answers it gave since then, `retries` how often its check's `retry` sent it
    back. `answers` counts the answers of all steps. `remedies` says what each model's service does not take, as far as
    that is known; `rungs` where each ladder stands that was climbed, by its owner; `work_before` is what a step did in
    a conversation that ended before its answer, until it begins again.
    `base_checks` are the validators as they were before the first
    call of the model, by their commands. `source` is the step whose `transition` led to this one, both empty at the
    entry. `approved` are steps that somebody let begin, until an answer leads to them again; `rejection` says who did
    not let one begin, and why.
    """

    step_id: str = ""
    iteration: int = 0
    strikes: int = 0
    retry_prompt: str | None = None
    retry_source: str | None = None
    repeat_reason: str = ""
    repeats: int = 0
    handoff: Mapping[str, Mapping[str, JsonValue]] = _NONE
    visits: Mapping[str, int] = _NONE
    attempts: Mapping[str, int] = _NONE
    runs: int = 0
    retries: int = 0
    answers: int = 0
    turns: int = 0
    format_retries: int = 0
    usage: Usage = Usage()
    cost_usd: float = 0.0
    unpriced: bool = False
    violations: int = 0
    remedies: Mapping[str, frozenset[Remedy]] = _NONE
    rungs: Mapping[str, str] = _NONE
    work_before: str = ""
    base_checks: Mapping[str, BaseChecked] = _NONE
    source: str = ""
    transition: str = ""
    approved: frozenset[str] = frozenset()
    rejection: str | None = None
    intent: Intent | None = None
    outcome: Outcome | None = None


def advance(state: RunState, event: Event) -> RunState:  # noqa: PLR0911, PLR0912 - one return per event is the table
    """The state after one event. Events that change nothing give the same object back."""
    match event:
        case RunStarted():
            return state._replace(step_id=event.entry_step)
        case RunResumed():
            return state._replace(attempts=dict(event.attempts), outcome=None)
        case BaseChecked():
            return state._replace(base_checks={**state.base_checks, event.command: event})
        case IterationStarted():
            return _begun(state, event)
        case SchemaFailed():
            return state._replace(strikes=event.strikes)
        case PromptRendered():
            return state._replace(strikes=0, retry_prompt=None, retry_source=None, work_before="")
        case ModelTurned():
            return _paid(state, event)._replace(turns=state.turns + 1)
        case AnswerLost() | CacheRenewed():
            return _paid(state, event)
        case ContextOverflowed():
            return _begun_again(state, event)
        case ModelChanged():
            changed = state._replace(rungs={**state.rungs, event.owner: event.to})
            return changed if event.cause is ClimbCause.VALIDATOR else _begun_again(changed, event)
        case RequestAdapted():
            known = state.remedies.get(event.model, frozenset())
            return state._replace(remedies={**state.remedies, event.model: known | {event.remedy}})
        case UserMessage(format_retry=True):
            return state._replace(format_retries=state.format_retries + 1)
        case StepAnswered():
            return _answered(state, event)
        case Routed():
            return _routed(state, event)
        case ValidatorRan():
            return _validated(state, event)
        case CompletionJudged():
            return _judged(state, event)
        case ApprovalAnswered():
            return _agreed(state, event)
        case FlowEnded() | RunFinished():
            return state._replace(outcome=event.outcome)
        case _:
            return state


def fold(events: Iterable[Event], state: RunState | None = None) -> RunState:
    """The state after all these events."""
    return reduce(advance, events, state or RunState())


def _paid(state: RunState, event: ModelTurned | AnswerLost | CacheRenewed) -> RunState:
    return state._replace(
        usage=state.usage + event.usage,
        cost_usd=state.cost_usd + (event.cost_usd or 0.0),
        unpriced=state.unpriced or event.cost_usd is None,
    )


def _begun(state: RunState, event: IterationStarted) -> RunState:
    return state._replace(
        iteration=event.iteration,
        step_id=event.step_id,
        visits={**state.visits, event.step_id: state.visits.get(event.step_id, 0) + 1},
        turns=0,
        format_retries=0,
        intent=None,
    )


def _begun_again(state: RunState, event: ContextOverflowed | ModelChanged) -> RunState:
    return state._replace(
        intent=Intent.REPEAT,
        retry_prompt=event.retry_prompt,
        retry_source=event.retry_source,
        work_before=event.work,
    )


def _answered(state: RunState, event: StepAnswered) -> RunState:
    # What people approve, what the digest covers and what the next step is shown are the same text.
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


def _routed(state: RunState, event: Routed) -> RunState:
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


def _agreed(state: RunState, event: ApprovalAnswered) -> RunState:
    if event.digest is not None:
        return state._replace(approved=state.approved | {event.step_id})
    why = f": {strip_unseen(event.reason)}" if event.reason else ""
    return state._replace(rejection=f'{event.actor} rejected the plan before step "{event.step_id}"{why}')


def _visit(state: RunState, *, begins: bool, retried: bool = False) -> RunState:
    """The state with the counters of the visit: those of another step's begin at zero."""
    return state._replace(runs=0, retries=0) if begins else state._replace(retries=state.retries + retried)


def _validated(state: RunState, event: ValidatorRan) -> RunState:
    if event.passed or event.action is FailureAction.SKIP:
        return state
    return state._replace(attempts={**state.attempts, event.entry: event.attempt})


def _judged(state: RunState, event: CompletionJudged) -> RunState:
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
