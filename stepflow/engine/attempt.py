"""One step attempt, from top to bottom: prompt, model and tools, answer, decision."""

from __future__ import annotations

import json
import re
from dataclasses import replace

from stepflow.domain.agent.agent_settings import ClimbCause, ModelChanged, StepCommand
from stepflow.domain.agent.definition import Step, effective_tools
from stepflow.domain.checkout import CommandRequest, CommandResult
from stepflow.domain.conversation import Message, ModelRequest, Remedy, text_block, without_images
from stepflow.domain.end import End
from stepflow.domain.event import IterationStarted, PromptRendered, SchemaFailed, StepAnswered
from stepflow.domain.flow import Decided, Decision, FormatError, RunState, Undecided
from stepflow.domain.json import JsonObject, as_text
from stepflow.domain.run import MAX_STRIKES
from stepflow.domain.text import excerpt, readable_output
from stepflow.domain.words import Intent, Outcome, Strategy, StructuredOutput
from stepflow.engine.answer_schema import native_schema
from stepflow.engine.context import Answered, FlowContext, FlowStopped
from stepflow.engine.conversation import Conversation, ConversationEnded, note_misfit
from stepflow.engine.gate import (
    NO_OBJECT,
    ParsedAnswer,
    check_format,
    decide_by_gate,
    describe_misfit,
    find_gate_errors,
    parse_answer,
)
from stepflow.engine.prompt.render import (
    PromptFailure,
    RenderedPrompt,
    answer_form,
    first_message_blocks,
    image_blocks,
    render_prompt,
    render_system,
)
from stepflow.engine.prompt.variables import Variables
from stepflow.engine.ungated import decide_by_check, decide_by_verdict, find_check_errors
from stepflow.ports import SchemaFailure

#: An answer and the decision read from it.
ReadAnswer = tuple[JsonObject, Decision]

TREE_STAYS = "its changes so far stay in the working tree"
STARTS_OVER = f"the conversation outgrew the model's context window, so the step starts over; {TREE_STAYS}"


def attempt_step(context: FlowContext, step: Step) -> Answered | None:
    """Run the step once, read its answer, and kill everything that its tools left running. None: try the step again."""
    rung = None if step.command else context.current_rung(step)
    context.record(
        IterationStarted(
            iteration=context.state.iteration + 1,
            step_id=step.id,
            kind=step.kind,
            model=rung.model if rung else "",
            effort=rung.effort or step.effort if rung else None,
            max_output_tokens=step.max_output_tokens if rung else None,
        )
    )
    try:
        schema = context.ports.schemas.resolve(step)
    except SchemaFailure as failure:
        strikes = context.state.strikes + 1
        context.record(SchemaFailed(step_id=step.id, strikes=strikes, reason=str(failure)))
        if strikes < MAX_STRIKES:
            return None
        reason = f'the answer schema of step "{step.id}" could not be resolved {MAX_STRIKES} times in a row: {failure}'
        raise FlowStopped(End(outcome=Outcome.SCHEMA_FAILED, reason=reason)) from failure
    before = context.state
    reading: ReadAnswer | FlowStopped | ConversationEnded | None
    try:
        if step.command:
            reading = _run_command(context, step, step.command, schema)
        else:
            reading = _ask_model(context, step, schema)
    except (FlowStopped, ConversationEnded) as end:
        reading = end
    if context.written.next is None:
        context.ports.tools.end_step()
    match reading:
        case None:
            return None
        case FlowStopped():
            raise reading
        case ConversationEnded():
            return _start_over(context, before, reading)
    answer, decision = reading
    _record_answer(context, step, answer, decision)
    if isinstance(decision, Undecided):
        _note_no_intent(context, step, decision.reason)
        reason = f'{decision.lacking} of step "{step.id}": {decision.reason}'
        raise FlowStopped(End(outcome=Outcome.ROUTING_FAILED, reason=reason))
    return Answered(answer=answer, decision=decision)


def _ask_model(context: FlowContext, step: Step, schema: JsonObject | None) -> ReadAnswer | None:
    """Return the model's answer, after format retries, and its decision; None if iteration 1 gave no JSON object and
    the gate has no fallback."""
    conversation = Conversation(context=context, step=step, request=_open_request(context, step, schema))
    conversation.recall()
    if context.written.next is None:
        context.ports.tools.begin_step(conversation.request.tools)
    answer = conversation.rejected and _with_step_id(step, conversation.rejected)
    errors: tuple[FormatError, ...] = ()
    while not conversation.has_question:
        text = conversation.listen()
        parsed = parse_answer(text, is_only=schema is not None and conversation.was_in_words)
        found = None if parsed.answer is None else _set_step_id(context, step, parsed.answer)
        conversation.check_schema_support(found)
        errors = parsed.errors if step.gate or schema is not None else ()
        if found is not None:
            answer, errors = found, _find_errors(context, step, found, schema)
        elif answer is None and step.gate and not (schema is not None and conversation.in_words):
            break  # The model was never told the form of the answer, so there is nothing to correct.
        if not errors:
            break
        retries = context.state.format_retries
        if retries >= step.format_retries:
            conversation.give_up(errors)
            break
        context.note("debug", f'[Format] retry {retries + 1}/{step.format_retries} on step "{step.id}"')
        conversation.correct(errors)
    if step.check:
        return answer or {}, decide_by_check(conversation, step, step.check, answer)
    if answer is None and step.gate and step.gate.fail_fast:
        conversation.change_model(ClimbCause.FORMAT, describe_misfit(NO_OBJECT))
        _note_no_intent(context, step, f"no JSON object{conversation.cut_note}")
        if context.state.iteration == 1:
            return None
        reason = f'the answer of step "{step.id}" in iteration {context.state.iteration} contains no JSON object'
        raise FlowStopped(End(outcome=Outcome.ROUTING_FAILED, reason=reason + conversation.cut_note))
    given, decision = _decide(context, step, ParsedAnswer(answer=answer, errors=errors), tuple(conversation.texts))
    if isinstance(decision, Undecided):
        decision = replace(decision, reason=decision.reason + conversation.cut_note)
    elif conversation.is_cut:
        context.note(
            "warning", f'[Model] the flow goes on without the whole answer of step "{step.id}"{conversation.cut_note}'
        )
    return given, decision


def _open_request(context: FlowContext, step: Step, schema: JsonObject | None) -> ModelRequest:
    """Build and record the first request of the conversation; a pending retry prompt replaces the step's prompt."""
    agent, facts = context.agent, context.facts
    rung = context.current_rung(step)
    variables = context.variables(step)
    prompt = _choose_prompt(context, step, variables)
    if isinstance(prompt, PromptFailure):
        raise FlowStopped(End(outcome=Outcome.INVALID_DEFINITION, reason=prompt.message))
    blocks = first_message_blocks(
        prompt.text, agent=agent, step=step, facts=facts, state=context.state, variables=variables
    )
    strategy = _choose_strategy(context, rung.model, schema)
    if strategy is Strategy.PROMPT and schema is not None:
        blocks = (*blocks, answer_form(schema))
    system = render_system(agent, step, variables)
    tools = tuple(effective_tools(agent, step, facts.working_directory).values())
    is_blind = Remedy.LEAVE_OUT_IMAGES in context.state.remedies.get(rung.model, ())
    names = [tool.name for tool in tools]
    context.note("debug", f'[Tools] step "{step.id}": {", ".join(names) or "none"}')
    rendered = context.record(
        PromptRendered(
            system=system.text,
            blocks=list(blocks),
            source=prompt.source,
            retry=context.state.retry_prompt is not None,
            tools=names,
            substitutions=list(prompt.substitutions),
        )
    )
    opening = Message(role="user", content=(*map(text_block, rendered.blocks), *image_blocks(facts.images)))
    return ModelRequest(
        step_id=step.id,
        iteration=context.state.iteration,
        model=rung.model,
        system=rendered.system,
        cacheable=system.cacheable,
        messages=(without_images(opening) if is_blind else opening,),
        tools=tools,
        schema=schema,
        strategy=strategy,
        effort=rung.effort or step.effort,
        max_output_tokens=step.max_output_tokens,
    )


def _choose_strategy(context: FlowContext, model: str, schema: JsonObject | None) -> Strategy:
    """Choose how the whole conversation asks for its answer: in words if the service is known to ignore schemas, or if
    structured output cannot express this one."""
    configured = context.facts.structured_output
    known = context.state.remedies.get(model, frozenset())
    is_refused = Remedy.ASK_IN_WORDS in known and configured is not StructuredOutput.NATIVE
    if configured is StructuredOutput.PROMPT or is_refused or (schema is not None and native_schema(schema) is None):
        return Strategy.PROMPT
    return Strategy.NATIVE


def _choose_prompt(context: FlowContext, step: Step, variables: Variables) -> RenderedPrompt | PromptFailure:
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


def _set_step_id(context: FlowContext, step: Step, answer: JsonObject) -> JsonObject:
    """Replace a wrong `stepId` in the answer with the running step's id; an answer without one stays as it is."""
    corrected = _with_step_id(step, answer)
    if corrected != answer:
        context.note("warning", f'[StepFlow] stepId corrected: "{str(answer["stepId"])[:200]}" -> "{step.id}"')
    return corrected


def _with_step_id(step: Step, answer: JsonObject) -> JsonObject:
    return {**answer, "stepId": step.id} if isinstance(answer.get("stepId"), str) else answer


def _find_errors(
    context: FlowContext, step: Step, answer: JsonObject, schema: JsonObject | None
) -> tuple[FormatError, ...]:
    """Check the format of an answer by whatever reads this step's answers: its gate, its check, or its schema alone."""
    if step.gate:
        return find_gate_errors(step, step.gate, answer, schema)
    if step.check:
        return find_check_errors(context.state, step, step.check, answer, schema)
    return check_format(answer, schema)


def _decide(context: FlowContext, step: Step, parsed: ParsedAnswer, texts: tuple[str, ...]) -> ReadAnswer:
    """Read the decision from the answer through the gate or, without one, through the agent's verdict."""
    if step.gate is None:
        return parsed.answer or {}, decide_by_verdict(context, step, parsed, texts)
    decision = decide_by_gate(step.gate, parsed)
    if isinstance(decision, Decided):
        context.note_missing(step, decision.missing)
        if decision.violation is not None:
            context.note("warning", f'[StepFlow][SpecViolation] step "{step.id}": {decision.violation}')
    return parsed.answer or {}, decision


def _record_answer(context: FlowContext, step: Step, answer: JsonObject, decision: Decision) -> None:
    event = StepAnswered(step_id=step.id, answer=answer, intent=None, target=None, reason=decision.reason)
    if not isinstance(decision, Undecided):
        event = replace(
            event,
            intent=decision.intent,
            target=decision.target,
            handoff=dict(decision.handoff),
            violation=decision.violation,
        )
    context.record(event)


#: A reference to a run argument in the `args` of a command step.
_ARGUMENT = re.compile(r"\$\{context\.([^{}]+)\}")


def _run_command(context: FlowContext, step: Step, command: StepCommand, schema: JsonObject | None) -> ReadAnswer:
    """Run the step's command. Its stdout is the answer, and there are no format retries."""
    missing = [name for arg in command.args for name in _ARGUMENT.findall(arg) if context.facts.args.get(name) is None]
    if missing:
        reason = f'command step "{step.id}" needs the run argument "{missing[0]}", which has no value'
        raise FlowStopped(End(outcome=Outcome.INVALID_DEFINITION, reason=reason))
    args = (_ARGUMENT.sub(lambda match: as_text(context.facts.args[match[1]]), arg) for arg in command.args)
    request = CommandRequest(argv=(command.command, *args), timeout=command.timeout / 1000)
    result = context.recall(CommandResult)
    if result is None:
        result = replace(context.ports.commands.run_command(request), step_id=step.id, argv=request.argv)
        context.record(result)
    if result.exit_code != 0 or result.timed_out or not result.started:
        details = result.error or excerpt(readable_output(result.output), 500).strip() or "no output"
        reason = f'command step "{step.id}" ({command.command}) failed with exit code {result.exit_code}: {details}'
        raise FlowStopped(End(outcome=Outcome.VALIDATION_FAILED, reason=reason))
    answer = _set_step_id(context, step, _parse_output(result.stdout))
    errors = _find_errors(context, step, answer, schema)
    if errors:
        note_misfit(context, step, errors)
    return _decide(context, step, ParsedAnswer(answer=answer, errors=errors), (result.stdout,))


def _parse_output(stdout: str) -> JsonObject:
    try:
        value = json.loads(stdout)
    except (ValueError, RecursionError):
        return {"raw": stdout}
    return value if isinstance(value, dict) else {"raw": stdout, "parsed": value}


def _start_over(context: FlowContext, before: RunState, ended: ConversationEnded) -> Answered:
    """Start the step over in a new conversation. Handoff, working tree and retry prompt stay, and the new conversation
    is told what was done so far."""
    work = "\n\n".join(filter(None, (before.work_before, ended.event.work)))
    retry_prompt, retry_source = before.retry_prompt, before.retry_source
    context.record(replace(ended.event, retry_prompt=retry_prompt, retry_source=retry_source, work=work))
    is_changed = isinstance(ended.event, ModelChanged)
    reason = f"{ended.event}: {ended.event.reason}; {TREE_STAYS}" if is_changed else STARTS_OVER
    return Answered(answer={}, decision=Decided(intent=Intent.REPEAT, reason=reason))


def _note_no_intent(context: FlowContext, step: Step, found: str) -> None:
    iteration = context.state.iteration
    context.note("error", f'[StepFlow] No intent on iteration {iteration}, step "{step.id}"', {"found": found})
