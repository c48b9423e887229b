"""An earlier run, as its journal recorded it: what a resumed run starts from, and how its last iteration is played
again."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.metadata import version

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
from stepflow.domain.effect import ApprovalAnswered, Receipt
from stepflow.domain.event import Event, RunFinished, RunResumed, RunStarted
from stepflow.domain.flow import RunState, fold
from stepflow.domain.run import MAX_STRIKES, ImagesRead, IssueImage
from stepflow.domain.words import Outcome, StructuredOutput
from stepflow.errors import InputError
from stepflow.model.scenario import Scenario, played_out
from stepflow.ports import CustomVerdict, Ports

JOURNAL = "journal.jsonl"


@dataclass(frozen=True, kw_only=True)
class RunSnapshots:
    """The names of a run's snapshots; each is empty if it was not taken."""

    start: str = ""
    #: Where the flow began, and where its last iteration began.
    flow_start: str = ""
    step_start: str = ""
    #: Where the run stopped: before the tool call that was running, if there was one.
    latest: str = ""
    #: Every snapshot that the latest one builds on, and the latest one itself.
    names: tuple[str, ...] = ()
    #: Whether the setup had finished.
    is_set_up: bool = False
    #: False if the last snapshot failed.
    is_whole: bool = True


@dataclass(frozen=True, kw_only=True)
class PreviousRun:
    """The run that was found in a run folder."""

    #: Empty if it cannot be read.
    run_id: str = ""
    events: tuple[Event, ...] = ()
    #: Why it cannot be resumed; empty if it can.
    problem: str = ""

    @property
    def notice(self) -> str:
        """The message for people when a new run replaces this one; empty if this one is resumed."""
        notice = "A new run begins; the earlier one in the run folder cannot continue"
        return f"{notice}: {self.problem}." if self.problem else ""

    @property
    def started(self) -> RunStarted:
        """The event that started the run."""
        return next(event for event in self.events if isinstance(event, RunStarted))

    @property
    def images(self) -> tuple[IssueImage, ...]:
        """The images of the issue that the model was shown."""
        images_read = next((event for event in self.events if isinstance(event, ImagesRead)), None)
        return tuple(images_read.images) if images_read else ()

    @property
    def ended(self) -> RunFinished | None:
        """The event that ended the run; None if it was killed, or has been resumed since."""
        last = next((e for e in reversed(self.events) if isinstance(e, RunFinished | RunResumed)), None)
        return last if isinstance(last, RunFinished) else None

    @property
    def waits(self) -> bool:
        """Whether it waits for approval."""
        return self.ended is not None and self.ended.outcome is Outcome.AWAITING_APPROVAL

    @cached_property
    def safe(self) -> int:
        """How many events are final; the rest are replayed."""
        return safe_point(self.events)

    @cached_property
    def state(self) -> RunState:
        """The state from which the flow continues. It does not count turns that will be replayed, but it does count
        the cost of lost or refused answers and of cache renewals, which are not."""
        not_replayed = (
            event
            for number, event in enumerate(self.events[self.safe :], self.safe)
            if isinstance(event, events.AnswerLost | events.CacheRenewed) or number in self._refused
        )
        return fold(not_replayed, fold(self.events[: self.safe]))

    @property
    def played(self) -> tuple[Event, ...]:
        """The events to replay: all except a refusal that ended the run, because the resumed run asks again."""
        return tuple(
            event for number, event in enumerate(self.events) if number >= self.safe and number not in self._refused
        )

    @cached_property
    def _refused(self) -> frozenset[int]:
        """The positions of the turns whose refusal ended the run."""
        turned, refused = 0, set[int]()
        for number, event in enumerate(self.events):
            match event:
                case ModelTurn():
                    turned = number
                case events.FlowEnded(outcome=Outcome.MODEL_REFUSED):
                    refused.add(turned)
                case _:
                    pass
        return frozenset(refused)

    @cached_property
    def iteration(self) -> int:
        """The last iteration that began."""
        return fold(self.events).iteration

    @property
    def resumed(self) -> RunResumed:
        """The event to write when the run is resumed."""
        begun = next((event for event in self.played if isinstance(event, events.IterationStarted)), None)
        return RunResumed(
            events=len(self.events),
            from_seq=self.safe,
            iteration=self.iteration,
            step_id=begun.step_id if begun else "",
            attempts=dict(self.state.attempts),
            snapshot=self.snapshots.latest,
            stepflow_version=version("stepflow"),
        )

    @cached_property
    def snapshots(self) -> RunSnapshots:
        """The run's snapshots. The first is taken at the start, the second after the setup. Without both, the run
        cannot be resumed: guards must remember the tree from before any tool ran."""
        snapshots, before_call, names = RunSnapshots(), None, list[str]()
        for event in self.events:
            match event:
                case events.IterationStarted() if not snapshots.start:
                    return RunSnapshots(is_whole=False)
                case events.IterationStarted():
                    flow_start = snapshots.flow_start or snapshots.latest
                    snapshots = replace(snapshots, flow_start=flow_start, step_start=snapshots.latest)
                case events.SnapshotTaken():
                    names.append(event.name)
                    start, is_set_up = snapshots.start or event.name, bool(snapshots.start)
                    snapshots = replace(snapshots, start=start, latest=event.name, is_set_up=is_set_up, is_whole=True)
                case events.SnapshotFailed():
                    snapshots = replace(snapshots, is_whole=False)
                case RunResumed() if event.snapshot:
                    snapshots, before_call = replace(snapshots, latest=event.snapshot, is_whole=True), None
                    names = _up_to(event.snapshot, names)
                case events.ToolStarted():
                    before_call = snapshots
                case events.ToolCalled():
                    before_call = None
                case _:
                    pass
        last = before_call or snapshots
        return replace(last, names=tuple(dict.fromkeys(_up_to(last.latest, names))))

    def receipts(self, iterations: int) -> tuple[Receipt, ...]:
        """Return the receipts that were written when the flow last ended. They do not count if the flow, with this
        many `iterations`, has continued since."""
        last = max(
            (at for at, event in enumerate(self.events) if isinstance(event, events.IterationStarted)), default=0
        )
        written = tuple(event.receipt for event in self.events[last:] if isinstance(event, events.EffectApplied))
        return written if iterations == self.iteration else ()

    def position(self, scenario: Scenario) -> dict[str, int]:
        """Return how many turns of each list of a scenario were played, including a failure that ended the run."""
        queues = {queue: played_out(turns) for queue, turns in scenario.queues().items()}
        position = dict.fromkeys(queues, 0)
        queue = "turns"
        for event in self.events:
            match event:
                case events.IterationStarted():
                    queue = event.step_id if "turns" not in queues else "turns"
                    position.setdefault(queue, 0)
                case ModelTurn() | events.ModelWaited() | events.ContextOverflowed(by_fault=True):
                    position[queue] += 1
                case events.FlowEnded(outcome=Outcome.MODEL_FAILED):
                    turns = queues.get(queue, ())
                    position[queue] += position[queue] < len(turns) and turns[position[queue]].error is not None
                case _:
                    pass
        return position

    def turns(self) -> tuple[tuple[str, ModelTurn], ...]:
        """Return every turn of the model with its step, as a recording keeps them. Refusals that were asked again are
        left out, and so are answers that were requested again in words, which never happens to a scripted model."""
        turns, step_id, in_words = list[tuple[str, ModelTurn]](), "", False
        for number, event in enumerate(self.events):
            match event:
                case RunStarted():
                    in_words = event.options.get("structured-output") == StructuredOutput.PROMPT
                case RequestAdapted(remedy=Remedy.ASK_IN_WORDS):
                    in_words = True
                case events.IterationStarted():
                    step_id = event.step_id
                case ModelTurn() if number not in self._refused:
                    turns.append((step_id, event))
                case events.UserMessage(format_retry=True) if in_words and turns:
                    if turns[-1][1].stop_reason is not StopReason.MAX_TOKENS:
                        turns.pop()
                case _:
                    pass
        return tuple(turns)

    def feed(self, verdict: CustomVerdict) -> None:
        """Feed the agent's own verdict the same iterations again: each one that ended with an answer."""
        iteration, texts = 0, list[str]()
        for event in self.events[: self.safe]:
            match event:
                case events.IterationStarted():
                    iteration, texts = event.iteration, []
                case ModelTurn():
                    if text := event.text:
                        texts.append(text)
                case events.CommandRan():
                    texts = [event.stdout]
                case events.StepAnswered():
                    verdict.is_finished(iteration, tuple(texts), event.answer or None)
                case _:
                    pass


def _up_to(name: str, names: list[str]) -> list[str]:
    """Return the names up to the last occurrence of this one."""
    return names[: len(names) - names[::-1].index(name)] if name in names else []


_PLAYED = (
    events.IterationStarted,
    events.PromptRendered,
    ModelTurn,
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


def is_played(event: Event) -> bool:
    """Whether the flow itself records this in a step attempt, and so plays it again in the same order. What comes after
    an attempt, such as a validator's result and the change of the model that it leads to, happens anew."""
    return isinstance(event, _PLAYED) and not (isinstance(event, ModelChanged) and event.cause is ClimbCause.VALIDATOR)


INTERRUPTED = (
    "Interrupted; it may have run. The working tree is as it was before this call; what the call did elsewhere may "
    "have happened. Look before you repeat it."
)


def safe_point(recorded: Iterable[Event]) -> int:
    """How many events stand as they are: the state that they fold to is one from which the flow can go on. It lies
    before the last iteration that began, between two, or after a check before the first."""
    safe = 0
    for number, event in enumerate(recorded):
        match event:
            case events.IterationStarted():
                safe = number
            case RunStarted() | events.BaseChecked() | ApprovalAnswered() | events.CompletionJudged(done=False):
                safe = number + 1
            case events.Routed() if event.to is not None:
                safe = number + 1
            case events.SchemaFailed() if event.strikes < MAX_STRIKES:
                safe = number + 1
            case _:
                pass
    return safe


def replay(recorded: Iterable[Event], ports: Ports) -> Ports:
    """These ports, behind the events after the safe point."""
    past = Replay(recorded, ports)
    cache = past if ports.cache else None
    return replace(ports, journal=past, model=past, tools=past, commands=past, cache=cache)


class Replay:
    """Plays events again. What is recorded already is not written twice, nobody is asked for it, and nothing runs for
    it; what happens otherwise than it is recorded is an error. Validators have no record: they always run."""

    def __init__(self, recorded: Iterable[Event], ports: Ports) -> None:
        self._ports = ports
        self._left: deque[Event] = deque()
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
    def _coming(self) -> Event | None:
        """The recorded event that must happen next; None when the past is used up."""
        return self._left[0] if self._left else None

    def append(self, event: Event) -> None:
        """Take one event of the flow's."""
        if is_played(event):
            if self._left:
                recorded = self._left.popleft()
                if type(recorded) is not type(event) or _gist(recorded) != _gist(event):
                    raise _misfit(recorded, event.event)
                return
            self._notes.clear()
        elif isinstance(event, events.Noted) and event in self._notes:
            self._notes.remove(event)
            return
        self._ports.journal.append(event)

    def ask(self, request: ModelRequest) -> ModelTurn | ModelFault:
        """The recorded turn, or a new one."""
        match self._coming:
            case None:
                self._begin_step()
                self._has_asked = True
                return self._ports.model.ask(request)
            case ModelTurn() as turn:
                return turn
            case events.ContextOverflowed(by_fault=True) as refused:
                return ModelFault(reason=refused.reason, remedy=Remedy.SHORTEN)
            case RequestAdapted(by_fault=True) as refused:
                return ModelFault(reason=refused.reason, remedy=refused.remedy)
            case other:
                raise _misfit(other, ModelTurn.event)

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


def _misfit(recorded: Event, happens: str) -> InputError:
    """The journal tells of something else than what its own beginning leads to."""
    return InputError(
        f"The journal does not fit this agent: it continues with `{recorded.event}`, where `{happens}` must come.",
        hint="Start a new run with the input `resume: never`; the journal was changed, or another version wrote it.",
    )


def _gist(event: Event) -> object:  # noqa: PLR0911 - one return per event is the table
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
