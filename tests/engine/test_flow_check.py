"""Flows whose steps are led by checks: the loop is the same, and S2's promises hold."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from stepflow.definition.loading import load_agent
from stepflow.domain.checkout import CommandResult
from stepflow.domain.conversation import ModelFault
from stepflow.domain.definition import AgentDefinition, OutcomeRule, SourceText, StepPrompt
from stepflow.domain.event import CheckJudged, IterationStarted, Routed, StepAnswered, UserMessage
from stepflow.domain.words import Intent, Outcome, StepKind
from stepflow.errors import DefinitionError
from tests.build import make_agent, make_check_step, make_entry, make_validator
from tests.engine import played
from tests.fakes import Reply, TableCommands, says

ROOT = Path(__file__).parent.parent / "definitions/valid/check-flow"

DONE = OutcomeRule(intent=Intent.CLOSING, transition="complete")


def code_improver() -> AgentDefinition:
    """S2's flow, loaded: analyze, implement, review, each with a check question."""
    return load_agent(ROOT / ".agent/demo", root=ROOT)


play = partial(played.play, most=100)


def step(result: str, message: str = "") -> list[Reply]:
    """What the model says in one step: its work, then the answer to the check."""
    return [says("worked"), says(json.dumps({"result": result, "message": message}))]


def walked(ports) -> list[tuple[str, str]]:
    return [(event.source, event.transition) for event in ports.journal.of(Routed)]


def test_a_run_whose_checks_all_pass_completes() -> None:
    result, ports = play(code_improver(), [*step("ok"), *step("ok"), *step("ok", "All holds.")])
    assert (result.outcome, result.iterations) == (Outcome.COMPLETED, 3)
    assert result.reason == "Completion loop: All holds."
    assert walked(ports) == [("s_a8f3", "next"), ("s_b2c1", "next"), ("s_c9d4", "complete")]
    assert [(event.step_id, event.result) for event in ports.journal.of(CheckJudged)][-1] == ("s_c9d4", "ok")


def test_a_step_that_fails_twice_is_retried_twice_and_sees_why() -> None:
    agent = code_improver()
    text = SourceText(text="Reason: {uv-repeat_reason}", file="prompts/a.md")
    steps = {**agent.steps, "s_a8f3": replace(agent.steps["s_a8f3"], prompt=StepPrompt(source=text))}
    replies = [*step("ng", "no cause"), *step("ng", "no plan"), *step("ok"), *step("ok"), *step("ok")]
    result, ports = play(replace(agent, steps=steps), replies)
    assert (result.outcome, result.iterations) == (Outcome.COMPLETED, 5)
    assert walked(ports)[:3] == [("s_a8f3", "retry"), ("s_a8f3", "retry"), ("s_a8f3", "next")]
    opened = [request.messages[0].content[0]["text"] for request in ports.model.requests]
    assert opened[0:5:2] == ["Reason: ", "Reason: no cause", "Reason: no plan"]


def test_a_step_that_fails_a_third_time_has_used_its_retries_up() -> None:
    result, _ports = play(code_improver(), step("ng", "no plan") * 3)
    assert (result.outcome, result.iterations) == (Outcome.ROUTING_FAILED, 3)
    assert result.reason.startswith(
        'Flow loop: FAILED_STEP_ROUTING: no way on from the check of step "s_a8f3": the check failed (no plan)'
    )


def test_a_failed_check_falls_back_and_a_new_visit_has_all_its_retries_again() -> None:
    replies = [*step("ng"), *step("ok"), *step("ng"), *step("ng"), *step("ng"), *step("ok"), *step("ok"), *step("ok")]
    result, ports = play(code_improver(), replies)
    assert result.outcome is Outcome.COMPLETED
    assert walked(ports)[:6] == [
        ("s_a8f3", "retry"),
        ("s_a8f3", "next"),
        ("s_b2c1", "fallback"),
        ("s_a8f3", "retry"),
        ("s_a8f3", "retry"),
        ("s_a8f3", "next"),
    ]


def test_an_endless_fallback_stops_at_exactly_100_steps_and_says_so() -> None:
    result, ports = play(code_improver(), [*step("ok"), *step("ng")] * 100)
    assert (result.outcome, result.iterations) == (Outcome.LIMIT_REACHED, 100)
    assert result.reason == "Flow loop: the limit of 100 iterations is reached (max-iterations)"
    assert len(ports.journal.of(IterationStarted)) == 100


def test_a_check_answer_that_cannot_be_read_has_failed_and_is_not_asked_for_again() -> None:
    replies = [says("worked"), says("Everything looks good to me!"), *step("ok"), *step("ok"), *step("ok")]
    result, ports = play(code_improver(), replies)
    assert result.outcome is Outcome.COMPLETED
    assert walked(ports)[0] == ("s_a8f3", "retry")
    assert not [event for event in ports.journal.of(UserMessage) if event.format_retry]


def test_the_check_question_is_asked_in_the_same_conversation_with_a_forced_answer() -> None:
    _result, ports = play(code_improver(), [*step("ok"), *step("ok"), *step("ok")])
    own, check = ports.model.requests[:2]
    assert own.schema is None
    assert check.schema is not None
    assert check.schema["required"] == ["result"]
    assert check.messages[: len(own.messages)] == own.messages
    assert [message.role for message in check.messages] == ["user", "assistant", "user"]
    assert check.messages[-1].content[0]["text"] == "Is the analysis of {topic} complete?"
    assert check.tools == own.tools


def test_iterations_repeat_a_pass_until_min_and_a_fail_without_rule_until_max() -> None:
    again = OutcomeRule(intent=Intent.REPEAT, transition="repeat", runs_below=2)
    on = OutcomeRule(intent=Intent.NEXT, transition="next", target="s_0002")
    work = make_check_step("s_0001", (again, on), ())
    end = make_check_step("s_0002", (DONE,), (replace(again, runs_below=3),))
    ok, ng = says('{"result": "ok"}'), says('{"result": "ng"}')
    result, ports = play(make_agent(work, end), [ok, ok, ng, ng, ok])
    assert result.outcome is Outcome.COMPLETED
    assert [word for _, word in walked(ports)] == ["repeat", "next", "repeat", "repeat", "complete"]
    result, _ports = play(make_agent(work, end), [ok, ok, ng, ng, ng])
    assert (result.outcome, result.iterations) == (Outcome.ROUTING_FAILED, 5)


def test_a_missing_object_costs_format_retries_and_then_counts_as_failed() -> None:
    work = make_check_step("s_0001", (DONE,), (), schema={"type": "object", "required": ["result"]})
    result, ports = play(make_agent(work), [says("done"), says("done"), says('{"result": " OK "}')])
    assert result.outcome is Outcome.COMPLETED
    assert result.answer == {"result": " OK "}
    result, ports = play(make_agent(work), [says("done")] * 3)
    assert result.outcome is Outcome.ROUTING_FAILED
    assert ports.journal.of(StepAnswered)[0].answer == {}


def test_a_red_validator_sends_a_check_flow_back_to_its_closing_step() -> None:
    agent = make_agent(
        make_check_step("s_0001", (DONE,), (), validation=make_entry("s_0001", make_validator("tests", "make test")))
    )
    red = {"make test": [CommandResult(exit_code=1, stderr="1 failed"), CommandResult(exit_code=0)]}
    ok = says('{"result": "ok"}')
    result, ports = play(agent, [ok, ok], commands=TableCommands(table=red))
    assert (result.outcome, result.validated) == (Outcome.COMPLETED, True)
    assert [event.step_id for event in ports.journal.of(IterationStarted)] == ["s_0001", "s_0001"]


def test_a_closing_answer_that_breaks_the_schema_of_its_validation_entry_does_not_close() -> None:
    entry = make_entry("s_0001", schema={"type": "object", "required": ["summary"]})
    agent = make_agent(make_check_step("s_0001", (DONE,), (), question="Done?", validation=entry))
    replies = [*step("ok"), says('{"summary": "all of it"}'), says('{"result": "ok"}')]
    result, ports = play(agent, replies)
    assert (result.outcome, result.iterations) == (Outcome.COMPLETED, 2)
    assert walked(ports) == [("s_0001", "repeat"), ("s_0001", "complete")]


def test_a_step_that_does_not_exist_is_told_at_load(tmp_path: Path) -> None:
    folder = shutil.copytree(ROOT, tmp_path, dirs_exist_ok=True) / ".agent/demo"
    registry = folder / "steps_registry.json"
    registry.write_text(registry.read_text().replace('"next": "s_b2c1"', '"next": "s_b2c2"'))
    with pytest.raises(DefinitionError) as raised:
        load_agent(folder, root=tmp_path)
    assert [problem.code for problem in raised.value.problems if problem.severity == "error"] == ["SF703"]


def test_only_a_step_that_may_complete_is_a_closure() -> None:
    kinds = [one.kind for one in code_improver().steps.values()]
    assert kinds == [StepKind.WORK, StepKind.WORK, StepKind.CLOSURE]


def test_a_check_question_that_cannot_be_rendered_ends_the_run_and_names_its_file() -> None:
    agent = make_agent(make_check_step("s_0001", (DONE,), (), question="Did {uv-nobody} agree?"))
    result, ports = play(agent, [says("worked")])
    assert result.outcome is Outcome.INVALID_DEFINITION
    assert 'checks/s_0001.md) cannot be rendered: variable "nobody" is used' in result.reason
    assert ports.journal.of(StepAnswered) == []


def test_where_the_result_stands_in_the_answer_the_validation_entrys_schema_costs_format_retries() -> None:
    entry = make_entry("s_0001", schema={"type": "object", "required": ["summary"]})
    agent = make_agent(make_check_step("s_0001", (DONE,), (), schema={"type": "object"}, validation=entry))
    result, ports = play(agent, [says('{"result": "ok"}'), says('{"result": "ok", "summary": "all of it"}')])
    assert (result.outcome, result.iterations) == (Outcome.COMPLETED, 1)
    assert [event.errors for event in ports.journal.of(UserMessage)] == [["(answer): 'summary' is a required property"]]
    result, ports = play(agent, [says('{"result": "ok"}')] * 3 + [ModelFault(reason="gone")])
    assert (result.outcome, walked(ports)) == (Outcome.MODEL_FAILED, [("s_0001", "repeat")])


@pytest.mark.parametrize("replies", [[], [says("worked")]], ids=["in the step", "in its check"])
def test_a_model_that_fails_ends_the_run_wherever_it_was_asked(replies: list[Reply]) -> None:
    result, _ports = play(code_improver(), [*replies, ModelFault(reason="the key is wrong")])
    assert (result.outcome, result.reason) == (Outcome.MODEL_FAILED, "Flow loop: the key is wrong")


def test_a_handed_off_key_that_is_missing_is_told() -> None:
    step = make_check_step("s_0001", (DONE,), ())
    assert step.check is not None
    agent = make_agent(replace(step, check=replace(step.check, handoff_keys=("plan", "diff"))))
    result, ports = play(agent, [says('{"result": "ok", "handoff": {"plan": "p"}}')])
    assert result.handoff == {"s_0001": {"plan": "p"}}
    assert '[StepFlow] Handoff field "diff" missing' in ports.journal.notes()
