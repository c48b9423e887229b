"""The log of flow.md §15, derived from the journal's events: as `jsonl` or as `text`.

What no event stands for arrives as `Noted` and is passed on as it is.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, assert_never

from stepflow.domain.event import (
    AnswerLost,
    BaseChecked,
    CanariesTried,
    CheckJudged,
    ContextCompacted,
    ContextOverflowed,
    IssueCostSummed,
    IterationStarted,
    LayerReported,
    ModelWaited,
    Noted,
    Routed,
    RunFinished,
    RunResumed,
    RunStarted,
    SchemaFailed,
    SnapshotFailed,
    StepAnswered,
    StrategyChosen,
    TextRemoved,
    ToolCalled,
    ValidatorRan,
)
from stepflow.domain.figures import count
from stepflow.domain.json import JsonObject, compact
from stepflow.domain.run import MAX_STRIKES
from stepflow.domain.visible_text import count_kinds
from stepflow.domain.words import FailureAction
from stepflow.report.plain import clean, cut, defuse
from stepflow.report.wording import describe_fact, describe_restored, describe_resumed

if TYPE_CHECKING:
    from stepflow.domain.event import Entry, Event

REASON_LIMIT = 500
Line = tuple[str, str, JsonObject]


@dataclass(frozen=True, kw_only=True)
class LogEntry:
    """One line of the log. `level` is debug, info, warning or error; `time` in seconds since the epoch."""

    time: float
    level: str
    message: str
    data: JsonObject = field(default_factory=dict)


def log_entries(entry: Entry) -> tuple[LogEntry, ...]:
    """The log entries of one event; most events have one or none."""
    return tuple(
        LogEntry(time=entry.time, level=level, message=message, data=data)
        for level, message, data in _lines(entry.event)
    )


def log_line(entry: LogEntry, style: str = "jsonl") -> str:
    """One line without its line break: `jsonl`, or `text` for people."""
    at = datetime.fromtimestamp(entry.time, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if style == "text":
        data = f"  {compact(entry.data)}" if entry.data else ""
        return defuse(f"{at} {entry.level:<7} {_flat(entry.message)}{_flat(data)}")
    line = {"time": at, "level": entry.level, "message": entry.message, "data": entry.data}
    # ASCII keeps invisible characters visible; the runner that reads stderr looks for this one word anywhere.
    return json.dumps(line, separators=(",", ":")).replace("##[", "#\\u0023[")


def _lines(event: Event) -> tuple[Line, ...]:  # noqa: PLR0911, PLR0912 - one return per event is the table
    match event:
        case RunStarted():
            data: JsonObject = {
                "run": event.run_id,
                "dialect": event.dialect,
                "verdict": event.verdict_type,
                "entry_step": event.entry_step,
                "max_iterations": event.max_iterations,
                "issue": event.issue,
                "isolation": dict(event.isolation),
            }
            return (("info", f"Starting agent: {event.agent}", data),)
        case RunResumed():
            return (("info", f"[Run] {describe_resumed(event)}", {"step": event.step_id, "from_seq": event.from_seq}),)
        case TextRemoved():
            kinds = count_kinds(tuple(event.pieces))
            return (("warning", f"[Intake] removed {count(event.count, 'hidden piece')}", {"kinds": kinds}),)
        case IterationStarted():
            data = {"step": event.step_id, "kind": event.kind, "model": event.model}
            return (("info", f"=== Iteration {event.iteration} ===", data),)
        case (
            SchemaFailed() | ModelWaited() | AnswerLost() | ContextCompacted() | ContextOverflowed() | StrategyChosen()
        ):
            return (_model_line(event),)
        case ToolCalled(denied=True):
            return (("warning", f'[Tools] denied "{event.name}"', {}),)
        case CheckJudged():
            return (("info", f"[Check] {event.step_id}: {event.result}", {"message": event.message}),)
        case StepAnswered() if event.intent:
            data = {
                "step": event.step_id,
                "reason": cut(event.reason, REASON_LIMIT),
                "target": event.target,
                "fallback": event.violation is not None,
            }
            return (("info", f"[StepFlow] Interpreted intent: {event.intent}", data),)
        case Routed() if event.to is not None:
            step_pair = f"{event.source} -> {event.to}"
            decision: Line = ("info", f"[StepFlow] Routing decision: {step_pair}", {"transition": event.transition})
            prefix: Line = ("info", f"[StepFlow] Prefix substitution: {step_pair}", {})
            return (prefix, decision) if event.by_prefix else (decision,)
        case BaseChecked():
            data = {"exit_code": event.exit_code, "seconds": event.seconds}
            level, state = ("info", "green") if event.passed else ("warning", "red")
            return ((level, f"[Base] {event.name}: {state}", data),)
        case ValidatorRan():
            return (_validator(event), *_guard_lines(event))
        case SnapshotFailed() | LayerReported() | IssueCostSummed() | CanariesTried():
            fact = describe_fact(event)
            data = {**event.canaries} if isinstance(event, CanariesTried) else {}
            return (("warning" if fact[0] else "info", fact[1], data),)
        case Noted():
            return ((event.level, event.message, event.data),)
        case RunFinished():
            return (("info", f"Agent completed: {event.outcome}", {"reason": cut(event.reason, REASON_LIMIT)}),)
        case _:
            return ()


def _model_line(
    event: SchemaFailed | ModelWaited | AnswerLost | ContextCompacted | ContextOverflowed | StrategyChosen,
) -> Line:
    """What was in the way between a prompt and its answer."""
    data: JsonObject = {"reason": cut(event.reason, REASON_LIMIT)}
    match event:
        case ModelWaited():
            message = f"[Model] waiting {event.seconds:g}s"
            data |= {"attempt": event.attempt, "tries": event.tries, "deadline_in": event.deadline_in}
        case SchemaFailed():
            message = f'[SchemaResolution] failure {event.strikes}/{MAX_STRIKES} on step "{event.step_id}"'
        case AnswerLost():
            message = "[Model] an answer broke off"
            data |= {"tokens": event.usage.total, "cost_usd": event.cost_usd}
        case ContextCompacted():
            message = f"[Model] too long: removed {count(event.results, 'old tool result')}"
            data |= {"characters": event.characters, "left": event.left}
        case ContextOverflowed():
            message = f'[Model] too long: step "{event.step_id}" begins again'
        case StrategyChosen():
            message = f'[Model] structured output of "{event.model}": {event.strategy} from here on'
        case _:
            assert_never(event)
    return ("warning", message, data)


def _validator(event: ValidatorRan) -> Line:
    if event.passed:
        word = "passed"
    elif event.action is FailureAction.SKIP:
        word = "skipped"
    elif not event.recoverable:
        word = "unrecoverable"
    else:
        word = f"failed (attempt {event.attempt}/{event.max_attempts})"
    data: JsonObject = {"exit_code": event.exit_code, "seconds": event.seconds}
    if not event.passed:
        data["pattern"] = event.pattern
    return ("info" if event.passed else "warning", f"[Validator] {event.name}: {word}", data)


def _guard_lines(event: ValidatorRan) -> tuple[Line, ...]:
    restored: tuple[Line, ...] = ()
    if event.restored:
        restored = (("info", f"[Guard] {event.name}: {cut(describe_restored(event), REASON_LIMIT)}", {}),)
    warnings: tuple[Line, ...] = tuple(
        ("warning", f"[Guard] {event.name}: {cut(text, REASON_LIMIT)}", {}) for text in event.warnings
    )
    return (*restored, *warnings)


def _flat(text: str) -> str:
    return clean(text).replace("\n", "\\n")
