"""An earlier run, as its journal recorded it: what a resumed run starts from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from importlib.metadata import version

from stepflow.domain import event as events
from stepflow.domain.conversation import (
    ModelTurn,
    Remedy,
    RequestAdapted,
    StopReason,
    ToolCall,
)
from stepflow.domain.effect import Receipt
from stepflow.domain.event import Event, RunFinished, RunResumed, RunStarted
from stepflow.domain.flow import RunState, fold
from stepflow.domain.run import ImagesRead, IssueImage
from stepflow.domain.words import Outcome, StructuredOutput
from stepflow.engine.resumption import StoppedFlow, fold_stopped
from stepflow.model.scenario import Scenario, played_out

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
    def flow(self) -> StoppedFlow:
        """Where the flow goes on."""
        return fold_stopped(self.events)

    @property
    def state(self) -> RunState:
        """The state before the iteration that was under way."""
        return self.flow.state

    @cached_property
    def iteration(self) -> int:
        """The last iteration that began."""
        return fold(self.events).iteration

    @property
    def resumed(self) -> RunResumed:
        """The event to write when the run is resumed."""
        begun = next((event for event in self.flow.iteration if isinstance(event, events.IterationStarted)), None)
        return RunResumed(
            events=len(self.events),
            from_seq=self.flow.folded,
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
                case ToolCall():
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
        for event in self.events:
            match event:
                case RunStarted():
                    in_words = event.options.get("structured-output") == StructuredOutput.PROMPT
                case RequestAdapted(remedy=Remedy.ASK_IN_WORDS):
                    in_words = True
                case events.IterationStarted():
                    step_id = event.step_id
                case ModelTurn():
                    turns.append((step_id, event))
                case events.UserMessage(format_retry=True) if in_words and turns:
                    if turns[-1][1].stop_reason is not StopReason.MAX_TOKENS:
                        turns.pop()
                case events.FlowEnded(outcome=Outcome.MODEL_REFUSED) if turns:
                    turns.pop()
                case _:
                    pass
        return tuple(turns)


def _up_to(name: str, names: list[str]) -> list[str]:
    """Return the names up to the last occurrence of this one."""
    return names[: len(names) - names[::-1].index(name)] if name in names else []
