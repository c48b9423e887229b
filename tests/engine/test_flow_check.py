"""Flows whose steps are led by checks: the loop is the same, and S2's promises hold."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from stepflow.definition.loading import load_agent
from stepflow.domain.agent.definition import AgentDefinition, OutcomeRule
from stepflow.domain.conversation import ModelFault
from stepflow.domain.event import Routed, StepAnswered, UserMessage
from stepflow.domain.words import Intent, Outcome, Stage
from tests.build import make_agent, make_check_step, make_entry, make_facts
from tests.engine.played import completed, play
from tests.fakes import Reply, says

ROOT = Path(__file__).parent.parent / "definitions/valid/check-flow"

DONE = OutcomeRule(intent=Intent.CLOSING, transition="complete")


def code_improver() -> AgentDefinition:
    """S2's flow, loaded: analyze, implement, review, each with a check question."""
    return load_agent(ROOT / ".agent/demo", root=ROOT)


def step(result: str, message: str = "") -> list[Reply]:
    """What the model says in one step: its work, then the answer to the check."""
    return [says("worked"), says(json.dumps({"result": result, "message": message}))]


def walked(ports) -> list[tuple[str, str]]:
    return [(event.source, event.transition) for event in ports.journal.of(Routed)]


def test_the_check_question_is_asked_in_the_same_conversation_with_a_schema_of_its_own() -> None:
    replies = [*step("ok"), *step("ok"), *step("ok", "All holds.")]
    result, ports = play(code_improver(), replies, facts=make_facts(args={"topic": "loops"}))
    assert (result.outcome, result.iterations) == (Outcome.COMPLETED, 3)
    assert (result.stage, result.reason) == (Stage.COMPLETION, "All holds.")
    own, check = ports.model.requests[:2]
    assert own.schema is None
    assert check.schema is not None
    assert check.schema["required"] == ["result"]
    assert check.messages[: len(own.messages)] == own.messages
    assert [message.role for message in check.messages] == ["user", "assistant", "user"]
    assert check.messages[-1].content[0]["text"] == "Is the analysis of loops complete?"
    assert check.tools == own.tools


def test_iterations_repeat_a_pass_until_min_and_a_fail_without_rule_until_max() -> None:
    again = OutcomeRule(intent=Intent.REPEAT, transition="repeat", runs_below=2)
    on = OutcomeRule(intent=Intent.NEXT, transition="next", target="s_0002")
    work = make_check_step("s_0001", (again, on), ())
    end = make_check_step("s_0002", (DONE,), (replace(again, runs_below=3),))
    ok, ng = says('{"result": "ok"}'), says('{"result": "ng"}')
    ports = completed(make_agent(work, end), [ok, ok, ng, ng, ok])
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


def test_a_closing_answer_that_breaks_the_schema_of_its_validation_entry_does_not_close() -> None:
    entry = make_entry("s_0001", schema={"type": "object", "required": ["summary"]})
    agent = make_agent(make_check_step("s_0001", (DONE,), (), question="Done?", validation=entry))
    replies = [*step("ok"), says('{"summary": "all of it"}'), says('{"result": "ok"}')]
    result, ports = play(agent, replies)
    assert (result.outcome, result.iterations) == (Outcome.COMPLETED, 2)
    assert walked(ports) == [("s_0001", "repeat"), ("s_0001", "complete")]


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
    assert (result.outcome, result.reason) == (Outcome.MODEL_FAILED, "the key is wrong")


def test_a_handed_off_key_that_is_missing_is_told() -> None:
    step = make_check_step("s_0001", (DONE,), ())
    assert step.check is not None
    agent = make_agent(replace(step, check=replace(step.check, handoff_keys=("plan", "diff"))))
    result, ports = play(agent, [says('{"result": "ok", "handoff": {"plan": "p"}}')])
    assert result.handoff == {"s_0001": {"plan": "p"}}
    assert '[StepFlow] Handoff field "diff" missing' in ports.journal.notes()
