"""An earlier run, as its journal recorded it: what a resumed run starts from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from importlib.metadata import version
from typing import assert_never

from stepflow.domain.conversation import ModelTurn, Remedy, RequestAdapted, StopReason
from stepflow.domain.effect import Receipt
from stepflow.domain.event import (
    AnswerLost,
    CacheRenewed,
    CommandRan,
    ContextOverflowed,
    EffectApplied,
    Event,
    FlowEnded,
    IterationStarted,
    ModelTurned,
    ModelWaited,
    RunFinished,
    RunResumed,
    RunStarted,
    SnapshotFailed,
    SnapshotTaken,
    StepAnswered,
    ToolCalled,
    ToolStarted,
    UserMessage,
)
from stepflow.domain.run import ImagesRead, IssueImage
from stepflow.domain.state import RunState, fold
from stepflow.domain.words import Outcome, StructuredOutput
from stepflow.journal.replay import safe_point, turn_of
from stepflow.model.scenario import Scenario, played_out
from stepflow.ports import CustomVerdict

JOURNAL = "journal.jsonl"


def own_version() -> str:
    """Return the version of this stepflow."""
    return version("stepflow")


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
            if isinstance(event, AnswerLost | CacheRenewed) or number in self._refused
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
                case ModelTurned():
                    turned = number
                case FlowEnded(outcome=Outcome.MODEL_REFUSED):
                    refused.add(turned)
                case _:
                    pass
        return frozenset(refused)

    def to_play(self, structured_output: StructuredOutput) -> tuple[Event, ...]:
        """The events to replay, without switches to schemas in words that a run with this setting does not make."""
        return tuple(event for event in self.played if not _is_obsolete_switch(event, structured_output))

    @cached_property
    def iteration(self) -> int:
        """The last iteration that began."""
        return fold(self.events).iteration

    @property
    def resumed(self) -> RunResumed:
        """The event to write when the run is resumed."""
        begun = next((event for event in self.played if isinstance(event, IterationStarted)), None)
        return RunResumed(
            events=len(self.events),
            from_seq=self.safe,
            iteration=self.iteration,
            step_id=begun.step_id if begun else "",
            attempts=dict(self.state.attempts),
            snapshot=self.snapshots.latest,
            stepflow_version=own_version(),
        )

    @cached_property
    def snapshots(self) -> RunSnapshots:
        """The run's snapshots. The first is taken at the start, the second after the setup. Without both, the run
        cannot be resumed: guards must remember the tree from before any tool ran."""
        snapshots, before_call, names = RunSnapshots(), None, list[str]()
        for event in self.events:
            match event:
                case IterationStarted() if not snapshots.start:
                    return RunSnapshots(is_whole=False)
                case IterationStarted():
                    flow_start = snapshots.flow_start or snapshots.latest
                    snapshots = replace(snapshots, flow_start=flow_start, step_start=snapshots.latest)
                case SnapshotTaken():
                    names.append(event.name)
                    start, is_set_up = snapshots.start or event.name, bool(snapshots.start)
                    snapshots = replace(snapshots, start=start, latest=event.name, is_set_up=is_set_up, is_whole=True)
                case SnapshotFailed():
                    snapshots = replace(snapshots, is_whole=False)
                case RunResumed() if event.snapshot:
                    snapshots, before_call = replace(snapshots, latest=event.snapshot, is_whole=True), None
                    names = _up_to(event.snapshot, names)
                case ToolStarted():
                    before_call = snapshots
                case ToolCalled():
                    before_call = None
                case _:
                    pass
        last = before_call or snapshots
        return replace(last, names=tuple(dict.fromkeys(_up_to(last.latest, names))))

    def receipts(self, iterations: int) -> tuple[Receipt, ...]:
        """Return the receipts that were written when the flow last ended. They do not count if the flow, with this
        many `iterations`, has continued since."""
        last = max((at for at, event in enumerate(self.events) if isinstance(event, IterationStarted)), default=0)
        written = tuple(event.receipt for event in self.events[last:] if isinstance(event, EffectApplied))
        return written if iterations == self.iteration else ()

    def position(self, scenario: Scenario) -> dict[str, int]:
        """Return how many turns of each list of a scenario were played, including a failure that ended the run."""
        queues = {queue: played_out(turns) for queue, turns in scenario.queues().items()}
        position = dict.fromkeys(queues, 0)
        queue = "turns"
        for event in self.events:
            match event:
                case IterationStarted():
                    queue = event.step_id if "turns" not in queues else "turns"
                    position.setdefault(queue, 0)
                case ModelTurned() | ModelWaited() | ContextOverflowed(by_fault=True):
                    position[queue] += 1
                case FlowEnded(outcome=Outcome.MODEL_FAILED):
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
                case IterationStarted():
                    step_id = event.step_id
                case ModelTurned() if number not in self._refused:
                    turns.append((step_id, turn_of(event)))
                case UserMessage(format_retry=True) if in_words and turns:
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
                case IterationStarted():
                    iteration, texts = event.iteration, []
                case ModelTurned():
                    if text := turn_of(event).text:
                        texts.append(text)
                case CommandRan():
                    texts = [event.stdout]
                case StepAnswered():
                    verdict.is_finished(iteration, tuple(texts), event.answer or None)
                case _:
                    pass


def _up_to(name: str, names: list[str]) -> list[str]:
    """Return the names up to the last occurrence of this one."""
    return names[: len(names) - names[::-1].index(name)] if name in names else []


def _is_obsolete_switch(event: Event, structured_output: StructuredOutput) -> bool:
    """Whether an event is a switch to schemas in words that this setting makes unnecessary or does not allow."""
    if not isinstance(event, RequestAdapted) or event.remedy is not Remedy.ASK_IN_WORDS:
        return False
    match structured_output:
        case StructuredOutput.AUTO:
            return False
        case StructuredOutput.NATIVE:
            return not event.by_fault
        case StructuredOutput.PROMPT:
            return True
        case _:
            assert_never(structured_output)
