"""Flows without gates: the verdict is asked after each iteration (flow.md §9.2)."""

from __future__ import annotations

from dataclasses import replace

from stepflow.domain.agent.agent_settings import StepCommand, VerdictConfig
from stepflow.domain.agent.definition import AgentDefinition, AgentVerdict, Step
from stepflow.domain.checkout import CommandResult
from stepflow.domain.event import Routed, UserMessage, ValidatorRan
from stepflow.domain.run import Limits
from stepflow.domain.words import Outcome, Stage, StepKind, VerdictType
from tests.build import make_agent, make_entry, make_step, make_validator
from tests.engine.played import play, steps_of
from tests.fakes import TableCommands, says

OPEN = {"type": "object", "required": ["summary"]}


def free_step(step_id: str, kind: StepKind | None = None, *, next_step: str | None = None, **changes: object) -> Step:
    """A step without a gate."""
    to = {"next": next_step} if next_step else {}
    step = make_step(step_id, to=to, gate=None, schema=None)
    return replace(step, kind=kind, **changes)


def judged_agent(kind: VerdictType, *steps: Step, **config: object) -> AgentDefinition:
    """An agent of these steps that its verdict runs."""
    return make_agent(
        *steps,
        verdict=AgentVerdict(
            type=kind, limits=Limits(iterations=10), config=VerdictConfig.model_validate(dict(config))
        ),
    )


def test_counting_iterations_walks_on_and_reaching_the_number_is_success() -> None:
    steps = (free_step("initial.x"), free_step("continuation.x", next_step="last"), free_step("last"))
    result, ports = play(judged_agent(VerdictType.COUNT_ITERATION, *steps), [says("on it")] * 4, most=4)
    assert steps_of(ports) == ["initial.x", "continuation.x", "last", "last"]
    assert (result.outcome, result.iterations, result.validated) == (Outcome.COMPLETED, 4, False)
    assert (result.stage, result.reason) == (Stage.FLOW, "4 iterations are taken")
    assert [event.transition for event in ports.journal.of(Routed)] == ["next", "next", "repeat", "closing"]


def test_a_step_that_is_not_finished_runs_again_whatever_its_repeat_target_says() -> None:
    steps = (make_step("a", to={"repeat": "b"}, gate=None, schema=None), free_step("b"))
    _result, ports = play(judged_agent(VerdictType.COUNT_CHECK, *steps, maxChecks=2), [says("x")] * 2)
    assert steps_of(ports) == ["a", "a"]


def test_finished_on_a_closure_step_runs_its_validators_and_a_red_one_sends_back() -> None:
    entry = make_entry("end", make_validator("tests", "make test"))
    steps = (free_step("a", next_step="end"), free_step("end", StepKind.CLOSURE, validation=entry))
    red = {"make test": [CommandResult(exit_code=1, stderr="1 failed"), CommandResult(exit_code=0)]}
    agent = judged_agent(VerdictType.DETECT_KEYWORD, *steps, verdictKeyword="DONE")
    result, ports = play(agent, [says("on it"), says("DONE"), says("DONE")], commands=TableCommands(table=red))
    assert (result.outcome, result.validated) == (Outcome.COMPLETED, True)
    assert steps_of(ports) == ["a", "end", "end"]
    assert [event.passed for event in ports.journal.of(ValidatorRan)] == [False, True]


def test_an_answer_that_does_not_fit_its_schema_does_not_finish_a_closure_step() -> None:
    agent = judged_agent(VerdictType.POLL_STATE, free_step("end", StepKind.CLOSURE, schema=OPEN))
    replies = [says("all done"), says("really"), says("truly"), says('{"summary": "all done"}')]
    result, ports = play(agent, replies)
    assert (result.outcome, result.iterations) == (Outcome.COMPLETED, 2)
    assert result.answer == {"summary": "all done"}
    assert [event.errors for event in ports.journal.of(UserMessage)] == [["(answer): no JSON object"]] * 2


def test_an_answer_that_breaks_the_schema_of_its_validation_entry_does_not_finish() -> None:
    entry = make_entry("end", schema=OPEN)
    agent = judged_agent(VerdictType.POLL_STATE, free_step("end", StepKind.CLOSURE, validation=entry))
    result, _ports = play(agent, [says("all done"), says('{"summary": "all done", "reason": "It is."}')])
    assert (result.outcome, result.iterations) == (Outcome.COMPLETED, 2)
    assert result.reason == "It is."


def test_a_limit_of_the_run_below_the_verdicts_count_is_a_failure() -> None:
    agent = judged_agent(VerdictType.COUNT_CHECK, free_step("a"), maxChecks=9)
    result, _ports = play(agent, [says("x")] * 3, most=3)
    assert result.outcome is Outcome.LIMIT_REACHED


def test_a_command_step_can_be_what_a_verdict_waits_for() -> None:
    steps = (
        free_step("a", next_step="end"),
        free_step("end", StepKind.CLOSURE, prompt=None, command=StepCommand(command="check")),
    )
    agent = judged_agent(VerdictType.DETECT_STRUCTURED, *steps, signalType="ready")
    table = TableCommands(table={"check": [CommandResult(exit_code=0, stdout='{"signal": "ready"}')]})
    result, ports = play(agent, [says("worked")], commands=table)
    assert (result.outcome, steps_of(ports)) == (Outcome.COMPLETED, ["a", "end"])
