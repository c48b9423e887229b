"""What an earlier run in the same folder left behind, read from its journal."""

from __future__ import annotations

import os
import re
import secrets
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from stepflow.domain.conversation import ModelTurn, StopReason
from stepflow.domain.effect import EffectKind, EffectStatus, Receipt
from stepflow.domain.event import (
    AnswerLost,
    CommandRan,
    ContextCompacted,
    ContextOverflowed,
    EffectApplied,
    FailureReported,
    FlowEnded,
    IssueCostSummed,
    IterationStarted,
    ModelTurned,
    ModelWaited,
    Noted,
    RunFinished,
    RunResumed,
    RunStarted,
    SnapshotFailed,
    SnapshotTaken,
    StepAnswered,
    StrategyChosen,
    ToolCalled,
    ToolStarted,
    UserMessage,
    ValidatorRan,
    WorkCollected,
)
from stepflow.domain.words import Outcome, StructuredOutput
from stepflow.errors import InputError
from stepflow.journal.reader import read_journal
from stepflow.journal.replay import turn_of
from stepflow.journal.writer import hold_alone

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from stepflow.domain.event import Event
    from stepflow.domain.json import JsonObject
    from stepflow.model.scenario import Turn

#: What the run itself writes into its folder.
OWN_FILES = frozenset(
    {
        "journal.jsonl",
        "log.jsonl",
        *("report.json", "report.json.part"),
        *("report.html", "report.html.part"),
        *("effects.json", "effects.json.part"),
        "work.bundle",
        "snapshots",
    }
)
#: What a run names itself and the delimiter of its data; both go into names and texts of ours.
RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
NONCE = re.compile(r"[0-9a-f]{24}")
SNAPSHOT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
#: What a receipt names goes into our comment's marker and into the job's outputs, which scripts read.
COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
ADDRESS = re.compile(r"https?://[A-Za-z0-9._~:/?#@!&*+,;=%()-]{1,2000}")
BRANCH = re.compile(r"[A-Za-z0-9._/+@=-]{1,250}")


def implausible(events: Sequence[Event]) -> str:
    """Why no run of ours wrote these events; empty when one may have. No limit may be moved by what a folder says."""
    begun = [event for event in events if isinstance(event, RunStarted)]
    if not begun:
        return "it ended before its run began"
    if len(begun) > 1 or any(not isinstance(event, Noted) for event in events[: events.index(begun[0])]):
        return "it has more than one beginning"
    if not RUN_ID.fullmatch(begun[0].run_id) or not NONCE.fullmatch(begun[0].nonce):
        return "its run has no name of ours"
    iteration = 0
    for event in events:
        if isinstance(event, IterationStarted):
            iteration += 1
        if not _is_sound(event, iteration):
            return f"its event `{event.event}` in iteration {iteration} cannot have happened"
    return ""


def _is_sound(event: Event, iteration: int) -> bool:  # noqa: PLR0911 - one return per event is the table
    match event:
        case IterationStarted():
            return event.iteration == iteration
        case ModelTurned():
            usage = vars(event.usage).values()
            known = event.stop_reason in tuple(StopReason)
            return known and min(usage) >= 0 and (event.cost_usd is None or event.cost_usd >= 0)
        case AnswerLost():
            return min(vars(event.usage).values()) >= 0 and (event.cost_usd is None or event.cost_usd >= 0)
        case ValidatorRan():
            return event.attempt >= 1
        case RunResumed():
            return min(event.attempts.values(), default=0) >= 0 and _is_name(event.snapshot or "none")
        case SnapshotTaken():
            return _is_name(event.name)
        case EffectApplied():
            return _is_receipt(event)
        case IssueCostSummed():
            return min(event.usd, event.budget_usd) >= 0
        case FailureReported():
            fits = ((event.url, ADDRESS), (event.branch, BRANCH), (event.commit, COMMIT))
            return all(not text or shape.fullmatch(text) for text, shape in fits)
        case _:
            return True


def _is_receipt(event: EffectApplied) -> bool:
    names_branch = event.kind is EffectKind.PUSH_BRANCH and event.status is not EffectStatus.FAILED
    fits = ((event.commit, COMMIT), (event.url, ADDRESS), (event.detail if names_branch else "", BRANCH))
    return all(not text or shape.fullmatch(text) for text, shape in fits)


def _is_name(name: str) -> bool:
    return SNAPSHOT.fullmatch(name) is not None


@dataclass(frozen=True, kw_only=True)
class RunSnapshots:
    """The snapshots of a run: of its start, and of where it stopped, before the call that was at work then. Both empty
    when there is none; `is_set_up` when the set-up was through; not `is_whole` when the last one failed."""

    start: str = ""
    latest: str = ""
    is_set_up: bool = False
    is_whole: bool = True


def snapshots_of_run(events: Iterable[Event]) -> RunSnapshots:
    """What the run's snapshots are. The first is taken at the start, the second after the set-up. Without one of them a
    run cannot go on: what a tool made of the tree is no start that guards may remember."""
    snapshots, before_call = RunSnapshots(), None
    for event in events:
        match event:
            case IterationStarted() if not snapshots.start:
                return RunSnapshots(is_whole=False)
            case SnapshotTaken():
                start, is_set_up = snapshots.start or event.name, bool(snapshots.start)
                snapshots = RunSnapshots(start=start, latest=event.name, is_set_up=is_set_up)
            case SnapshotFailed():
                snapshots = replace(snapshots, is_whole=False)
            case RunResumed() if event.snapshot:
                snapshots, before_call = replace(snapshots, latest=event.snapshot, is_whole=True), None
            case ToolStarted():
                before_call = snapshots
            case ToolCalled():
                before_call = None
            case _:
                pass
    return before_call or snapshots


def known_heads(events: Sequence[Event]) -> set[str]:
    """The commits on which the run's checkout stood when it was looked at."""
    heads = {event.head for event in events if isinstance(event, SnapshotTaken)}
    return (heads | {event.head_commit for event in events if isinstance(event, WorkCollected)}) - {""}


def was_at_work(events: Sequence[Event]) -> bool:
    """Whether a tool was at work when the run stopped: what it did nobody wrote down."""
    last = next((event for event in reversed(events) if isinstance(event, ToolStarted | ToolCalled)), None)
    return isinstance(last, ToolStarted)


def receipts_of(events: Sequence[Event]) -> tuple[Receipt, ...]:
    """What was written for the flow's last end, if no iteration followed it."""
    receipts: list[Receipt] = []
    for event in events:
        match event:
            case IterationStarted():
                receipts.clear()
            case EffectApplied():
                receipts.append(event.receipt)
            case _:
                pass
    return tuple(receipts)


def scenario_position(events: Iterable[Event], queues: Mapping[str, Sequence[Turn]]) -> dict[str, int]:
    """How many turns of a scenario were played, by list. A failure that ended the run was played, too."""
    position = dict.fromkeys(queues, 0)
    queue = "turns"
    for event in events:
        match event:
            case IterationStarted():
                queue = event.step_id if "turns" not in queues else "turns"
                position.setdefault(queue, 0)
            case ModelTurned() | ModelWaited() | ContextCompacted(by_fault=True) | ContextOverflowed(by_fault=True):
                position[queue] += 1
            case FlowEnded(outcome=Outcome.MODEL_FAILED):
                turns = queues.get(queue, ())
                position[queue] += position[queue] < len(turns) and turns[position[queue]].error is not None
            case _:
                pass
    return position


def recorded_turns(events: Iterable[Event]) -> tuple[tuple[str, ModelTurn], ...]:
    """Every turn of the model, with the step that asked; without answers that were asked for again in another way than
    the first, since nobody asks a scripted model so."""
    turns, step_id, in_another_way = list[tuple[str, ModelTurn]](), "", False
    for event in events:
        match event:
            case RunStarted():
                given = event.options.get("structured-output")
                in_another_way = given in (StructuredOutput.TOOL, StructuredOutput.PROMPT)
            case StrategyChosen():
                in_another_way = True
            case IterationStarted():
                step_id = event.step_id
            case ModelTurned():
                turns.append((step_id, turn_of(event)))
            case UserMessage(format_retry=True) if in_another_way and turns:
                if turns[-1][1].stop_reason is not StopReason.MAX_TOKENS:
                    turns.pop()
            case _:
                pass
    return tuple(turns)


@dataclass(frozen=True, kw_only=True)
class RecordedAnswer:
    """One iteration that ended with an answer: what a verdict is fed with."""

    iteration: int
    texts: tuple[str, ...]
    answer: JsonObject | None


def recorded_answers(events: Iterable[Event]) -> Iterator[RecordedAnswer]:
    """The answers of these events, in order."""
    iteration, texts = 0, list[str]()
    for event in events:
        match event:
            case IterationStarted():
                iteration = event.iteration
                texts = []
            case ModelTurned():
                texts += [text] if (text := _text(event)) else []
            case CommandRan():
                texts = [event.stdout]
            case StepAnswered():
                yield RecordedAnswer(iteration=iteration, texts=tuple(texts), answer=event.answer or None)
            case _:
                pass


def _text(turn: ModelTurned) -> str:
    return "".join(str(block.get("text", "")) for block in turn.content if block.get("type") == "text")


JOURNAL = "journal.jsonl"
#: A run writes some hundred bytes to some kilobytes per event; 10,000 iterations stay far below.
LARGEST_JOURNAL = 1024 * 1024 * 1024
LONGEST_LINE = 64 * 1024 * 1024
#: After these nothing is left to do; whoever wants the same again starts a new run.
OVER = frozenset(
    {
        *(Outcome.COMPLETED, Outcome.SKIPPED, Outcome.ABORTED, Outcome.ROUTING_FAILED, Outcome.SCHEMA_FAILED),
        *(Outcome.VALIDATION_FAILED, Outcome.BASE_FAILED, Outcome.REFUSED),
        *(Outcome.MISCONFIGURED, Outcome.INVALID_DEFINITION),
    }
)


@dataclass(frozen=True, kw_only=True)
class PreviousRun:
    """What stands in a run folder. `problem` says why it cannot go on, and is empty where it can; `run_id` is empty
    where that cannot be read."""

    run_id: str = ""
    events: tuple[Event, ...] = ()
    problem: str = ""

    @property
    def started(self) -> RunStarted:
        """The run's beginning."""
        return next(event for event in self.events if isinstance(event, RunStarted))

    @property
    def ended(self) -> RunFinished | None:
        """How it ended; None when it was stopped, or resumed since."""
        last = next((e for e in reversed(self.events) if isinstance(e, RunFinished | RunResumed)), None)
        return last if isinstance(last, RunFinished) else None


def look_into(folder: Path) -> PreviousRun | None:
    """The run in the folder; None when there is none."""
    path = folder / JOURNAL
    try:
        if not os.path.lexists(path):
            problem = _strange_files(folder, only=OWN_FILES) if folder.is_dir() else ""
            return PreviousRun(problem=problem) if problem else None
        if problem := _strange_files(folder) or _too_large(path):
            return PreviousRun(problem=problem)
        events = tuple(entry.event for entry in read_journal(path))
    except InputError as exc:
        return PreviousRun(problem=exc.message.rstrip("."))
    except OSError as exc:
        return PreviousRun(problem=f"it cannot be read: {exc.strerror}")
    return _judged(events)


def _judged(events: tuple[Event, ...]) -> PreviousRun:
    if problem := implausible(events):
        return PreviousRun(problem=f"its journal tells of no run that can go on: {problem}")
    previous_run = PreviousRun(events=events)
    ended = previous_run.ended
    over = f"it is over: {ended.outcome}" if ended and ended.outcome in OVER else ""
    return replace(previous_run, run_id=previous_run.started.run_id, problem=over)


def move_aside(folder: Path, run_id: str) -> Path:
    """Give the folder's place free; what it holds stays beside it, under the run's id."""
    target = folder.with_name(f"{folder.name}-{run_id or 'unreadable'}")
    while os.path.lexists(target):
        target = folder.with_name(f"{folder.name}-{run_id or 'unreadable'}-{secrets.token_hex(2)}")
    try:
        with _held(folder / JOURNAL):
            folder.rename(target)
    except OSError as exc:
        raise InputError(
            f"The run folder {folder} holds an earlier run and cannot be moved aside: {exc.strerror}.",
            hint="Name another folder in run-folder, or move that one yourself.",
        ) from exc
    return target


def _strange_files(folder: Path, *, only: frozenset[str] | None = None) -> str:
    """What in the folder is no file or folder of its own, at any depth: whoever follows it ends up somewhere else, and
    whoever opens a pipe waits. With `only`, what lies elsewhere in it is nobody's business."""
    for entry in sorted(os.scandir(folder), key=lambda one: one.name):
        if only is not None and entry.name not in only:
            continue
        if entry.is_dir(follow_symlinks=False):
            if inner := _strange_files(folder / entry.name):
                return inner
        elif not entry.is_file(follow_symlinks=False):
            return f"its `{entry.name[:100]}` is a link or no file"
    return ""


def _too_large(path: Path) -> str:
    """A journal larger than a run writes, measured before it is in memory."""
    if path.stat().st_size > LARGEST_JOURNAL:
        return f"its {JOURNAL} is larger than any run writes"
    longest = current = 0
    with path.open("rb") as file:
        while piece := file.read(1024 * 1024):
            first, *more = piece.split(b"\n")
            longest = max(longest, current + len(first))
            current = len(more[-1]) if more else current + len(first)
    return f"its {JOURNAL} has a line longer than any run writes" if max(longest, current) > LONGEST_LINE else ""


@contextmanager
def _held(journal: Path) -> Iterator[None]:
    """Hold the folder's journal, if it is a file, so that no run that is at work in it loses its place."""
    try:
        fd = os.open(journal, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        yield
        return
    try:
        hold_alone(fd, journal)
        yield
    finally:
        os.close(fd)
