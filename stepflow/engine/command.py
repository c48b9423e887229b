"""A command step: a process answers instead of the model (flow.md §4.5)."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from stepflow.domain.checkout import CommandRequest, CommandResult
from stepflow.domain.event import CommandRan
from stepflow.domain.json import JsonObject, JsonValue, compact
from stepflow.domain.words import Outcome
from stepflow.engine.answer import CheckedAnswer, Reading, correct, give_up
from stepflow.engine.context import FlowStopped
from stepflow.engine.gate.answer import check_format
from stepflow.engine.intent import decide, format_errors, judge

if TYPE_CHECKING:
    from stepflow.domain.definition import Step, StepCommand
    from stepflow.engine.context import FlowContext

CONTEXT = re.compile(r"\$\{context\.([^}]+)\}")


def run_command_step(context: FlowContext, step: Step, command: StepCommand, schema: JsonObject | None) -> Reading:
    """Run the step's process and read its stdout as the answer. There are no format retries."""
    missing = [name for arg in command.args for name in CONTEXT.findall(arg) if context.facts.args.get(name) is None]
    if missing:
        reason = f'command step "{step.id}" needs the run argument "{missing[0]}", which has no value'
        raise FlowStopped(Outcome.INVALID_DEFINITION, reason)
    args = (CONTEXT.sub(lambda match: _text(context.facts.args[match[1]]), arg) for arg in command.args)
    request = CommandRequest(argv=(command.command, *args), timeout=command.timeout)
    result = context.ports.commands.run_command(request)
    context.record(_event(step, request, result))
    if result.exit_code != 0 or result.timed_out or not result.started:
        raise FlowStopped(Outcome.VALIDATION_FAILED, _failure(step, request, result))
    answer = correct(context, step, _answer_of(result.stdout))
    gate = step.gate
    errors = format_errors(step, gate, answer, schema) if gate else check_format(answer, schema)
    if errors:
        give_up(context, step, errors)
    if gate is None:
        return judge(context, step, CheckedAnswer(answer=answer, errors=errors), (result.stdout,))
    return Reading(answer=answer, decision=decide(context, step, gate, answer, errors))


def _event(step: Step, request: CommandRequest, result: CommandResult) -> CommandRan:
    return CommandRan(
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


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else compact(value)


def _failure(step: Step, request: CommandRequest, result: CommandResult) -> str:
    said = result.error or result.stderr.strip() or result.stdout.strip() or "no output"
    return f'command step "{step.id}" ({request.argv[0]}) failed with exit code {result.exit_code}: {said[-500:]}'


def _answer_of(stdout: str) -> JsonObject:
    try:
        value = json.loads(stdout)
    except (ValueError, RecursionError):
        return {"raw": stdout}
    return value if isinstance(value, dict) else {"raw": stdout, "parsed": value}
