"""The report of a run, drawn from the lines of its journal alone.

Takes: entries (all, or as many as a crash left), and what the journal cannot know. Gives: `RunReport` (flow.md §11).
May touch: nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

from stepflow.domain.effect import EffectStatus, Receipt
from stepflow.domain.event import (
    CompletionJudged,
    EffectApplied,
    EffectPlanned,
    FailureReported,
    FlowEnded,
    IterationStarted,
    Noted,
    RunFinished,
    RunStarted,
    ValidatorRan,
)
from stepflow.domain.json import JsonObject
from stepflow.domain.problem import Severity
from stepflow.domain.report import RunReport, ValidatorRun
from stepflow.domain.state import fold
from stepflow.domain.words import CODE_OF_OUTCOME, Outcome
from stepflow.report.history import collect_history, seconds_between

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from stepflow.domain.definition import AgentDefinition
    from stepflow.domain.effect import EffectKind
    from stepflow.domain.event import Entry, Event
    from stepflow.domain.problem import Problem

E = TypeVar("E")
UNFINISHED = "the journal ends here; the run was stopped from outside before it could say why."


@dataclass(frozen=True, kw_only=True)
class ReportFacts:
    """What the journal cannot know. `outcome`, `reason` and `code` count only where the journal has no end of its own:
    a run that never began, or one that was killed. A caller that writes the comment of a flow that completed, before
    its effects are applied, says `completed` here. `isolation` and `base_commit` win over what `run_started` says.
    """

    run_id: str = ""
    agent: str = ""
    outcome: Outcome = Outcome.CANCELLED
    reason: str = ""
    code: str | None = None
    problems: tuple[Problem, ...] = ()
    issue: int | None = None
    base_commit: str = ""
    isolation: Mapping[str, str] = field(default_factory=dict)
    run_folder: str = ""
    host_run_folder: str = ""


def collect_report(
    entries: Sequence[Entry], agent: AgentDefinition | None = None, *, facts: ReportFacts | None = None
) -> RunReport:
    """The report of these entries. Works on the journal of a crashed or cancelled run, and on none at all."""
    known = facts or ReportFacts()
    events = tuple(entry.event for entry in entries)
    state = fold(events)
    report = _begun(_last(events, RunStarted), agent, known)
    ended = _ending(events, known)
    answer = _closing_answer(events)
    return replace(
        report,
        outcome=ended.outcome,
        code=_code(ended.outcome, ended.reason, known, report.problems),
        reason=ended.reason,
        success=ended.success,
        iterations=state.iteration,
        final_step_id=_final_step(events, report.entry_step_id),
        history=collect_history(entries),
        structured_output=answer,
        verdict=_verdict_text(answer),
        handoff=state.handoff,
        validators=tuple(_validator_run(event) for event in events if isinstance(event, ValidatorRan)),
        validated=_validated(events),
        effects=_receipts(events),
        usage=state.usage,
        cost_usd=None if state.unpriced else state.cost_usd,
        seconds=round(sum(seconds_between(entries)), 3),
        spec_violations=state.violations,
        failure_report=_failure_report(_last(events, FailureReported)),
    )


def _begun(started: RunStarted | None, agent: AgentDefinition | None, known: ReportFacts) -> RunReport:
    return RunReport(
        run_id=started.run_id if started else known.run_id,
        outcome=known.outcome,
        code=None,
        reason="",
        success=False,
        iterations=0,
        agent=started.agent if started else agent.name if agent else known.agent,
        dialect=started.dialect if started else agent.dialect if agent else "",
        definition_digest=started.definition_digest if started else agent.digest if agent else "",
        verdict_type=started.verdict_type if started else agent.verdict.type if agent else "",
        entry_step_id=started.entry_step if started else agent.entry_step if agent else "",
        final_step_id="",
        problems=known.problems or (agent.problems if agent else ()),
        issue=started.issue if started and started.issue is not None else known.issue,
        base_commit=known.base_commit or (started.base_commit if started else ""),
        isolation=known.isolation or (started.isolation if started else {}),
        run_folder=known.run_folder,
        host_run_folder=known.host_run_folder,
    )


def _ending(events: Sequence[Event], known: ReportFacts) -> RunFinished:
    """How the run ended. A flow that completed is no end yet: its boundary was not through."""
    flow, finished = _standing_end(events)
    if finished:
        return finished
    if flow and flow.outcome is not Outcome.COMPLETED:
        return RunFinished(outcome=flow.outcome, reason=flow.reason, success=False)
    if flow and known.outcome is Outcome.COMPLETED:
        return RunFinished(outcome=known.outcome, reason=known.reason or flow.reason, success=True)
    where = "Completion loop" if flow else "Flow loop" if _last(events, IterationStarted) else "Before the run"
    return RunFinished(outcome=known.outcome, reason=known.reason or f"{where}: {UNFINISHED}", success=False)


def _standing_end(events: Iterable[Event]) -> tuple[FlowEnded | None, RunFinished | None]:
    """The end that no later event took back: a resumed run goes on after the end of its first part."""
    flow: FlowEnded | None = None
    finished: RunFinished | None = None
    for event in events:
        match event:
            case FlowEnded():
                flow, finished = event, None
            case RunFinished():
                finished = event
            case Noted() | FailureReported():
                pass
            case EffectPlanned() | EffectApplied() | ValidatorRan() | CompletionJudged():
                finished = None
            case _:
                flow, finished = None, None
    return flow, finished


def _code(outcome: Outcome, reason: str, known: ReportFacts, problems: Iterable[Problem]) -> str | None:
    if known.code or outcome in CODE_OF_OUTCOME:
        return known.code or CODE_OF_OUTCOME[outcome]
    if outcome is not Outcome.INVALID_DEFINITION:
        return None
    named = re.search(r"\bSF\d{3}\b", reason)
    return named[0] if named else next((p.code for p in problems if p.severity is Severity.ERROR), None)


def _final_step(events: Sequence[Event], entry_step: str) -> str:
    begun = _last(events, IterationStarted)
    return begun.step_id if begun else entry_step


def _closing_answer(events: Sequence[Event]) -> JsonObject | None:
    flow = _last(events, FlowEnded)
    return flow.answer if flow else None


def _verdict_text(answer: JsonObject | None) -> str | None:
    text = answer.get("verdict") if answer else None
    return text if isinstance(text, str) and text else None


def _validator_run(event: ValidatorRan) -> ValidatorRun:
    return ValidatorRun(
        iteration=event.iteration,
        name=event.name,
        passed=event.passed,
        exit_code=event.exit_code,
        pattern=event.pattern,
        attempt=event.attempt,
        action=event.action.value if event.action else None,
        seconds=event.seconds,
        output_tail=event.output_tail,
    )


def _validated(events: Iterable[Event]) -> bool:
    """What the last closing found; before the boundary of a resumed run the validators are judged again."""
    judged = [event.validated for event in events if isinstance(event, FlowEnded | CompletionJudged)]
    return judged[-1] if judged else False


def _receipts(events: Iterable[Event]) -> tuple[Receipt, ...]:
    """One receipt per effect in the order of the plan: the latest there is, else the plan's own line."""
    latest: dict[EffectKind, Receipt] = {}
    for event in events:
        match event:
            case EffectPlanned():
                latest.setdefault(
                    event.kind, Receipt(kind=event.kind, status=EffectStatus.PLANNED, detail=event.detail)
                )
            case EffectApplied():
                latest[event.kind] = _receipt(event, latest.get(event.kind))
            case _:
                pass
    return tuple(latest.values())


def _receipt(event: EffectApplied, planned: Receipt | None) -> Receipt:
    return Receipt(
        kind=event.kind,
        status=event.status,
        detail=event.detail or (planned.detail if planned else ""),
        url=event.url,
        number=event.number,
        commit=event.commit,
    )


def _failure_report(event: FailureReported | None) -> str | None:
    return (event.url or event.detail) if event else None


def _last(events: Sequence[Event], kind: type[E]) -> E | None:
    return next((event for event in reversed(events) if isinstance(event, kind)), None)
