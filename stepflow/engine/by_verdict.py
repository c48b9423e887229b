"""The intent found by the verdict, in a registry without gates and checks (flow.md §9.2).

Takes: an open conversation, the step and its schema. Gives: `Reading` or `Stop`.
May touch: the model, through the conversation; the agent's own verdict, through its port.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepflow.domain.decision import Decided
from stepflow.domain.words import Intent, StepKind
from stepflow.engine.answer import Heard, Reading, Settled, hear_answer, settle_format
from stepflow.engine.completion.finished import Fed, why_finished
from stepflow.engine.gate.answer import check_format
from stepflow.engine.gate.decision import stated_reason
from stepflow.engine.router import continuation_of

if TYPE_CHECKING:
    from stepflow.domain.decision import Unanswered
    from stepflow.domain.definition import Step
    from stepflow.domain.json import JsonObject
    from stepflow.engine.conversation import Conversation
    from stepflow.engine.track import Track


def read_by_verdict(conversation: Conversation, step: Step, schema: JsonObject | None) -> Reading | Unanswered:
    """The step's answer, and whether the verdict says that the work is finished."""
    track = conversation.track
    heard = hear_answer(conversation, step)
    if not isinstance(heard, Heard):
        return heard
    if schema is None:
        return judge(track, step, Settled(answer=heard.answer), tuple(conversation.texts))
    settled = settle_format(conversation, step, heard, lambda one: check_format(one, schema))
    if not isinstance(settled, Settled):
        return settled
    return judge(track, step, settled, tuple(conversation.texts))


def judge(track: Track, step: Step, settled: Settled, texts: tuple[str, ...]) -> Reading:
    """Feed the verdict with one iteration. An answer that does not fit its schema does not finish a closure step."""
    state, closure = track.state, step.kind is StepKind.CLOSURE
    fed = Fed(
        iteration=state.iteration,
        limit=track.facts.limits.iterations,
        answers=state.answers + 1,
        texts=texts,
        answer=settled.answer,
        closure=closure,
    )
    finished = why_finished(track.agent.verdict, fed, track.ports.verdict)
    answer = settled.answer or {}
    closing = step.validation.schema if step.validation else None
    fits = not closure or not (settled.errors or check_format(answer, closing))
    decision = _end(answer, finished) if finished and fits else _go_on(track, step, answer)
    return Reading(answer=answer, decision=decision)


def _end(answer: JsonObject, finished: str) -> Decided:
    return Decided(intent=Intent.CLOSING, reason=stated_reason(answer) or finished)


def _go_on(track: Track, step: Step, answer: JsonObject) -> Decided:
    """The step's `next`, else the continuation of an initial step, else the step once more."""
    reason = stated_reason(answer) or "the verdict does not call the work finished yet"
    if Intent.NEXT in step.edges or continuation_of(step.id, track.agent.steps):
        return Decided(intent=Intent.NEXT, reason=reason)
    return Decided(intent=Intent.REPEAT, target=step.id, reason=reason)
