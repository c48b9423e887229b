"""The answer as the input of a tool: what is sent, and what of a turn becomes the answer."""

from __future__ import annotations

import json

import pytest

from stepflow.domain.conversation import ModelTurn, StopReason, ToolSpec, text_block
from stepflow.domain.words import Strategy
from stepflow.model.recording import RecordingModel
from stepflow.model.request import ANSWER_TOOL, answer_tool
from tests.model.asking import ask, fault_of
from tests.servers.messages_api import Answer, Failure, calls, says

BASH = ToolSpec(name="bash", description="Run a command.", input_schema={"type": "object", "properties": {}})
SCHEMA = {"type": "object", "properties": {"stepId": {"type": "string", "minLength": 1}}, "required": ["stepId"]}
OK = {"stepId": "initial.issue"}
FORCED = {"type": "tool", "name": "answer"}


def by_tool(**more):
    return ask(schema=SCHEMA, strategy=Strategy.TOOL, **more)


def use(name: str, number: int = 1, **given: object) -> dict:
    return {"type": "tool_use", "id": f"toolu_{number}", "name": name, "input": given}


def test_the_answer_tool_stands_beside_the_others_and_is_forced_only_where_the_answer_is_asked_for_again(serve):
    model, api = serve(*[calls(("answer", OK))] * 3)
    for request in (by_tool(tools=(BASH,)), by_tool(tools=(BASH,), insist=True), by_tool()):
        assert model.ask(request).text == '{"stepId":"initial.issue"}'
    assert [[tool["name"] for tool in body["tools"]] for body in api.bodies] == [["bash", "answer"]] * 2 + [["answer"]]
    assert [body.get("tool_choice") for body in api.bodies] == [None, FORCED, FORCED], "alone it is all there is to do"
    assert all("output_config" not in body for body in api.bodies)
    shown = api.bodies[0]["tools"][-1]["input_schema"]
    assert shown == {**SCHEMA, "additionalProperties": False}
    assert len({json.dumps([body["tools"], body["system"]]) for body in api.bodies[:2]}) == 1, "the cached prefix stays"


def test_with_words_nothing_is_added_to_the_request(serve):
    model, api = serve(says("{}"))
    model.ask(ask(schema=SCHEMA, strategy=Strategy.PROMPT))
    assert [block["text"] for block in api.bodies[0]["system"]] == ["You work on an issue."]
    assert not {"tools", "tool_choice", "output_config"} & api.bodies[0].keys()


@pytest.mark.parametrize(
    "schema",
    [{"anyOf": [SCHEMA, {"type": "object"}]}, {"type": ["object", "null"]}, {"oneOf": [SCHEMA]}],
)
def test_a_schema_that_no_tool_may_have_is_put_into_a_property(serve, schema):
    model, api = serve(calls(("answer", {"answer": OK})))
    turn = model.ask(ask(schema=schema, strategy=Strategy.TOOL))
    assert turn.text == '{"stepId":"initial.issue"}'
    shown = api.bodies[0]["tools"][0]["input_schema"]
    assert (shown["type"], shown["required"], list(shown["properties"])) == ("object", ["answer"], ["answer"])


def test_bookkeeping_of_a_schema_is_not_shown():
    shown = answer_tool({"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "x", **SCHEMA})
    assert shown["input_schema"] == SCHEMA


def test_what_comes_back_ends_the_turn_and_goes_into_the_conversation_as_text(serve):
    thinking = {"type": "thinking", "thinking": "All done.", "signature": "c2ln"}
    spoken = text_block("Here is the answer {not json}.")
    model, _ = serve(Answer(content=(thinking, spoken, use("answer", **OK)), stop_reason="tool_use"))
    turn = model.ask(by_tool(tools=(BASH,)))
    assert turn.content == (thinking, text_block('{"stepId":"initial.issue"}'))
    assert (turn.stop_reason, turn.tool_uses) == (StopReason.END_TURN, ())


def test_an_answer_beside_other_calls_came_too_early_and_is_left_out(serve):
    content = (text_block("First a look."), use("bash", 1), use("answer", 2, **OK))
    model, _ = serve(Answer(content=content, stop_reason="tool_use"))
    turn = model.ask(by_tool(tools=(BASH,)))
    assert [call.name for call in turn.tool_uses] == ["bash"]
    assert (turn.text, turn.stop_reason) == ("First a look.", StopReason.TOOL_USE)


def test_an_answer_that_was_cut_off_is_none(serve):
    model, _ = serve(Answer(content=(use("answer", **OK),), stop_reason="max_tokens"))
    turn = model.ask(by_tool())
    assert (turn.content, turn.stop_reason) == ((), StopReason.MAX_TOKENS)


def test_two_answers_in_one_turn_both_stand_there(serve):
    model, _ = serve(Answer(content=(use("answer", 1, **OK), use("answer", 2, stepId="x")), stop_reason="tool_use"))
    assert model.ask(by_tool()).text.splitlines() == ['{"stepId":"initial.issue"}', '{"stepId":"x"}']


def test_a_call_of_that_name_is_like_any_other_where_no_such_tool_was_offered(serve):
    model, _ = serve(calls(("answer", OK)))
    assert [call.name for call in model.ask(ask(schema=SCHEMA)).tool_uses] == [ANSWER_TOOL]


def test_a_recording_holds_the_answer_in_whatever_way_it_came(serve):
    model, _ = serve(calls(("answer", OK)))
    recording = RecordingModel(model)
    recording.ask(by_tool())
    (turn,) = recording.scenario().turns
    assert (turn.output, turn.tools) == (OK, ())


def test_a_service_that_forces_nobody_is_asked_without_force_from_the_next_call_on(serve):
    said = "Thinking may not be enabled when tool_choice forces tool use."
    model, api = serve(Failure(status=400, error="invalid_request_error", message=said), calls(("answer", OK)))
    fault = fault_of(model, by_tool())
    assert (fault.transient, fault.retry_after, fault.no_strategy) == (True, 0.0, False)
    assert isinstance(model.ask(by_tool()), ModelTurn)
    assert [body.get("tool_choice") for body in api.bodies] == [FORCED, None]


@pytest.mark.parametrize(
    ("said", "request_", "no_strategy"),
    [
        ("output_config: Extra inputs are not permitted", ask(schema=SCHEMA), True),
        ("structured outputs are not supported by this model", ask(schema=SCHEMA), True),
        ("output_config.format.schema: property 'not' is not supported", ask(schema=SCHEMA), False),
        ("The compiled grammar is too large", ask(schema=SCHEMA), False),
        ("this model does not support tools", by_tool(), True),
        ("this model does not support tools", by_tool(tools=(BASH,)), False),
        ("this model does not support tools", ask(schema=SCHEMA), False),
    ],
)
def test_a_refusal_of_the_way_of_asking_is_told_from_one_of_this_schema(serve, said, request_, no_strategy):
    model, _ = serve(Failure(status=400, error="invalid_request_error", message=said))
    fault = fault_of(model, request_)
    assert fault.no_strategy is no_strategy
