"""The report of a run, drawn from the lines of its journal alone.

Takes: entries (all, or as many as a crash left), and what the journal cannot know. Gives: `RunReport` (flow.md §11).
May touch: nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from stepflow.domain.attempt_event import (
    IterationStarted,
    ModelTurned,
    PromptRendered,
    Routed,
    StepAnswered,
    ToolCalled,
    ToolStarted,
    UserSpoke,
)
from stepflow.domain.effect import EffectStatus, Receipt
from stepflow.domain.event import (
    CanariesTried,
    CompletionJudged,
    EffectApplied,
    EffectPlanned,
    Entry,
    FailureReported,
    FlowEnded,
    IssueCostSummed,
    LayerTold,
    RunResumed,
    RunStarted,
    SnapshotTaken,
    TextRemoved,
    ValidatorRan,
    WorkCollected,
)
from stepflow.domain.json import JsonObject
from stepflow.domain.removal import RemovedText
from stepflow.domain.report import RunReport, ValidatorRun
from stepflow.domain.state import fold
from stepflow.report.ending import ReportFacts, code_of, ending_of, last_of
from stepflow.report.facts import issue_cost_told
from stepflow.report.history import collect_history, seconds_between

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from stepflow.domain.definition import AgentDefinition
    from stepflow.domain.effect import EffectKind
    from stepflow.domain.event import Event

#: Of these only the kind counts.
UNTOLD: Mapping[type, Event] = {
    PromptRendered: PromptRendered(system="", blocks=[], source="", retry=False, tools=[]),
    ToolCalled: ToolCalled(tool_use_id="", name="", input={}, output="", is_error=False, exit_code=None, seconds=0.0),
}
#: What nearly every iteration has, and only the state and the history look at: a long run is read once for each thing
#: that is told of it.
OFTEN = frozenset(
    {PromptRendered, ModelTurned, ToolStarted, ToolCalled, UserSpoke, StepAnswered, Routed, SnapshotTaken}
)


def collect_report(
    entries: Iterable[Entry], agent: AgentDefinition | None = None, *, facts: ReportFacts | None = None
) -> RunReport:
    """The report of these entries. Works on the journal of a crashed or cancelled run, and on none at all."""
    known = facts or ReportFacts()
    entries = tuple(map(_without_texts, entries))
    events = tuple(entry.event for entry in entries)
    rare = tuple(event for event in events if type(event) not in OFTEN)
    state = fold(events)
    report = _begun(last_of(rare, RunStarted), agent, known)
    ended = ending_of(events, known)
    answer, failure = _closing_answer(rare), _standing_failure(rare)
    return replace(
        report,
        isolation=_with_later_words(report.isolation, rare),
        outcome=ended.outcome,
        code=code_of(ended.outcome, ended.reason, known, report.problems),
        reason=ended.reason,
        success=ended.success,
        iterations=state.iteration,
        final_step_id=_final_step(rare, report.entry_step_id),
        history=collect_history(entries),
        structured_output=answer,
        verdict=_verdict_text(answer),
        handoff=state.handoff,
        validators=tuple(_validator_run(event) for event in rare if isinstance(event, ValidatorRan)),
        validated=_validated(rare),
        effects=_receipts(rare),
        usage=state.usage,
        cost_usd=None if state.unpriced else state.cost_usd,
        seconds=round(sum(seconds_between(entries)), 3),
        spec_violations=state.violations,
        canaries=_canaries(last_of(rare, CanariesTried)),
        removed_text=_removed_text(last_of(rare, TextRemoved)),
        failure_report=(failure.url or failure.detail) if failure else None,
        kept_branch=failure.branch if failure else "",
        kept_commit=failure.commit if failure else "",
        issue_cost=_issue_cost(last_of(rare, IssueCostSummed)),
    )


def _without_texts(entry: Entry) -> Entry:
    """The entry without what no report shows: nearly all that a long journal holds are prompts, words and outputs."""
    event = entry.event
    match event:
        case PromptRendered() | ToolCalled():
            return Entry(seq=entry.seq, time=entry.time, event=UNTOLD[type(event)])
        case ModelTurned():
            return Entry(seq=entry.seq, time=entry.time, event=replace(event, content=[]))
        case _:
            return entry


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
        provider=str(started.options.get("provider", "")) if started else "",
    )


def _with_later_words(isolation: Mapping[str, str], events: Iterable[Event]) -> Mapping[str, str]:
    """What became known of a layer after the start."""
    states = dict(isolation)
    for event in events:
        if isinstance(event, LayerTold):
            states[event.layer] = "; ".join(filter(None, (states.get(event.layer), event.told)))
    return states


def _final_step(events: Sequence[Event], entry_step: str) -> str:
    begun = last_of(events, IterationStarted)
    return begun.step_id if begun else entry_step


def _closing_answer(events: Sequence[Event]) -> JsonObject | None:
    flow = last_of(events, FlowEnded)
    return flow.answer if flow else None


def _canaries(tried: CanariesTried | None) -> dict[str, str]:
    return dict(tried.canaries) if tried else {}


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
        warnings=tuple(event.warnings),
    )


def _validated(events: Iterable[Event]) -> bool:
    """What the last closing found; before the boundary of a resumed run the validators are judged again."""
    validated = False
    for event in events:
        match event:
            case FlowEnded() | CompletionJudged():
                validated = event.validated
            case RunResumed():
                validated = False
            case WorkCollected() if event.uncommitted or not event.as_validated:
                # What leaves is not what the validators saw (boundary.md "Commits").
                validated = False
            case _:
                pass
    return validated


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
                planned = latest.get(event.kind)
                detail = event.detail or (planned.detail if planned else "")
                latest[event.kind] = replace(event.receipt, detail=detail)
            case _:
                pass
    return tuple(latest.values())


def _removed_text(event: TextRemoved | None) -> RemovedText:
    return RemovedText(count=event.count, pieces=tuple(event.pieces)) if event else RemovedText()


def _standing_failure(events: Sequence[Event]) -> FailureReported | None:
    """What was told of the failure that stands: a run that was resumed takes the failure before it back."""
    last = next((event for event in reversed(events) if isinstance(event, (FailureReported, RunResumed))), None)
    return last if isinstance(last, FailureReported) else None


def _issue_cost(summed: IssueCostSummed | None) -> str:
    return issue_cost_told(summed) if summed else ""
