"""Builds the report of a run from the entries of its journal (flow.md §11)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from stepflow.domain import event as events
from stepflow.domain.agent.agent_settings import ClimbCause, ModelChanged
from stepflow.domain.agent.definition import AgentDefinition
from stepflow.domain.connection import HostRequests, HostsRequested
from stepflow.domain.conversation import ModelTurn, ToolCall, Usage
from stepflow.domain.effect import (
    ApprovalAsked,
    EffectKind,
    EffectStatus,
    Receipt,
    SuggestionsTried,
)
from stepflow.domain.end import End
from stepflow.domain.flow import RunState, advance
from stepflow.domain.json import value_at
from stepflow.domain.proof import Proof
from stepflow.domain.reports.report import CheckResult, HistoryEntry, RunReport
from stepflow.domain.run import ImagesRead
from stepflow.domain.text import TextRemoved, sum_costs
from stepflow.domain.words import CODE_OF_OUTCOME, Dialect, Intent, Outcome, Stage, state_reason
from stepflow.errors import Problem, Severity
from stepflow.report.wording import describe_issue_cost

E = TypeVar("E")
OF_A_STEP = (
    *(events.PromptRendered, ModelTurn, events.AnswerLost, ToolCall, events.UserMessage),
    *(events.CacheRenewed, events.ContextOverflowed, ModelChanged, events.CheckJudged),
    *(events.StepAnswered, events.Routed),
)
PAID = (ModelTurn, events.AnswerLost, events.CacheRenewed)
#: How the flow and the run ended, and what belongs to that end.
OF_AN_END = (
    *(events.FlowEnded, events.RunFinished, events.WorkCollected, events.FailureReported),
    events.IssueCostSummed,
)
#: Events that show that the run continued after an end. What belonged to that end no longer applies.
GOES_ON = (events.RunStarted, events.RunResumed, events.IterationStarted, *OF_A_STEP)
#: Events after which the run must end anew.
NOT_OVER = (
    *(events.FlowEnded, events.EffectPlanned, events.EffectApplied, events.ValidatorRan, events.CompletionJudged),
)
WRITTEN = frozenset({EffectStatus.APPLIED, EffectStatus.SKIPPED})
UNFINISHED = "the journal ends here; the run was stopped from outside before it could say why."


class Reading:
    """Reads a journal one entry at a time and collects the report. Even for a long run, it keeps no more than is
    shown."""

    def __init__(self, entries: Iterable[events.Entry]) -> None:
        self.state = RunState()
        self.seconds = 0.0
        #: The results of the last closing.
        self.validated = False
        self.validators: list[events.ValidatorRan] = []
        self.proof: Proof | None = None
        #: One receipt per effect, in the order of the plan: the latest one, or the planned one if there is no other.
        self.receipts: dict[EffectKind, Receipt] = {}
        self.texts: dict[str, str] = {}
        self.layers: dict[str, str] = {}
        self.hosts: dict[str, HostRequests] = {}
        self._last: dict[type, object] = {}
        self._lines: list[HistoryEntry] = []
        self._before: events.Entry | None = None
        self._begun: events.IterationStarted | None = None
        self._iteration: list[events.Event] = []
        self._spent = 0.0
        self._running = False
        for entry in entries:
            self.add(entry)

    def add(self, entry: events.Entry) -> None:
        """Add one entry."""
        event, before, seconds = entry.event, self._before, 0.0
        # The time during which the run was stopped, such as before a resume, does not count.
        begins = isinstance(event, events.RunStarted | events.RunResumed)
        if before and not begins and not isinstance(before.event, events.RunFinished):
            seconds = max(0.0, entry.time - before.time)
        self._before = entry
        self.seconds += seconds
        self.state = advance(self.state, event)
        if isinstance(event, GOES_ON):
            self._forget_end()
        elif isinstance(event, NOT_OVER):
            self._last.pop(events.RunFinished, None)
        self._last[type(event)] = event
        self._follow_iteration(event, seconds)
        self._note(event)

    def last(self, kind: type[E]) -> E | None:
        """Return the last event of a kind, or None. Of an end, there is none once the run continues."""
        event = self._last.get(kind)
        return event if isinstance(event, kind) else None

    def history(self) -> tuple[HistoryEntry, ...]:
        """Return one entry per iteration, in order. A crash may have cut the last one short."""
        return (*self._lines, *self._open_line())

    def _open_line(self) -> tuple[HistoryEntry, ...]:
        return (_history_entry(self._begun, self._iteration, self._spent),) if self._begun else ()

    def _forget_end(self) -> None:
        """Clear what belonged to the end, because the run continues. What was written to GitHub is kept."""
        for kind in OF_AN_END:
            self._last.pop(kind, None)
        self.receipts = {kind: receipt for kind, receipt in self.receipts.items() if receipt.status in WRITTEN}
        self.texts = {kind: text for kind, text in self.texts.items() if kind in self.receipts}

    def _follow_iteration(self, event: events.Event, seconds: float) -> None:
        # After an end, these events mean that the run was resumed inside the interrupted iteration.
        self._running = self._running or isinstance(event, OF_A_STEP)
        if self._running:
            self._iteration.append(event)
            self._spent += seconds
        if isinstance(event, events.IterationStarted):
            self._lines.extend(self._open_line())
            self._begun, self._iteration, self._spent, self._running = event, [], 0.0, True
        elif isinstance(event, events.FlowEnded | events.RunResumed):
            self._running = False

    def _note(self, event: events.Event) -> None:
        match event:
            case events.LayerReported(layer=layer, state=state):
                self.layers[layer] = "; ".join(filter(None, (self.layers.get(layer), state)))
            case HostsRequested(hosts=hosts):
                for each in hosts:
                    before = self.hosts.get(each.host, HostRequests(host=each.host, allowed=0, refused=0))
                    allowed, refused = before.allowed + each.allowed, before.refused + each.refused
                    self.hosts[each.host] = replace(each, allowed=allowed, refused=refused)
            case events.ValidatorRan():
                self.validators.append(event)
                self.proof = event.proof or self.proof
            case events.FlowEnded() | events.CompletionJudged():
                self.validated = event.validated
            case events.RunResumed():
                # The validators are judged again before the boundary.
                self.validated = False
            case events.WorkCollected() if event.uncommitted:
                # The files that leave are not the ones that the validators checked (boundary.md §4).
                self.validated = False
            case events.EffectPlanned(kind=kind, detail=detail):
                self.receipts.setdefault(kind, Receipt(kind=kind, status=EffectStatus.PLANNED, detail=detail))
                if event.text:
                    self.texts[kind] = event.text
            case events.EffectApplied(kind=kind):
                planned = self.receipts.get(kind)
                detail = event.detail or (planned.detail if planned else "")
                self.receipts[kind] = replace(event.receipt, detail=detail, unwritten="")
                self.texts.pop(kind, None)
                if event.unwritten:
                    self.texts[kind] = event.unwritten
            case _:
                pass


def _history_entry(begun: events.IterationStarted, happened: Sequence[events.Event], seconds: float) -> HistoryEntry:
    paid = [event for event in happened if isinstance(event, PAID)]
    models = [event.model for event in paid if isinstance(event, ModelTurn) and event.model]
    answered, routed = _last_of(happened, events.StepAnswered), _last_of(happened, events.Routed)
    checked = _last_of(happened, events.CheckJudged)
    changed = _last_of(happened, ModelChanged)
    # A step whose conversation ended before its answer starts over.
    begun_again = changed is not None and changed.cause is not ClimbCause.VALIDATOR
    ends = [event for event in happened if isinstance(event, events.StepAnswered | events.ContextOverflowed)]
    last = changed if begun_again else ends[-1] if ends else None
    return HistoryEntry(
        iteration=begun.iteration,
        step_id=begun.step_id,
        kind=begun.kind,
        intent=last.intent if isinstance(last, events.StepAnswered) else Intent.REPEAT if last else None,
        transition=routed.transition if routed else "none",
        # A jump goes to the target that the answer named. Every other intent goes where the transition leads.
        target=(routed.to if routed else None) or (answered.target if answered else None),
        reason=answered.reason if answered else "",
        check_result=CheckResult(result=checked.result, message=checked.message) if checked else None,
        format_retries=sum(isinstance(event, events.UserMessage) and event.format_retry for event in happened),
        tool_calls=sum(isinstance(event, ToolCall) for event in happened),
        model=models[-1] if models else begun.model,
        effort=begun.effort,
        max_output_tokens=begun.max_output_tokens,
        usage=sum((event.usage for event in paid), Usage()),
        cost_usd=sum_costs(event.cost_usd for event in paid),
        seconds=round(seconds, 3),
        model_change=changed,
    )


def _last_of(happened: Sequence[events.Event], kind: type[E]) -> E | None:
    return next((event for event in reversed(happened) if isinstance(event, kind)), None)


#: Of a run that could not say how it ended.
NO_END = End(outcome=Outcome.CANCELLED, stage=Stage.BEFORE, reason="")


@dataclass(frozen=True, kw_only=True)
class ReportFacts:
    """Facts that the journal cannot contain."""

    run_id: str = ""
    agent: str = ""
    #: Counts only if the journal has no end: the run never began, or it was killed. A caller that writes the comment of
    #: a completed flow before its effects are applied passes `completed`. The `code` overrides the journal's.
    end: End = NO_END
    problems: tuple[Problem, ...] = ()
    issue: int | None = None
    #: These two override the journal's.
    base_commit: str = ""
    isolation: Mapping[str, str] = field(default_factory=dict)
    run_folder: str = ""
    host_run_folder: str = ""


def _find_end(read: Reading, known: End) -> End:
    """Return how the run ended. A completed flow alone does not end the run, because its boundary had not finished."""
    flow = read.last(events.FlowEnded)
    if finished := read.last(events.RunFinished):
        return finished
    if flow and flow.outcome is not Outcome.COMPLETED:
        return flow
    if known.reason:
        return known
    if flow and known.outcome is Outcome.COMPLETED:
        return flow
    stage = Stage.COMPLETION if flow else Stage.FLOW if read.last(events.IterationStarted) else Stage.BEFORE
    return replace(known, stage=stage, reason=UNFINISHED)


def _isolation(read: Reading, known: ReportFacts) -> dict[str, str]:
    """Return the state of each layer at the start, plus what was reported about it since."""
    started = read.last(events.RunStarted)
    isolation = dict(known.isolation or (started.isolation if started else {}))
    for layer, state in read.layers.items():
        isolation[layer] = "; ".join(filter(None, (isolation.get(layer), state)))
    return isolation


def _code_of(outcome: Outcome, known: ReportFacts, problems: Iterable[Problem]) -> str | None:
    """Return the code of the outcome, if it has one (definition.md §9)."""
    if known.end.code or outcome in CODE_OF_OUTCOME:
        return known.end.code or CODE_OF_OUTCOME[outcome]
    is_invalid = outcome is Outcome.INVALID_DEFINITION
    return next((p.code for p in problems if is_invalid and p.severity is Severity.ERROR), None)


def collect_report(
    entries: Iterable[events.Entry], agent: AgentDefinition | None = None, *, facts: ReportFacts | None = None
) -> RunReport:
    """Build the report from these entries. A crashed or canceled run has some of them, and an unbegun one has none."""
    known, read = facts or ReportFacts(), Reading(entries)
    run, ended, flow = read.state, _find_end(read, known.end), read.last(events.FlowEnded)
    collected, tried = read.last(events.WorkCollected), read.last(SuggestionsTried)
    cost = read.last(events.IssueCostSummed)
    started, begun = read.last(events.RunStarted), read.last(events.IterationStarted)
    canaries, removed, images = read.last(events.CanariesTried), read.last(TextRemoved), read.last(ImagesRead)
    answer, asked = flow.answer if flow else None, read.last(ApprovalAsked)
    verdict = answer.get("verdict") if answer else None
    entry_step = started.entry_step if started else agent.entry_step if agent else ""
    problems = known.problems or (agent.problems if agent else ())
    report = RunReport(
        run_id=started.run_id if started else known.run_id,
        outcome=ended.outcome,
        code=_code_of(ended.outcome, known, problems),
        reason=state_reason(ended.stage, ended.outcome, ended.reason),
        stage=ended.stage,
        explanation=ended.reason,
        success=flow is not None and ended.outcome is Outcome.COMPLETED,
        iterations=run.iteration,
        agent=started.agent if started else agent.name if agent else known.agent,
        dialect=Dialect(started.dialect) if started else agent.dialect if agent else "",
        definition_digest=started.definition_digest if started else agent.digest if agent else "",
        verdict_type=started.verdict_type if started else agent.verdict.type if agent else "",
        entry_step_id=entry_step,
        final_step_id=begun.step_id if begun else entry_step,
        history=read.history(),
        structured_output=answer,
        verdict=verdict if isinstance(verdict, str) and verdict else None,
        handoff={step: {**values} for step, values in run.handoff.items()},
        validators=tuple(read.validators),
        base_checks=tuple(run.base_checks.values()),
        changes=collected.changes if collected else None,
        validated=read.validated,
        proof=read.proof,
        suggestions=tried.results if tried else None,
        effects=tuple(read.receipts.values()),
        texts=read.texts,
        usage=run.usage,
        cost_usd=None if run.unpriced else run.cost_usd,
        seconds=round(read.seconds, 3),
        problems=problems,
        spec_violations=run.violations,
        issue=started.issue if started and started.issue is not None else known.issue,
        base_commit=known.base_commit or (started.base_commit if started else ""),
        isolation=_isolation(read, known),
        canaries=dict(canaries.canaries) if canaries else {},
        removed_text=removed or TextRemoved(),
        issue_cost=describe_issue_cost(cost) if cost else "",
        run_folder=known.run_folder,
        host_run_folder=known.host_run_folder,
        approval=asked if ended.outcome is Outcome.AWAITING_APPROVAL else None,
        hosts=tuple(read.hosts.values()),
        images=tuple(images.images) if images else (),
    )
    return _with_more(report, read)


def _with_more(report: RunReport, read: Reading) -> RunReport:
    """Add what the run started from, and what became of a failed one."""
    if failure := read.last(events.FailureReported):
        told, branch = failure.url or failure.detail, failure.branch
        report = replace(report, failure_report=told, kept_branch=branch, kept_commit=failure.commit)
    if started := read.last(events.RunStarted):
        report = replace(
            report,
            provider=str(value_at(started.options, "model.provider") or ""),
            follow_up=started.follow_up,
            reviewed=started.reviewed,
            guidance=tuple(started.guidance),
        )
    return report
