"""The Flow loop: take the step, ask, read the gate, choose the move.

Takes: an agent definition, the facts of the run, ports, and the state to go on from. Gives: `FlowResult`.
May touch: nothing itself; everything outside is a port (flow.md §3).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from stepflow.domain.attempt_event import Routed
from stepflow.domain.decision import Close, Done, Failed, FlowResult, GoTo, NotDone, Stop, Unproven
from stepflow.domain.event import CompletionJudged, FlowEnded
from stepflow.domain.words import CODE_OF_OUTCOME, Outcome
from stepflow.engine.attempt import Answered, attempt_step
from stepflow.engine.completion.judge import judge_completion
from stepflow.engine.prompt.retry import render_retry
from stepflow.engine.router import choose_move, repeat_move
from stepflow.engine.track import Track

if TYPE_CHECKING:
    from stepflow.domain.definition import AgentDefinition, Step, ValidationEntry
    from stepflow.domain.json import JsonObject
    from stepflow.domain.run import RunFacts
    from stepflow.domain.state import RunState
    from stepflow.ports import Ports

#: Where a run stopped, the first words of every reason (flow.md §11).
FLOW_LOOP = "Flow loop"
COMPLETION_LOOP = "Completion loop"


def run_flow(agent: AgentDefinition, facts: RunFacts, ports: Ports, state: RunState) -> FlowResult:
    """Run steps until an outcome is reached. `state` is the fold of the events so far, `run_started` among them."""
    track = Track(agent=agent, facts=facts, ports=ports, state=state)
    while True:
        step = agent.steps[track.state.step_id]
        if stop := track.limit_reached(next_step=step.id):
            return end_flow(track, FLOW_LOOP, stop)
        attempt = attempt_step(track, step)
        match attempt:
            case None:
                continue
            case Stop():
                return end_flow(track, FLOW_LOOP, attempt)
            case Answered():
                move = choose_move(step, attempt.decision, agent.steps)
            case _:
                assert_never(attempt)
        leave(track, step, attempt, move)
        match move:
            case GoTo():
                continue
            case Stop():
                return end_flow(track, FLOW_LOOP, move, attempt.answer)
            case Close():
                if (result := complete(track, step, attempt)) is not None:
                    return result
            case _:
                assert_never(move)


def leave(track: Track, step: Step, attempt: Answered, move: GoTo | Stop | Close) -> None:
    """Record where the step leads."""
    decision = attempt.decision
    if step.initial and decision.intent == "handoff":
        track.note("warning", f'[StepFlow] handoff from initial step "{step.id}"')
    target = move.step_id if isinstance(move, GoTo) else None
    by_prefix = isinstance(move, GoTo) and move.by_prefix
    track.record(
        Routed(source=step.id, to=target, transition=decision.word, reason=decision.reason, by_prefix=by_prefix)
    )


def complete(track: Track, step: Step, attempt: Answered) -> FlowResult | None:
    """The Completion loop's one pass: None sends the flow on with a retry prompt (flow.md §8)."""
    entry = step.validation
    if entry is None:
        return _completed(track, attempt, validated=False)
    verdict = judge_completion(
        entry,
        iteration=track.state.iteration,
        failures=track.state.attempts.get(entry.id, 0),
        root=track.facts.root,
        commands=track.ports.commands,
        guards=track.ports.guards,
        record=track.record,
    )
    match verdict:
        case Done():
            _judged(track, entry, step.id, validated=verdict.validated)
            return replace(_completed(track, attempt, validated=verdict.validated), closing=verdict.closing)
        case Failed():
            stop = Stop(outcome=Outcome.VALIDATION_FAILED, reason=verdict.reason)
            return end_flow(track, COMPLETION_LOOP, stop, attempt.answer)
        case Unproven():
            stop = Stop(outcome=Outcome.REFUSED, reason=f"refused: {verdict.reason}")
            return end_flow(track, COMPLETION_LOOP, stop, attempt.answer)
        case NotDone():
            return _retry(track, step, entry, attempt, verdict)
        case _:
            assert_never(verdict)


def end_flow(
    track: Track, where: str, stop: Stop, answer: JsonObject | None = None, *, validated: bool = False
) -> FlowResult:
    """Write the end of the flow down and make its result."""
    code = CODE_OF_OUTCOME.get(stop.outcome)
    reason = f"{where}: {code + ': ' if code else ''}{stop.reason}"
    state = track.state
    track.record(
        FlowEnded(outcome=stop.outcome, reason=reason, step_id=state.step_id, answer=answer, validated=validated)
    )
    return FlowResult(
        outcome=stop.outcome,
        reason=reason,
        step_id=state.step_id,
        iterations=state.iteration,
        answer=answer,
        handoff=state.handoff,
        validated=validated,
    )


def _completed(track: Track, attempt: Answered, *, validated: bool) -> FlowResult:
    end = Stop(outcome=Outcome.COMPLETED, reason=attempt.decision.reason)
    return end_flow(track, COMPLETION_LOOP, end, attempt.answer, validated=validated)


def _retry(track: Track, step: Step, entry: ValidationEntry, attempt: Answered, verdict: NotDone) -> FlowResult | None:
    target = repeat_move(step, attempt.decision.handoff, track.agent.steps)
    if isinstance(target, Stop):
        return end_flow(track, COMPLETION_LOOP, target, attempt.answer)
    retry = render_retry(entry, verdict.failure, step.id, track.variables(step))
    track.note("info", f'[Prompt] step "{target.step_id}": retry text from {retry.source}')
    _judged(track, entry, target.step_id, retry_prompt=retry.text, retry_source=retry.source)
    return None


def _judged(
    track: Track,
    entry: ValidationEntry,
    step_id: str,
    *,
    validated: bool = False,
    retry_prompt: str | None = None,
    retry_source: str | None = None,
) -> None:
    track.record(
        CompletionJudged(
            entry=entry.id,
            done=retry_prompt is None,
            validated=validated,
            step_id=step_id,
            retry_prompt=retry_prompt,
            retry_source=retry_source,
        )
    )
