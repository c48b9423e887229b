"""What each iteration did, as sums over its events.

Takes: entries. Gives: one `HistoryEntry` per iteration (flow.md §11), and the seconds that passed between entries.
May touch: nothing.
"""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from stepflow.domain.attempt_event import (
    AnswerLost,
    ContextOutgrown,
    IterationStarted,
    ModelTurned,
    PromptRendered,
    Routed,
    StepAnswered,
    ToolCalled,
    UserSpoke,
)
from stepflow.domain.event import Entry, Event, FlowEnded, Noted, RunFinished, RunResumed, RunStarted
from stepflow.domain.report import CheckResult, HistoryEntry
from stepflow.domain.words import Intent

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

#: flow.md §15; the check's outcome has no event of its own.
CHECK = re.compile(r"\[Check\] .*: (?P<result>ok|ng)\b", re.DOTALL)
#: What may change the line of an iteration. Most events of a long run do not, and each is asked.
TELLING = frozenset({ModelTurned, AnswerLost, ToolCalled, UserSpoke, StepAnswered, ContextOutgrown, Routed, Noted})
OF_A_STEP = (PromptRendered, ModelTurned, AnswerLost, ToolCalled, UserSpoke, ContextOutgrown, StepAnswered, Routed)


def collect_history(entries: Sequence[Entry]) -> tuple[HistoryEntry, ...]:
    """One entry per iteration, in order; the last one may be cut short by a crash."""
    history: list[HistoryEntry] = []
    spent: list[float] = []
    running = False
    for entry, seconds in zip(entries, seconds_between(entries), strict=True):
        event = entry.event
        # After an end these mean that the run was resumed inside the iteration that had been cut short.
        running = running or isinstance(event, OF_A_STEP)
        if history and running:
            if type(event) in TELLING:
                history[-1] = _include(history[-1], event)
            spent[-1] += seconds
        if isinstance(event, IterationStarted):
            history.append(_begin(event))
            spent.append(0.0)
            running = True
        elif isinstance(event, (FlowEnded, RunResumed)):
            running = False
    return tuple(replace(line, seconds=round(each, 3)) for line, each in zip(history, spent, strict=True))


def seconds_between(entries: Sequence[Entry]) -> Iterable[float]:
    """For each entry the seconds since the one before; 0 where the run stood still, as before a resume."""
    if entries:
        yield 0.0
    for before, entry in pairwise(entries):
        yield 0.0 if _stood_still(before.event, entry.event) else max(0.0, entry.time - before.time)


def _stood_still(before: Event, event: Event) -> bool:
    return isinstance(before, RunFinished) or isinstance(event, (RunStarted, RunResumed))


def _begin(begun: IterationStarted) -> HistoryEntry:
    return HistoryEntry(iteration=begun.iteration, step_id=begun.step_id, kind=begun.kind, model=begun.model)


def _include(line: HistoryEntry, event: Event) -> HistoryEntry:
    match event:
        case ModelTurned():
            line = replace(_with_cost(line, event), model=event.model or line.model)
        case AnswerLost():
            line = _with_cost(line, event)
        case ToolCalled():
            line = replace(line, tool_calls=line.tool_calls + 1)
        case UserSpoke(format_retry=True):
            line = replace(line, format_retries=line.format_retries + 1)
        case StepAnswered():
            line = replace(line, intent=event.intent, target=event.target, reason=event.reason)
        case ContextOutgrown():
            line = replace(line, intent=Intent.REPEAT)
        case Routed():
            # A jump's target is what the answer named; for every other intent it is where the rule led.
            line = replace(line, transition=event.transition, target=event.to or line.target)
        case Noted():
            line = _with_check(line, event)
        case _:
            pass
    return line


def _with_cost(line: HistoryEntry, paid: ModelTurned | AnswerLost) -> HistoryEntry:
    unpriced = line.cost_usd is None or paid.cost_usd is None
    return replace(
        line,
        usage=line.usage + paid.usage,
        cost_usd=None if unpriced else (line.cost_usd or 0.0) + (paid.cost_usd or 0.0),
    )


def _with_check(line: HistoryEntry, note: Noted) -> HistoryEntry:
    found = CHECK.match(note.message)
    if not found:
        return line
    message = note.data.get("message")
    return replace(
        line, check_result=CheckResult(result=found["result"], message=message if isinstance(message, str) else "")
    )
