"""A run's past, played again: ports that answer from what is recorded until it is used up.

The flow does not know that it is resumed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from stepflow.domain import event as events
from stepflow.domain.agent.agent_settings import ClimbCause, ModelChanged
from stepflow.domain.checkout import CommandRequest, CommandResult
from stepflow.domain.conversation import (
    ModelFault,
    ModelRequest,
    ModelTurn,
    Remedy,
    RequestAdapted,
    StopReason,
    ToolResult,
    ToolSpec,
    ToolUse,
)
from stepflow.domain.decision import ApprovalAnswered
from stepflow.domain.run import MAX_STRIKES
from stepflow.errors import InputError
from stepflow.ports import Ports

_PLAYED = (
    events.IterationStarted,
    events.PromptRendered,
    events.ModelTurned,
    events.ContextOverflowed,
    ModelChanged,
    RequestAdapted,
    events.ToolCalled,
    events.UserMessage,
    events.CommandRan,
    events.CheckJudged,
    events.StepAnswered,
    events.Routed,
)


def is_played(event: events.Event) -> bool:
    """Whether the flow itself records this in a step attempt, and so plays it again in the same order. What comes after
    an attempt, such as a validator's result and the change of the model that it leads to, happens anew."""
    return isinstance(event, _PLAYED) and not (isinstance(event, ModelChanged) and event.cause is ClimbCause.VALIDATOR)


INTERRUPTED = (
    "Interrupted; it may have run. The working tree is as it was before this call; what the call did elsewhere may "
    "have happened. Look before you repeat it."
)


def safe_point(recorded: Iterable[events.Event]) -> int:
    """How many events stand as they are: the state that they fold to is one from which the flow can go on. It lies
    before the last iteration that began, between two, or after a check before the first."""
    safe = 0
    for number, event in enumerate(recorded):
        match event:
            case events.IterationStarted():
                safe = number
            case events.RunStarted() | events.BaseChecked() | ApprovalAnswered() | events.CompletionJudged(done=False):
                safe = number + 1
            case events.Routed() if event.to is not None:
                safe = number + 1
            case events.SchemaFailed() if event.strikes < MAX_STRIKES:
                safe = number + 1
            case _:
                pass
    return safe


def replay(recorded: Iterable[events.Event], ports: Ports) -> Ports:
    """These ports, behind the events after the safe point."""
    past = Replay(recorded, ports)
    cache = past if ports.cache else None
    return replace(ports, journal=past, model=past, tools=past, commands=past, cache=cache)


class Replay:
    """Plays events again. What is recorded already is not written twice, nobody is asked for it, and nothing runs for
    it; what happens otherwise than it is recorded is an error. Validators have no record: they always run."""

    def __init__(self, recorded: Iterable[events.Event], ports: Ports) -> None:
        self._ports = ports
        self._left: deque[events.Event] = deque()
        self._notes: list[events.Noted] = []
        self._begun: events.ToolStarted | None = None
        self._has_asked = False
        #: Of a step that began in the past and may go on.
        self._tools: tuple[ToolSpec, ...] | None = None
        for event in recorded:
            if is_played(event):
                self._left.append(event)
                self._begun = None
            elif isinstance(event, events.Noted):
                self._notes.append(event)
            elif isinstance(event, events.ToolStarted):
                self._begun = event

    @property
    def _coming(self) -> events.Event | None:
        """The recorded event that must happen next; None when the past is used up."""
        return self._left[0] if self._left else None

    def append(self, event: events.Event) -> None:
        """Take one event of the flow's."""
        if is_played(event):
            if self._left and not self._is_newly_adapted(event):
                recorded = self._left.popleft()
                if type(recorded) is not type(event) or _gist(recorded) != _gist(event):
                    raise _misfit(recorded, event.event)
                return
            if not self._left:
                self._notes.clear()
        elif isinstance(event, events.Noted) and event in self._notes:
            self._notes.remove(event)
            return
        self._ports.journal.append(event)

    def _is_newly_adapted(self, event: events.Event) -> bool:
        """The setting structured-output may be `auto` now where it was not: what the past shows is then seen now."""
        return isinstance(event, RequestAdapted) and not isinstance(self._coming, RequestAdapted)

    def ask(self, request: ModelRequest) -> ModelTurn | ModelFault:
        """The recorded turn, or a new one."""
        match self._coming:
            case None:
                self._begin_step()
                self._has_asked = True
                return self._ports.model.ask(request)
            case events.ModelTurned() as turned:
                return turn_of(turned)
            case events.ContextOverflowed(by_fault=True) as refused:
                return ModelFault(reason=refused.reason, remedy=Remedy.SHORTEN)
            case RequestAdapted(by_fault=True) as refused:
                return ModelFault(reason=refused.reason, remedy=refused.remedy)
            case other:
                raise _misfit(other, events.ModelTurned.event)

    def while_waiting(self, look: Callable[[], None]) -> AbstractContextManager[None]:
        """Look as soon as the model was asked again: what was cached in the past may be gone."""
        cache = self._ports.cache
        return cache.while_waiting(look) if cache and self._has_asked else nullcontext()

    def renew(self, request: ModelRequest, number: int) -> ModelTurn | ModelFault | None:
        """Renew what is cached."""
        return self._ports.cache.renew(request, number) if self._ports.cache else None

    def begin_step(self, tools: tuple[ToolSpec, ...]) -> None:
        """What a step needs is started when the past is used up."""
        self._tools = tools

    def _begin_step(self) -> None:
        if self._tools is not None:
            tools, self._tools = self._tools, None
            self._ports.tools.begin_step(tools)

    def run_tool(self, use: ToolUse) -> ToolResult:
        """The recorded result; for the call that was at work when the run stopped, that it was; or a new one."""
        match self._coming:
            case None:
                begun, self._begun = self._begun, None
                if begun is not None and begun.tool_use_id == use.id:
                    return ToolResult(tool_use_id=use.id, text=INTERRUPTED, is_error=True)
                self._begin_step()
                return self._ports.tools.run_tool(use)
            case events.ToolCalled() as called:
                return ToolResult(
                    tool_use_id=use.id,
                    text=called.output,
                    is_error=called.is_error,
                    exit_code=called.exit_code,
                    seconds=called.seconds,
                    images=tuple(called.images),
                )
            case other:
                raise _misfit(other, events.ToolCalled.event)

    def end_step(self) -> None:
        """Nothing of a step that is played again is alive."""
        self._tools = None
        if self._coming is None:
            self._ports.tools.end_step()

    def run_command(self, request: CommandRequest) -> CommandResult:
        """The recorded result of a command step, or a new one."""
        match self._coming:
            case None:
                return self._ports.commands.run_command(request)
            case events.CommandRan() as ran:
                return CommandResult(
                    exit_code=ran.exit_code,
                    stdout=ran.stdout,
                    stderr=ran.stderr,
                    timed_out=ran.timed_out,
                    started=ran.started,
                    error=ran.error,
                    seconds=ran.seconds,
                )
            case other:
                raise _misfit(other, events.CommandRan.event)


def turn_of(turned: events.ModelTurned) -> ModelTurn:
    """The turn as the model gave it."""
    return ModelTurn(
        content=tuple(turned.content),
        stop_reason=StopReason(turned.stop_reason),
        usage=turned.usage,
        cost_usd=turned.cost_usd,
        model=turned.model,
        refusal=turned.refusal,
        cleared=turned.cleared,
        near_price_step=turned.near_price_step,
    )


def _misfit(recorded: events.Event, happens: str) -> InputError:
    """The journal tells of something else than what its own beginning leads to."""
    return InputError(
        f"The journal does not fit this agent: it continues with `{recorded.event}`, where `{happens}` must come.",
        hint="Start a new run with the input `resume: never`; the journal was changed, or another version wrote it.",
    )


def _gist(event: events.Event) -> object:  # noqa: PLR0911 - one return per event is the table
    """What of an event the flow's next moves depend on. Prompts and times may differ: limits may have been raised; and
    texts: of an escaped secret only the parsed text is free."""
    match event:
        case events.IterationStarted():
            return (event.iteration, event.step_id)
        case events.ToolCalled():
            return (event.tool_use_id, event.name, event.denied)
        case events.UserMessage():
            return event.format_retry
        case events.ContextOverflowed():
            return event.by_fault
        case ModelChanged():
            return (event.owner, event.to, event.cause)
        case RequestAdapted():
            return (event.model, event.remedy, event.by_fault)
        case events.StepAnswered():
            return (event.step_id, event.intent, event.target, sorted(event.handoff), event.violation is None)
        case events.Routed():
            return (event.source, event.to, event.transition)
        case _:
            return None
