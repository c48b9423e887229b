"""One step attempt: schema, prompt, model or command, gate (flow.md §3)."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from stepflow.domain.checkout import CommandRequest
from stepflow.domain.conversation import Message, ModelRequest, Remedy, text_block, without_images
from stepflow.domain.decision import Decided, Undecided
from stepflow.domain.event import (
    CommandRan,
    IterationStarted,
    PromptRendered,
    SchemaFailed,
    StepAnswered,
)
from stepflow.domain.json import as_text
from stepflow.domain.ladder import ModelChanged
from stepflow.domain.output_excerpt import excerpt, readable_output
from stepflow.domain.run import MAX_STRIKES
from stepflow.domain.tools import effective_tools
from stepflow.domain.words import Intent, Outcome, Strategy, StructuredOutput
from stepflow.engine.answer import check_format
from stepflow.engine.context import FlowStopped
from stepflow.engine.conversation import Conversation, ConversationEnded
from stepflow.engine.intent import (
    ParsedAnswer,
    Reading,
    decide,
    format_errors,
    give_up,
    judge,
    read_answer,
    set_step_id,
)
from stepflow.engine.ladder import current_rung
from stepflow.engine.native_schema import native_schema
from stepflow.engine.prompt.messages import answer_form, first_message_blocks, image_blocks, render_system
from stepflow.engine.prompt.render import PromptFailure, RenderedPrompt, render_prompt
from stepflow.ports import SchemaFailure

if TYPE_CHECKING:
    from stepflow.domain.checkout import CommandResult
    from stepflow.domain.definition import Step, StepCommand
    from stepflow.domain.json import JsonObject
    from stepflow.domain.state import RunState
    from stepflow.engine.context import FlowContext
    from stepflow.engine.prompt.variables import Variables

TREE_STAYS = "what it changed so far is in the working tree"
BEGUN_AGAIN = f"the conversation outgrew the model's context window, so the step begins again; {TREE_STAYS}"


@dataclass(frozen=True, kw_only=True)
class Answered:
    """A step attempt that ended with an intent: a readable one, or the engine's own `repeat`."""

    answer: JsonObject
    decision: Decided


def attempt_step(context: FlowContext, step: Step) -> Answered | None:
    """Run the step once and read its answer. Everything its tools left running is dead when this returns."""
    context.record(_begin(context, step))
    try:
        schema = context.ports.schemas.resolve(step)
    except SchemaFailure as failure:
        _strike(context, step, failure)
        return None
    before = context.state
    try:
        reading = _answer(context, step, schema)
    except FlowStopped:
        context.ports.tools.end_step()
        raise
    except ConversationEnded as ended:
        context.ports.tools.end_step()
        return _begin_again(context, before, ended)
    context.ports.tools.end_step()
    if reading is None:
        return None
    _record_answer(context, step, reading)
    if isinstance(reading.decision, Undecided):
        raise _undecided(context, step, reading.decision)
    return Answered(answer=reading.answer, decision=reading.decision)


def _begin(context: FlowContext, step: Step) -> IterationStarted:
    begun = IterationStarted(iteration=context.state.iteration + 1, step_id=step.id, kind=step.kind, model="")
    if step.command:
        return begun
    rung = current_rung(context, step)
    most = step.max_output_tokens
    return replace(begun, model=rung.model, effort=rung.effort or step.effort, max_output_tokens=most)


def _strike(context: FlowContext, step: Step, failure: SchemaFailure) -> None:
    strikes = context.state.strikes + 1
    context.record(SchemaFailed(step_id=step.id, strikes=strikes, reason=str(failure)))
    if strikes >= MAX_STRIKES:
        reason = f'the answer schema of step "{step.id}" could not be resolved {MAX_STRIKES} times in a row: {failure}'
        raise FlowStopped(Outcome.SCHEMA_FAILED, reason)


def _begin_again(context: FlowContext, before: RunState, ended: ConversationEnded) -> Answered:
    """The attempt is over, but nothing of it is lost: handoff, tree and retry prompt stay, and what was done in the
    conversations until here is told."""
    work = "\n\n".join(filter(None, (before.work_before, ended.event.work)))
    retry_prompt, retry_source = before.retry_prompt, before.retry_source
    context.record(replace(ended.event, retry_prompt=retry_prompt, retry_source=retry_source, work=work))
    is_changed = isinstance(ended.event, ModelChanged)
    reason = f"{ended.event}: {ended.event.reason}; {TREE_STAYS}" if is_changed else BEGUN_AGAIN
    return Answered(answer={}, decision=Decided(intent=Intent.REPEAT, reason=reason))


def _answer(context: FlowContext, step: Step, schema: JsonObject | None) -> Reading | None:
    if step.command:
        return _run_command(context, step, step.command, schema)
    request = _open(context, step, schema)
    context.ports.tools.begin_step(request.tools)
    in_words = request.strategy is Strategy.PROMPT
    conversation = Conversation(
        context=context, request=request, in_words=in_words, described_schema=schema if in_words else None
    )
    return read_answer(conversation, step, schema)


def _open(context: FlowContext, step: Step, schema: JsonObject | None) -> ModelRequest:
    """The opening of the conversation; the retry prompt, if there is one, replaces the step's (prompts.md §7)."""
    agent, facts = context.agent, context.facts
    rung = current_rung(context, step)
    model = rung.model
    variables = context.variables(step)
    prompt = _prompt(context, step, variables)
    if isinstance(prompt, PromptFailure):
        raise FlowStopped(Outcome.INVALID_DEFINITION, prompt.message)
    blocks = first_message_blocks(
        prompt.text, agent=agent, step=step, facts=facts, state=context.state, variables=variables
    )
    strategy = _choose_strategy(context, model, schema)
    if strategy is Strategy.PROMPT and schema is not None:
        blocks = (*blocks, answer_form(schema))
    opening = Message(role="user", content=(*map(text_block, blocks), *image_blocks(facts.images)))
    if Remedy.LEAVE_OUT_IMAGES in context.state.remedies.get(model, ()):
        opening = without_images(opening)
    system = render_system(agent, step, variables)
    request = ModelRequest(
        step_id=step.id,
        iteration=context.state.iteration,
        model=model,
        system=system.text,
        cacheable=system.cacheable,
        messages=(opening,),
        tools=tuple(effective_tools(agent, step, context.facts.working_directory).values()),
        schema=schema,
        strategy=strategy,
        effort=rung.effort or step.effort,
        max_output_tokens=step.max_output_tokens,
    )
    _record_opening(context, request, blocks, prompt)
    return request


def _choose_strategy(context: FlowContext, model: str, schema: JsonObject | None) -> Strategy:
    """How this conversation asks for its answer, from its first request to its last: in words where the service is
    known not to heed a schema, or where structured output cannot express this one."""
    given = context.facts.structured_output
    known = context.state.remedies.get(model, frozenset())
    is_refused = Remedy.ASK_IN_WORDS in known and given is not StructuredOutput.NATIVE
    if given is StructuredOutput.PROMPT or is_refused or (schema is not None and native_schema(schema) is None):
        return Strategy.PROMPT
    return Strategy.NATIVE


def _prompt(context: FlowContext, step: Step, variables: Variables) -> RenderedPrompt | PromptFailure:
    state = context.state
    if state.retry_prompt is not None:
        return RenderedPrompt(text=state.retry_prompt, source=state.retry_source or "")
    for hidden in variables.hidden:
        context.note("debug", f'[Prompt] step "{step.id}": {hidden}')
    prompt = render_prompt(context.agent, step, variables, context.facts.input_text)
    if isinstance(prompt, RenderedPrompt) and prompt.used_fallback:
        message = f'[Prompt] step "{step.id}": fallback template "{prompt.used_fallback}"'
        context.note("warning", message, {"cause": prompt.cause})
    return prompt


def _record_opening(
    context: FlowContext, request: ModelRequest, blocks: tuple[str, ...], prompt: RenderedPrompt
) -> None:
    names = [tool.name for tool in request.tools]
    context.note("debug", f'[Tools] step "{request.step_id}": {", ".join(names) or "none"}')
    context.record(
        PromptRendered(
            system=request.system,
            blocks=list(blocks),
            source=prompt.source,
            retry=context.state.retry_prompt is not None,
            tools=names,
            substitutions=list(prompt.substitutions),
        )
    )


def _record_answer(context: FlowContext, step: Step, reading: Reading) -> None:
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
    context.record(event)


def _undecided(context: FlowContext, step: Step, decision: Undecided) -> FlowStopped:
    iteration = context.state.iteration
    context.note(
        "error", f'[StepFlow] No intent on iteration {iteration}, step "{step.id}"', {"found": decision.reason}
    )
    return FlowStopped(Outcome.ROUTING_FAILED, f'{decision.lacking} of step "{step.id}": {decision.reason}')


#: A run argument in a word of a command step.
_ARGUMENT = re.compile(r"\$\{context\.([^}]+)\}")


def _run_command(context: FlowContext, step: Step, command: StepCommand, schema: JsonObject | None) -> Reading:
    """A process answers instead of the model: its stdout is read, without format retries (flow.md §4.5)."""
    missing = [name for arg in command.args for name in _ARGUMENT.findall(arg) if context.facts.args.get(name) is None]
    if missing:
        reason = f'command step "{step.id}" needs the run argument "{missing[0]}", which has no value'
        raise FlowStopped(Outcome.INVALID_DEFINITION, reason)
    args = (_ARGUMENT.sub(lambda match: as_text(context.facts.args[match[1]]), arg) for arg in command.args)
    request = CommandRequest(argv=(command.command, *args), timeout=command.timeout)
    result = context.ports.commands.run_command(request)
    context.record(
        CommandRan(
            step_id=step.id,
            argv=list(request.argv),
            exit_code=result.exit_code,
            stdout=result.stdout,
            stderr=result.stderr,
            timed_out=result.timed_out,
            started=result.started,
            error=result.error,
            seconds=result.seconds,
        )
    )
    if result.exit_code != 0 or result.timed_out or not result.started:
        raise FlowStopped(Outcome.VALIDATION_FAILED, _failure(step, request, result))
    answer = set_step_id(context, step, _answer_of(result.stdout))
    gate = step.gate
    errors = format_errors(step, gate, answer, schema) if gate else check_format(answer, schema)
    if errors:
        give_up(context, step, errors)
    if gate is None:
        return judge(context, step, ParsedAnswer(answer=answer, errors=errors), (result.stdout,))
    return Reading(answer=answer, decision=decide(context, step, gate, answer, errors))


def _failure(step: Step, request: CommandRequest, result: CommandResult) -> str:
    said = result.error or excerpt(readable_output(result.output), 500).strip() or "no output"
    return f'command step "{step.id}" ({request.argv[0]}) failed with exit code {result.exit_code}: {said}'


def _answer_of(stdout: str) -> JsonObject:
    try:
        value = json.loads(stdout)
    except (ValueError, RecursionError):
        return {"raw": stdout}
    return value if isinstance(value, dict) else {"raw": stdout, "parsed": value}
