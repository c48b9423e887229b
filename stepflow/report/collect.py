"""The report of a run, collected from the entries of its journal (flow.md §11)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

from stepflow.domain.checkout import BaseCheck
from stepflow.domain.conversation import Usage
from stepflow.domain.effect import EffectStatus, Receipt
from stepflow.domain.event import (
    AnswerLost,
    BaseChecked,
    CanariesTried,
    CheckJudged,
    CompletionJudged,
    ContextOverflowed,
    EffectApplied,
    EffectPlanned,
    Entry,
    Event,
    FailureReported,
    FlowEnded,
    IssueCostSummed,
    IterationStarted,
    LayerReported,
    ModelTurned,
    Noted,
    PromptRendered,
    Routed,
    RunFinished,
    RunResumed,
    RunStarted,
    SnapshotFailed,
    SnapshotTaken,
    StepAnswered,
    TextRemoved,
    ToolCalled,
    ToolStarted,
    UserMessage,
    ValidatorRan,
    WorkCollected,
)
from stepflow.domain.problem import Severity
from stepflow.domain.report import CheckResult, HistoryEntry, RunReport, ValidatorRun
from stepflow.domain.state import RunState, advance
from stepflow.domain.visible_text import RemovedText
from stepflow.domain.words import CODE_OF_OUTCOME, Dialect, Intent, Outcome, VerdictType
from stepflow.report.wording import describe_issue_cost

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from stepflow.domain.definition import AgentDefinition
    from stepflow.domain.effect import EffectKind
    from stepflow.domain.problem import Problem

OF_A_STEP = (
    *(PromptRendered, ModelTurned, AnswerLost, ToolCalled, UserMessage, ContextOverflowed),
    *(CheckJudged, StepAnswered, Routed),
)
E = TypeVar("E")
#: What may follow the end of a flow; anything else means that the run went on.
AFTER_AN_END = (
    *(FlowEnded, RunFinished, Noted, FailureReported, IssueCostSummed, LayerReported, SnapshotFailed),
    *(EffectPlanned, EffectApplied, ValidatorRan, CompletionJudged, WorkCollected),
)
UNFINISHED = "the journal ends here; the run was stopped from outside before it could say why."
#: What nearly every iteration has; only the state and the line of the iteration ask for it.
OFTEN = (
    *(PromptRendered, ModelTurned, ToolStarted, ToolCalled, UserMessage),
    *(CheckJudged, StepAnswered, Routed, SnapshotTaken),
)


class Reading:
    """What a report takes from a journal, one entry at a time: of a long run no more is kept than is shown of it."""

    def __init__(self) -> None:
        self.state = RunState()
        self.seconds = 0.0
        #: All events but those of `OFTEN`.
        self.rare: list[Event] = []
        #: What came after the last event that means that the run went on.
        self.end: list[Event] = []
        self._lines: list[HistoryEntry] = []
        self._before: Entry | None = None
        self._begun: IterationStarted | None = None
        self._iteration: list[Event] = []
        self._spent = 0.0
        self._running = False

    def add(self, entry: Entry) -> None:
        """Follow one entry."""
        event, before, seconds = entry.event, self._before, 0.0
        # Where the run stood still, as before a resume, no time counts.
        if before and not isinstance(before.event, RunFinished) and not isinstance(event, RunStarted | RunResumed):
            seconds = max(0.0, entry.time - before.time)
        self._before = entry
        self.seconds += seconds
        self.state = advance(self.state, event)
        if type(event) not in OFTEN:
            self.rare.append(event)
        if isinstance(event, AFTER_AN_END):
            self.end.append(event)
        else:
            self.end.clear()
        # After an end these mean that the run was resumed inside the iteration that had been cut short.
        self._running = self._running or isinstance(event, OF_A_STEP)
        if self._running:
            self._iteration.append(event)
            self._spent += seconds
        if isinstance(event, IterationStarted):
            self._lines.extend(self._open_line())
            self._begun, self._iteration, self._spent, self._running = event, [], 0.0, True
        elif isinstance(event, (FlowEnded, RunResumed)):
            self._running = False

    def history(self) -> tuple[HistoryEntry, ...]:
        """One entry per iteration, in order; the last one may be cut short by a crash."""
        return (*self._lines, *self._open_line())

    def _open_line(self) -> tuple[HistoryEntry, ...]:
        return (_history_entry(self._begun, self._iteration, self._spent),) if self._begun else ()


def _history_entry(begun: IterationStarted, events: Sequence[Event], seconds: float) -> HistoryEntry:
    paid = [event for event in events if isinstance(event, ModelTurned | AnswerLost)]
    costs = [event.cost_usd for event in paid]
    models = [event.model for event in paid if isinstance(event, ModelTurned) and event.model]
    answered, routed, checked = last_of(events, StepAnswered), last_of(events, Routed), last_of(events, CheckJudged)
    # A step that outgrew the model's context begins again.
    last = next((event for event in reversed(events) if isinstance(event, (StepAnswered, ContextOverflowed))), None)
    return HistoryEntry(
        iteration=begun.iteration,
        step_id=begun.step_id,
        kind=begun.kind,
        intent=last.intent if isinstance(last, StepAnswered) else Intent.REPEAT if last else None,
        transition=routed.transition if routed else "none",
        # A jump's target is what the answer named; for every other intent it is where the rule led.
        target=(routed.to if routed else None) or (answered.target if answered else None),
        reason=answered.reason if answered else "",
        check_result=CheckResult(result=checked.result, message=checked.message) if checked else None,
        format_retries=sum(isinstance(event, UserMessage) and event.format_retry for event in events),
        tool_calls=sum(isinstance(event, ToolCalled) for event in events),
        model=models[-1] if models else begun.model,
        usage=sum((event.usage for event in paid), Usage()),
        cost_usd=None if None in costs else sum(cost or 0.0 for cost in costs),
        seconds=round(seconds, 3),
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


def _ending(read: Reading, known: ReportFacts) -> RunFinished:
    """How the run ended. A flow that completed is no end yet: its boundary was not through."""
    flow, finished = _standing_end(read.end)
    if finished:
        return finished
    if flow and flow.outcome is not Outcome.COMPLETED:
        return RunFinished(outcome=flow.outcome, reason=flow.reason, success=False)
    if flow and known.outcome is Outcome.COMPLETED:
        return RunFinished(outcome=known.outcome, reason=known.reason or flow.reason, success=True)
    where = "Completion loop" if flow else "Flow loop" if last_of(read.rare, IterationStarted) else "Before the run"
    return RunFinished(outcome=known.outcome, reason=known.reason or f"{where}: {UNFINISHED}", success=False)


def _standing_end(events: Sequence[Event]) -> tuple[FlowEnded | None, RunFinished | None]:
    """The end that no later event took back: a resumed run goes on after the end of its first part."""
    flow: FlowEnded | None = None
    finished: RunFinished | None = None
    for event in events:
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


def code_of(outcome: Outcome, known: ReportFacts, problems: Iterable[Problem]) -> str | None:
    """The code of the outcome, if it has one (registry.md §9)."""
    if known.code or outcome in CODE_OF_OUTCOME:
        return known.code or CODE_OF_OUTCOME[outcome]
    is_invalid = outcome is Outcome.INVALID_DEFINITION
    return next((p.code for p in problems if is_invalid and p.severity is Severity.ERROR), None)


def last_of(events: Sequence[Event], kind: type[E]) -> E | None:
    """The last event of a kind."""
    return next((event for event in reversed(events) if isinstance(event, kind)), None)


def collect_report(
    entries: Iterable[Entry], agent: AgentDefinition | None = None, *, facts: ReportFacts | None = None
) -> RunReport:
    """The report of these entries. Works on the journal of a crashed or cancelled run, and on none at all."""
    known = facts or ReportFacts()
    read = Reading()
    for entry in entries:
        read.add(entry)
    state, rare = read.state, read.rare
    report = _begun(last_of(rare, RunStarted), agent, known)
    ended = _ending(read, known)
    flow, failure = last_of(rare, FlowEnded), _standing_failure(rare)
    answer = flow.answer if flow else None
    begun, canaries = last_of(rare, IterationStarted), last_of(rare, CanariesTried)
    removed, issue_cost = last_of(rare, TextRemoved), last_of(rare, IssueCostSummed)
    collected = last_of(rare, WorkCollected)
    verdict = answer.get("verdict") if answer else None
    return replace(
        report,
        isolation=_isolation(report.isolation, rare),
        outcome=ended.outcome,
        code=code_of(ended.outcome, known, report.problems),
        reason=ended.reason,
        success=ended.success,
        iterations=state.iteration,
        final_step_id=begun.step_id if begun else report.entry_step_id,
        history=read.history(),
        structured_output=answer,
        verdict=verdict if isinstance(verdict, str) and verdict else None,
        handoff={step: {**values} for step, values in state.handoff.items()},
        validators=tuple(_validator_run(event) for event in rare if isinstance(event, ValidatorRan)),
        base_checks=tuple(_base_check(event) for event in state.base_checks.values()),
        changes=collected.changes if collected else None,
        validated=_validated(rare),
        effects=_receipts(rare),
        texts={event.kind: event.text for event in rare if isinstance(event, EffectPlanned) and event.text},
        usage=state.usage,
        cost_usd=None if state.unpriced else state.cost_usd,
        seconds=round(read.seconds, 3),
        spec_violations=state.violations,
        canaries=dict(canaries.canaries) if canaries else {},
        removed_text=RemovedText(count=removed.count, pieces=tuple(removed.pieces)) if removed else RemovedText(),
        failure_report=(failure.url or failure.detail) if failure else None,
        kept_branch=failure.branch if failure else "",
        kept_commit=failure.commit if failure else "",
        issue_cost=describe_issue_cost(issue_cost) if issue_cost else "",
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
        dialect=Dialect(started.dialect) if started else agent.dialect if agent else "",
        definition_digest=started.definition_digest if started else agent.digest if agent else "",
        verdict_type=VerdictType(started.verdict_type) if started else agent.verdict.type if agent else "",
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


def _isolation(isolation: Mapping[str, str], events: Iterable[Event]) -> Mapping[str, str]:
    """What became known of a layer after the start."""
    states = dict(isolation)
    for event in events:
        if isinstance(event, LayerReported):
            states[event.layer] = "; ".join(filter(None, (states.get(event.layer), event.state)))
    return states


def _validator_run(event: ValidatorRan) -> ValidatorRun:
    return ValidatorRun(
        iteration=event.iteration,
        name=event.name,
        command=event.command,
        passed=event.passed,
        exit_code=event.exit_code,
        pattern=event.pattern,
        attempt=event.attempt,
        action=event.action.value if event.action else None,
        seconds=event.seconds,
        output_tail=event.output_tail,
        warnings=tuple(event.warnings),
    )


def _base_check(event: BaseChecked) -> BaseCheck:
    return BaseCheck(**{name: value for name, value in vars(event).items() if name != "event"})


def _validated(events: Iterable[Event]) -> bool:
    """What the last closing found; before the boundary of a resumed run the validators are judged again."""
    validated = False
    for event in events:
        match event:
            case FlowEnded() | CompletionJudged():
                validated = event.validated
            case RunResumed():
                validated = False
            case WorkCollected() if event.uncommitted:
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


def _standing_failure(events: Sequence[Event]) -> FailureReported | None:
    """The report of the failure that stands: a run that was resumed takes the failure before it back."""
    last = next((event for event in reversed(events) if isinstance(event, (FailureReported, RunResumed))), None)
    return last if isinstance(last, FailureReported) else None
