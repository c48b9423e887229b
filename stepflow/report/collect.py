"""The report of a run, collected from the entries of its journal (flow.md §11)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

from stepflow.domain.attempt_event import (
    AnswerLost,
    ContextOutgrown,
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
    Event,
    FailureReported,
    FlowEnded,
    IssueCostSummed,
    LayerTold,
    Noted,
    RunFinished,
    RunResumed,
    RunStarted,
    SnapshotFailed,
    SnapshotTaken,
    TextRemoved,
    ValidatorRan,
    WorkCollected,
)
from stepflow.domain.json import JsonObject
from stepflow.domain.problem import Severity
from stepflow.domain.removal import RemovedText
from stepflow.domain.report import CheckResult, HistoryEntry, RunReport, ValidatorRun
from stepflow.domain.state import fold
from stepflow.domain.words import CODE_OF_OUTCOME, Intent, Outcome
from stepflow.report.wording import describe_issue_cost

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from stepflow.domain.definition import AgentDefinition
    from stepflow.domain.effect import EffectKind
    from stepflow.domain.problem import Problem

#: flow.md §15; the check's outcome has no event of its own.
CHECK = re.compile(r"\[Check\] .*: (?P<result>ok|ng)\b", re.DOTALL)
#: What may change the line of an iteration. Most events of a long run do not, and each is asked.
OF_INTEREST = frozenset({ModelTurned, AnswerLost, ToolCalled, UserSpoke, StepAnswered, ContextOutgrown, Routed, Noted})
OF_A_STEP = (PromptRendered, ModelTurned, AnswerLost, ToolCalled, UserSpoke, ContextOutgrown, StepAnswered, Routed)
E = TypeVar("E")
#: What may follow the end of a flow; anything else means that the run went on.
AFTER_AN_END = (
    *(FlowEnded, RunFinished, Noted, FailureReported, IssueCostSummed, LayerTold, SnapshotFailed),
    *(EffectPlanned, EffectApplied, ValidatorRan, CompletionJudged),
)
UNFINISHED = "the journal ends here; the run was stopped from outside before it could say why."
#: Of these only the kind counts.
BLANK: Mapping[type, Event] = {
    PromptRendered: PromptRendered(system="", blocks=[], source="", retry=False, tools=[]),
    ToolCalled: ToolCalled(tool_use_id="", name="", input={}, output="", is_error=False, exit_code=None, seconds=0.0),
}
#: What nearly every iteration has, and only the state and the history look at: a long run is read once for each thing
#: that is reported of it.
OFTEN = frozenset(
    {PromptRendered, ModelTurned, ToolStarted, ToolCalled, UserSpoke, StepAnswered, Routed, SnapshotTaken}
)


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
            if type(event) in OF_INTEREST:
                history[-1] = _include(history[-1], event)
            spent[-1] += seconds
        if isinstance(event, IterationStarted):
            history.append(_history_entry(event))
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


def _history_entry(begun: IterationStarted) -> HistoryEntry:
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


@dataclass(frozen=True, kw_only=True)
class ReportFacts:
    """What the journal cannot know.

    `outcome` and `reason` count only where the journal has no end of its own: a run that never began, or one that was
    killed. A caller that writes the comment of a flow that completed, before its effects are applied, says
    `completed` here. `code`, `isolation` and `base_commit` win over what the journal says.
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


def ending_of(events: Sequence[Event], known: ReportFacts) -> RunFinished:
    """How the run ended. A flow that completed is no end yet: its boundary was not through."""
    flow, finished = _standing_end(events)
    if finished:
        return finished
    if flow and flow.outcome is not Outcome.COMPLETED:
        return RunFinished(outcome=flow.outcome, reason=flow.reason, success=False)
    if flow and known.outcome is Outcome.COMPLETED:
        return RunFinished(outcome=known.outcome, reason=known.reason or flow.reason, success=True)
    where = "Completion loop" if flow else "Flow loop" if last_of(events, IterationStarted) else "Before the run"
    return RunFinished(outcome=known.outcome, reason=known.reason or f"{where}: {UNFINISHED}", success=False)


def _standing_end(events: Sequence[Event]) -> tuple[FlowEnded | None, RunFinished | None]:
    """The end that no later event took back: a resumed run goes on after the end of its first part."""
    flow: FlowEnded | None = None
    finished: RunFinished | None = None
    last = next((at for at in range(len(events), 0, -1) if not isinstance(events[at - 1], AFTER_AN_END)), 0)
    for event in events[last:]:
        match event:
            case FlowEnded():
                flow, finished = event, None
            case RunFinished():
                finished = event
            case EffectPlanned() | EffectApplied() | ValidatorRan() | CompletionJudged():
                finished = None
            case _:
                pass
    return flow, finished


def code_of(outcome: Outcome, reason: str, known: ReportFacts, problems: Iterable[Problem]) -> str | None:
    """The code of the outcome, if it has one (registry.md §9)."""
    if known.code or outcome in CODE_OF_OUTCOME:
        return known.code or CODE_OF_OUTCOME[outcome]
    if outcome is not Outcome.INVALID_DEFINITION:
        return None
    named = re.search(r"\bSF\d{3}\b", reason)
    return named[0] if named else next((p.code for p in problems if p.severity is Severity.ERROR), None)


def last_of(events: Sequence[Event], kind: type[E]) -> E | None:
    """The last event of a kind."""
    return next((event for event in reversed(events) if isinstance(event, kind)), None)


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
            return Entry(seq=entry.seq, time=entry.time, event=BLANK[type(event)])
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
    """The report of the failure that stands: a run that was resumed takes the failure before it back."""
    last = next((event for event in reversed(events) if isinstance(event, (FailureReported, RunResumed))), None)
    return last if isinstance(last, FailureReported) else None


def _issue_cost(summed: IssueCostSummed | None) -> str:
    return describe_issue_cost(summed) if summed else ""
