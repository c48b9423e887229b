"""Where a stopped flow goes on: the fold of its events up to the last iteration, and the events of that iteration,
which are its conversation."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from stepflow.domain import event as events
from stepflow.domain.agent.agent_settings import ClimbCause, ModelChanged
from stepflow.domain.checkout import CommandResult
from stepflow.domain.conversation import ModelTurn, RequestAdapted, ToolCall
from stepflow.domain.effect import ApprovalAnswered
from stepflow.domain.event import Event
from stepflow.domain.flow import RunState, advance
from stepflow.domain.run import MAX_STRIKES
from stepflow.domain.words import Outcome
from stepflow.errors import InputError


@dataclass(frozen=True, kw_only=True)
class StoppedFlow:
    """A flow that a stopped process has begun."""

    #: The state before the iteration that was under way, or between two. It has every cost but those of the turns in
    #: that iteration.
    state: RunState
    #: How many events led to the state.
    folded: int
    #: The events of the iteration that was under way; none between two.
    iteration: tuple[Event, ...]


def fold_stopped(recorded: Iterable[Event]) -> StoppedFlow:
    """Fold the events of a flow that has stopped. A refusal that ended it is paid, and the model is asked again."""
    now = state = RunState()
    folded, iteration = 0, list[Event]()
    for number, event in enumerate(recorded):
        before, now = now, advance(now, event)
        match event:
            case events.IterationStarted():
                state, folded, iteration = before, number, [event]
            case events.AnswerLost() | events.CacheRenewed():
                state = advance(state, event)
            case events.FlowEnded(outcome=Outcome.MODEL_REFUSED):
                turns = [at for at, each in enumerate(iteration) if isinstance(each, ModelTurn)]
                state = advance(state, iteration.pop(turns[-1])) if turns else state
            case _ if _ends_iteration(event):
                state, folded, iteration = now, number + 1, []
            case _ if folded:
                iteration.append(event)
            case _:
                pass
    return StoppedFlow(state=state, folded=folded, iteration=tuple(iteration))


def _ends_iteration(event: Event) -> bool:
    """Return whether the next iteration can begin after this event."""
    match event:
        case events.RunStarted() | events.BaseChecked() | ApprovalAnswered() | events.CompletionJudged(done=False):
            return True
        case events.Routed():
            return event.to is not None
        case events.SchemaFailed():
            return event.strikes < MAX_STRIKES
        case _:
            return False


_OF_ATTEMPT = (
    events.IterationStarted,
    events.PromptRendered,
    ModelTurn,
    events.ContextOverflowed,
    ModelChanged,
    RequestAdapted,
    ToolCall,
    events.UserMessage,
    CommandResult,
    events.CheckJudged,
    events.StepAnswered,
    events.Routed,
)


def is_of_attempt(event: Event) -> bool:
    """Return whether the event is part of a step's attempt. Whatever follows an attempt, such as the result of a
    validator, happens anew in a resumed run."""
    return isinstance(event, _OF_ATTEMPT) and not (
        isinstance(event, ModelChanged) and event.cause is ClimbCause.VALIDATOR
    )


class WrittenEvents:
    """The events of the iteration under way that a stopped process has written. None of them is written again."""

    def __init__(self, iteration: Iterable[Event] = ()) -> None:
        self._waiting, self._notes = deque[Event](), list[events.Noted]()
        #: The id of the tool call that was running when the process stopped; empty without one.
        self.interrupted_call = ""
        for event in iteration:
            if is_of_attempt(event):
                self._waiting.append(event)
                self.interrupted_call = ""
            elif isinstance(event, events.Noted):
                self._notes.append(event)
            elif isinstance(event, events.ToolStarted):
                self.interrupted_call = event.tool_use_id

    @property
    def next(self) -> Event | None:
        """The event that must come next; None once every one has come."""
        return self._waiting[0] if self._waiting else None

    def demand_none_before(self, expected: str) -> None:
        """Raise `InputError` if another event must come before something that happens outside."""
        if self._waiting:
            raise misfit(self._waiting[0], expected)

    def take(self, event: Event) -> Event | None:
        """Return the written form of an event of the flow; None if the event is new. Raises `InputError` if another
        one must come."""
        if isinstance(event, events.Noted):
            if event not in self._notes:
                return None
            self._notes.remove(event)
            return event
        if not is_of_attempt(event):
            return None
        if not self._waiting:
            self._notes.clear()
            return None
        written = self._waiting.popleft()
        if type(written) is not type(event):
            raise misfit(written, event.event)
        return written


def misfit(written: Event, expected: str) -> InputError:
    """Return the error for a journal that cannot have been written by this flow."""
    return InputError(
        f"The journal does not fit this agent: it continues with `{written.event}`, where `{expected}` must come.",
        hint="Start a new run with the input `resume: never`; the journal was changed, or another version wrote it.",
    )
