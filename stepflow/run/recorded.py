"""What an earlier run left in the journal of its folder: what a run that goes on begins from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
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


@dataclass(frozen=True, kw_only=True)
class RunSnapshots:
    """The snapshots of a run: of its start, of where the flow and its last iteration began, and of where it stopped,
    before the call that was at work then. Empty when there is none; `names` are all that the latest builds on, with
    itself; `is_set_up` when the set-up was through; not `is_whole` when the last one failed."""

    start: str = ""
    flow_start: str = ""
    step_start: str = ""
    latest: str = ""
    names: tuple[str, ...] = ()
    is_set_up: bool = False
    is_whole: bool = True


@dataclass(frozen=True, kw_only=True)
class PreviousRun:
    """What stands in a run folder. `problem` says why it cannot go on, and is empty where it can; `run_id` is empty
    where that cannot be read. Of the events those before `safe` stand as they are."""

    run_id: str = ""
    events: tuple[Event, ...] = ()
    problem: str = ""

    @property
    def notice(self) -> str:
        """What people read where a new run begins in its folder; empty where this one goes on."""
        notice = "A new run begins; the earlier one in the run folder does not go on"
        return f"{notice}: {self.problem}." if self.problem else ""

    @property
    def started(self) -> RunStarted:
        """The run's beginning."""
        return next(event for event in self.events if isinstance(event, RunStarted))

    @property
    def images(self) -> tuple[IssueImage, ...]:
        """Those of the issue, as it was shown."""
        read = next((event for event in self.events if isinstance(event, ImagesRead)), None)
        return tuple(read.images) if read else ()

    @property
    def ended(self) -> RunFinished | None:
        """How it ended; None when it was stopped, or resumed since."""
        last = next((e for e in reversed(self.events) if isinstance(e, RunFinished | RunResumed)), None)
        return last if isinstance(last, RunFinished) else None

    @property
    def waits(self) -> bool:
        """Whether it ended to wait for approval."""
        return self.ended is not None and self.ended.outcome is Outcome.AWAITING_APPROVAL

    @cached_property
    def safe(self) -> int:
        """How many events stand as they are."""
        return safe_point(self.events)

    @cached_property
    def state(self) -> RunState:
        """The state that the flow goes on from. Turns that are played again are counted then; an answer that was lost
        or refused, and a renewal of the cache, are paid all the same."""
        unplayed = (
            event
            for number, event in enumerate(self.events[self.safe :], self.safe)
            if isinstance(event, AnswerLost | CacheRenewed) or number in self._refused
        )
        return fold(unplayed, fold(self.events[: self.safe]))

    @property
    def played(self) -> tuple[Event, ...]:
        """What is played again: all but a refusal that ended the run, since whoever resumes it asks again."""
        return tuple(
            event for number, event in enumerate(self.events) if number >= self.safe and number not in self._refused
        )

    @cached_property
    def _refused(self) -> frozenset[int]:
        """Where the turns stand whose refusal ended the run."""
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
        """The same without moves to words that a run with this setting does not make."""
        return tuple(event for event in self.played if not _is_not_made(event, structured_output))

    @cached_property
    def iteration(self) -> int:
        """The last iteration that began."""
        return fold(self.events).iteration

    @property
    def resumed(self) -> RunResumed:
        """The event that says that it goes on."""
        begun = next((event for event in self.played if isinstance(event, IterationStarted)), None)
        return RunResumed(
            events=len(self.events),
            from_seq=self.safe,
            iteration=self.iteration,
            step_id=begun.step_id if begun else "",
            attempts=dict(self.state.attempts),
            snapshot=self.snapshots.latest,
        )

    @cached_property
    def snapshots(self) -> RunSnapshots:
        """What the run's snapshots are. The first is taken at the start, the second after the set-up. Without one of
        them a run cannot go on: what a tool made of the tree is no start that guards may remember."""
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
        """What was written for the flow's last end, after a flow that has had so many iterations: none of it counts
        when the flow has gone on."""
        last = max((at for at, event in enumerate(self.events) if isinstance(event, IterationStarted)), default=0)
        written = tuple(event.receipt for event in self.events[last:] if isinstance(event, EffectApplied))
        return written if iterations == self.iteration else ()

    def position(self, scenario: Scenario) -> dict[str, int]:
        """How many turns of a scenario were played, by list. A failure that ended the run was played, too."""
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
        """Every turn of the model, by the step that asked, as a recording keeps them; without a refusal that was asked
        again, and answers that were asked for again in words, since nobody asks a scripted model so."""
        turns, step_id, in_words = list[tuple[str, ModelTurn]](), "", False
        for number, event in enumerate(self.events):
            match event:
                case RunStarted():
                    given = event.options.get("structured-output")
                    in_words = given == StructuredOutput.PROMPT
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
        """Give the agent's own verdict again what it was given before: each iteration that ended with an answer."""
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
    """The names until this one was there at last."""
    return names[: len(names) - names[::-1].index(name)] if name in names else []


def _is_not_made(event: Event, structured_output: StructuredOutput) -> bool:
    """Whether an event is a move to words that this setting makes unnecessary, or does not make by itself."""
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
