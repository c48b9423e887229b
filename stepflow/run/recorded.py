"""What the journal of an earlier run says, and whether that can be so.

Takes: the events of a journal. Gives: their weak points, the position in a scenario, snapshots, receipts, past answers.
May touch: nothing. A run folder comes back from a cache or an artifact: it may be forged (security.md case 30).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from stepflow.domain.attempt_event import (
    AnswerLost,
    CommandRan,
    ContextCompacted,
    ContextOutgrown,
    IterationStarted,
    ModelTurned,
    ModelWaited,
    StepAnswered,
    StrategyChosen,
    ToolCalled,
    ToolStarted,
    UserSpoke,
)
from stepflow.domain.conversation import ModelTurn, StopReason
from stepflow.domain.effect import EffectKind, EffectStatus, Receipt
from stepflow.domain.event import (
    EffectApplied,
    FailureReported,
    FlowEnded,
    IssueCostSummed,
    Noted,
    RunResumed,
    RunStarted,
    SnapshotFailed,
    SnapshotTaken,
    ValidatorRan,
    WorkCollected,
)
from stepflow.domain.words import Outcome, StructuredOutput
from stepflow.journal.replay import turn_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from stepflow.domain.event import Event
    from stepflow.domain.json import JsonObject
    from stepflow.model.scenario import Turn

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
class Kept:
    """The snapshots of a run: of its start, and of where it stopped, before the call that was at work then. Both empty
    when there is none; `is_set_up` when the set-up was through; not `is_whole` when the last one failed."""

    start: str = ""
    latest: str = ""
    is_set_up: bool = False
    is_whole: bool = True


def kept_snapshots(events: Iterable[Event]) -> Kept:
    """What the run's snapshots are. The first is taken at the start, the second after the set-up. Without one of them a
    run cannot go on: what a tool made of the tree is no start that guards may remember."""
    kept, before_call = Kept(), None
    for event in events:
        match event:
            case IterationStarted() if not kept.start:
                return Kept(is_whole=False)
            case SnapshotTaken():
                start, is_set_up = kept.start or event.name, bool(kept.start)
                kept = Kept(start=start, latest=event.name, is_set_up=is_set_up)
            case SnapshotFailed():
                kept = replace(kept, is_whole=False)
            case RunResumed() if event.snapshot:
                kept, before_call = replace(kept, latest=event.snapshot, is_whole=True), None
            case ToolStarted():
                before_call = kept
            case ToolCalled():
                before_call = None
            case _:
                pass
    return before_call or kept


def known_heads(events: Sequence[Event]) -> set[str]:
    """The commits on which the run's checkout stood when it was looked at."""
    taken = {event.head for event in events if isinstance(event, SnapshotTaken)}
    return (taken | {event.head_commit for event in events if isinstance(event, WorkCollected)}) - {""}


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
    place = "turns"
    for event in events:
        match event:
            case IterationStarted():
                place = event.step_id if "turns" not in queues else "turns"
                position.setdefault(place, 0)
            case ModelTurned() | ModelWaited() | ContextCompacted(by_fault=True) | ContextOutgrown(by_fault=True):
                position[place] += 1
            case FlowEnded(outcome=Outcome.MODEL_FAILED):
                turns = queues.get(place, ())
                position[place] += position[place] < len(turns) and turns[position[place]].error is not None
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
            case UserSpoke(format_retry=True) if in_another_way and turns:
                if turns[-1][1].stop_reason is not StopReason.MAX_TOKENS:
                    turns.pop()
            case _:
                pass
    return tuple(turns)


@dataclass(frozen=True, kw_only=True)
class PastAnswer:
    """One iteration that ended with an answer: what a verdict is fed with."""

    iteration: int
    texts: tuple[str, ...]
    answer: JsonObject | None


def past_answers(events: Iterable[Event]) -> Iterator[PastAnswer]:
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
                yield PastAnswer(iteration=iteration, texts=tuple(texts), answer=event.answer or None)
            case _:
                pass


def _text(turn: ModelTurned) -> str:
    return "".join(str(block.get("text", "")) for block in turn.content if block.get("type") == "text")
