"""A command step answers instead of the model."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stepflow.domain.agent.agent_settings import StepCommand
from stepflow.domain.checkout import CommandResult
from stepflow.domain.event import StepAnswered
from stepflow.domain.words import Outcome
from tests.build import issue_agent, make_facts
from tests.engine.played import play
from tests.fakes import TableCommands, answers

WORK = [answers("next"), answers("handoff")]
CLOSING = '{"next_action": {"action": "closing"}}'


def command_agent(*args: str):
    agent = issue_agent()
    command = StepCommand(command="close-it", args=args)
    closure = replace(agent.steps["closure.issue"], command=command, prompt=None)
    return replace(agent, steps={**agent.steps, "closure.issue": closure})


def run(result: CommandResult, *args: str, last: str = "close-it", **arguments):
    commands = TableCommands({last: [result]})
    return play(command_agent(*args), list(WORK), facts=make_facts(args=arguments), commands=commands)


@pytest.mark.parametrize(
    ("stdout", "answer"), [("[1]", {"raw": "[1]", "parsed": [1]}), ("hello", {"raw": "hello"}), ("", {"raw": ""})]
)
def test_other_output_is_wrapped_and_declares_no_intent(stdout, answer) -> None:
    result, ports = run(CommandResult(exit_code=0, stdout=stdout))
    assert result.outcome is Outcome.ROUTING_FAILED
    assert ports.journal.of(StepAnswered)[-1].answer == answer


def test_run_arguments_are_put_in_and_nothing_else_is() -> None:
    result, ports = run(
        CommandResult(exit_code=0, stdout=CLOSING),
        "${context.issue}",
        "${HOME}",
        "x${context.topic}",
        last="xa b",
        issue=7,
        topic="a b",
    )
    assert result.outcome is Outcome.COMPLETED
    assert ports.commands.ran[0].argv == ("close-it", "7", "${HOME}", "xa b")
    assert len(ports.model.requests) == 2, "no model is asked in a command step"


def test_a_missing_run_argument_starts_nothing() -> None:
    result, ports = run(CommandResult(exit_code=0), "${context.issue}")
    assert result.outcome is Outcome.INVALID_DEFINITION
    assert '"issue"' in result.reason
    assert ports.commands.ran == []


@pytest.mark.parametrize(
    "failed",
    [
        CommandResult(exit_code=3, stdout=CLOSING, stderr="no such thing"),
        CommandResult(exit_code=-1, timed_out=True, error="timed out after 30 s"),
    ],
)
def test_a_failed_process_never_completes(failed) -> None:
    result, _ports = run(failed)
    assert result.outcome is Outcome.VALIDATION_FAILED
    assert (failed.error or failed.stderr) in result.reason
