"""One step attempt: schema, prompt, model or command, gate.

Takes: a track and the step. Gives: `Answered`, `Stop`, or None when the iteration ends without an answer (flow.md §3).
May touch: model, tools, commands and schemas, through their ports.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from stepflow.domain.attempt_event import (
    MAX_STRIKES,
    ContextOutgrown,
    IterationStarted,
    PromptRendered,
    SchemaFailed,
    StepAnswered,
)
from stepflow.domain.conversation import Message, ModelRequest, text_block
from stepflow.domain.decision import Decided, Outgrown, Stop, Undecided
from stepflow.domain.tools import effective_tools
from stepflow.domain.words import Intent, Outcome, Strategy
from stepflow.engine.answer import Reading
from stepflow.engine.command import run_command_step
from stepflow.engine.conversation import Conversation
from stepflow.engine.prompt.messages import answer_form, cacheable_prefix, first_message_blocks, render_system
from stepflow.engine.prompt.render import PromptFailure, RenderedPrompt, render_prompt
from stepflow.engine.reading import read_answer
from stepflow.engine.strategy import strategy_for
from stepflow.ports import SchemaFailure

if TYPE_CHECKING:
    from stepflow.domain.decision import Unanswered
    from stepflow.domain.definition import Step
    from stepflow.domain.json import JsonObject
    from stepflow.engine.prompt.variables import Variables
    from stepflow.engine.track import Track

BEGUN_AGAIN = (
    "the conversation outgrew the model's context window, so the step begins again; what it did so far is in the "
    "working tree"
)


@dataclass(frozen=True, kw_only=True)
class Answered:
    """A step attempt that ended with an intent: a readable one, or the engine's own `repeat`."""

    answer: JsonObject
    decision: Decided


def attempt_step(track: Track, step: Step) -> Answered | Stop | None:
    """Run the step once and read its answer. Everything its tools left running is dead when this returns."""
    model = "" if step.command else step.model or track.facts.model or track.agent.default_model
    iteration = track.state.iteration + 1
    track.record(IterationStarted(iteration=iteration, step_id=step.id, kind=step.kind, model=model))
    try:
        schema = track.ports.schemas.resolve(step)
    except SchemaFailure as failure:
        return _strike(track, step, failure)
    retry = track.state.retry_prompt, track.state.retry_source
    reading = _answer(track, step, schema, model)
    track.ports.tools.end_step()
    if isinstance(reading, Outgrown):
        return _begin_again(track, step, reading, *retry)
    if not isinstance(reading, Reading):
        return reading
    _record_answer(track, step, reading)
    if isinstance(reading.decision, Undecided):
        return _undecided(track, step, reading.decision)
    return Answered(answer=reading.answer, decision=reading.decision)


def _strike(track: Track, step: Step, failure: SchemaFailure) -> Stop | None:
    strikes = track.state.strikes + 1
    track.record(SchemaFailed(step_id=step.id, strikes=strikes, reason=str(failure)))
    if strikes < MAX_STRIKES:
        return None
    reason = f'the answer schema of step "{step.id}" could not be resolved {MAX_STRIKES} times in a row: {failure}'
    return Stop(outcome=Outcome.SCHEMA_FAILED, reason=reason)


def _begin_again(
    track: Track, step: Step, outgrown: Outgrown, retry_prompt: str | None, retry_source: str | None
) -> Answered:
    """The attempt is over, but nothing of it is lost: handoff, tree and retry prompt stay (flow.md §6.1, §10)."""
    track.record(
        ContextOutgrown(
            step_id=step.id,
            reason=outgrown.reason,
            by_fault=outgrown.by_fault,
            retry_prompt=retry_prompt,
            retry_source=retry_source,
        )
    )
    return Answered(answer={}, decision=Decided(intent=Intent.REPEAT, reason=BEGUN_AGAIN))


def _answer(track: Track, step: Step, schema: JsonObject | None, model: str) -> Reading | Unanswered | None:
    if step.command:
        return run_command_step(track, step, step.command, schema)
    request = _open(track, step, schema, model)
    if isinstance(request, Stop):
        return request
    told = schema if request.strategy is Strategy.PROMPT else None
    return read_answer(Conversation(track=track, request=request, told=told), step, schema)


def _open(track: Track, step: Step, schema: JsonObject | None, model: str) -> ModelRequest | Stop:
    """The opening of the conversation; the retry prompt, if there is one, replaces the step's (prompts.md §7)."""
    agent, facts = track.agent, track.facts
    variables = track.variables(step)
    prompt = _prompt(track, step, variables)
    if isinstance(prompt, PromptFailure):
        return Stop(outcome=Outcome.INVALID_DEFINITION, reason=prompt.message)
    blocks = first_message_blocks(
        prompt.text, agent=agent, step=step, facts=facts, state=track.state, variables=variables
    )
    strategy = strategy_for(track, model)
    if strategy is Strategy.PROMPT and schema is not None:
        blocks = (*blocks, answer_form(schema))
    tools = effective_tools(step.kind, agent.allowed_tools, step.permission_mode or agent.permission_mode)
    system = render_system(agent, step, variables)
    request = ModelRequest(
        step_id=step.id,
        iteration=track.state.iteration,
        model=model,
        system=system,
        steady=cacheable_prefix(system),
        messages=(Message(role="user", content=tuple(map(text_block, blocks))),),
        tools=tools,
        schema=schema,
        strategy=strategy,
    )
    _record_opening(track, request, blocks, prompt.source)
    return request


def _prompt(track: Track, step: Step, variables: Variables) -> RenderedPrompt | PromptFailure:
    state = track.state
    if state.retry_prompt is not None:
        return RenderedPrompt(text=state.retry_prompt, source=state.retry_source or "")
    for hidden in variables.hidden:
        track.note("debug", f'[Prompt] step "{step.id}": {hidden}')
    prompt = render_prompt(track.agent, step, variables, track.facts.input_text)
    if isinstance(prompt, RenderedPrompt) and prompt.used_fallback:
        message = f'[Prompt] step "{step.id}": fallback template "{prompt.used_fallback}"'
        track.note("warning", message, {"cause": prompt.cause})
    return prompt


def _record_opening(track: Track, request: ModelRequest, blocks: tuple[str, ...], source: str) -> None:
    names = [tool.name for tool in request.tools]
    track.note("debug", f'[Tools] step "{request.step_id}": {", ".join(names) or "none"}')
    retry = track.state.retry_prompt is not None
    track.record(PromptRendered(system=request.system, blocks=list(blocks), source=source, retry=retry, tools=names))


def _record_answer(track: Track, step: Step, reading: Reading) -> None:
    decision = reading.decision
    event = StepAnswered(step_id=step.id, answer=reading.answer, intent=None, target=None, reason=decision.reason)
    if not isinstance(decision, Undecided):
        event = replace(
            event,
            intent=decision.intent,
            target=decision.target,
            handoff=dict(decision.handoff),
            violation=decision.violation,
        )
    track.record(event)


def _undecided(track: Track, step: Step, decision: Undecided) -> Stop:
    iteration = track.state.iteration
    track.note("error", f'[StepFlow] No intent on iteration {iteration}, step "{step.id}"', {"found": decision.reason})
    return Stop(outcome=Outcome.ROUTING_FAILED, reason=f'{decision.lacking} of step "{step.id}": {decision.reason}')
