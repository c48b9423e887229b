"""The scripted and the recording model."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from stepflow.domain.conversation import (
    Message,
    ModelFault,
    ModelTurn,
    StopReason,
    ToolCall,
    ToolUse,
    Usage,
    text_block,
    tool_result_block,
)
from stepflow.domain.run import Issue
from stepflow.domain.words import Outcome
from stepflow.model.scenario import Expect, RecordingModel, ScriptedModel
from stepflow.run.scenarios import parse_scenario
from tests.model.asking import ask, fault_of
from tests.servers.messages_api import Answer, Failure, calls, says


def scripted(text: str, **more) -> ScriptedModel:
    return ScriptedModel(parse_scenario(text), **more)


def test_a_structured_answer_is_one_text_of_compact_json():
    turn = scripted("turns: [{output: {next_action: {action: next}, note: grün}}]").ask(ask())
    assert turn.text == '{"next_action":{"action":"next"},"note":"grün"}'
    assert (turn.stop_reason, turn.usage, turn.cost_usd) == (StopReason.END_TURN, Usage(), 0)
    assert turn.model == "scripted"


def test_tool_calls_get_ids_that_are_never_used_twice():
    model = scripted(
        "turns: [{text: look, tools: [{read: {file_path: a}}, {bash: {command: ls}}]}, {tools: [{glob: {}}]}]"
    )
    first, second = model.ask(ask()), model.ask(ask())
    assert first.text == "look"
    assert first.stop_reason is StopReason.TOOL_USE
    assert first.tool_uses == (
        ToolUse(tool_use_id="toolu_1", name="read", input={"file_path": "a"}),
        ToolUse(tool_use_id="toolu_2", name="bash", input={"command": "ls"}),
    )
    assert [use.tool_use_id for use in second.tool_uses] == ["toolu_3"]


@pytest.mark.parametrize("reason", ["refusal", "max_tokens", "pause_turn", "model_context_window_exceeded"])
def test_a_stop_reason_can_be_scripted_with_or_without_content(reason):
    model = scripted(f"turns: [{{text: so far, stop_reason: {reason}}}, {{stop_reason: {reason}}}]")
    assert (model.ask(ask()).text, model.ask(ask()).content) == ("so far", ())


@pytest.mark.parametrize(("status", "transient"), [(429, True), (500, True), (529, True), (408, True), (401, False)])
def test_an_error_happens_once_and_is_transient_by_its_status(status, transient):
    model = scripted(f"turns: [{{error: {{status: {status}, retry_after: 3}}}}, {{text: fine}}]")
    fault = fault_of(model)
    assert str(status) in fault.reason
    assert (fault.transient, fault.retry_after) == (transient, 3 if transient else None)
    assert fault.hint
    assert model.ask(ask()).text == "fine"


def test_a_dropped_connection_is_transient():
    fault = scripted("turns: [{error: {reset: true, message: cable pulled}}]").ask(ask())
    assert fault.transient
    assert "cable pulled" in fault.reason


def test_repeat_plays_the_turn_before_it_again():
    model = scripted("turns: [{text: a}, {text: b}, {repeat: 2}, {repeat: 1}, {text: c}]")
    assert [model.ask(ask()).text for _ in range(6)] == ["a", "b", "b", "b", "b", "c"]


def test_a_scenario_that_runs_out_names_the_step():
    model = scripted("turns: [{text: a}]")
    model.ask(ask())
    fault = model.ask(ask(step_id="closure.issue"))
    assert "the scenario ended at step 'closure.issue'" in fault.reason
    assert not fault.transient


def test_another_step_than_expected_is_a_failure_that_names_both_and_plays_nothing():
    model = scripted("turns: [{text: a}, {expect_step: closure.issue, text: b}]")
    model.ask(ask())
    fault = model.ask(ask(step_id="initial.issue"))
    assert "'closure.issue'" in fault.reason
    assert "'initial.issue'" in fault.reason
    assert "Turn 2" in fault.reason
    assert not fault.transient
    assert model.position == {"turns": 1}


def test_a_prompt_without_the_expected_words_is_a_failure_that_names_them():
    fault = scripted("turns: [{expect_prompt: [Fix, lexer], text: a}]").ask(ask("Fix the parser."))
    assert "'lexer'" in fault.reason
    assert not fault.transient


def test_the_prompt_is_the_newest_text_and_not_a_tool_result():
    result = tool_result_block(ToolCall(tool_use_id="toolu_1", name="bash", input={}, output="lexer"))
    talk = (
        Message(role="user", content=(text_block("Fix the parser."),)),
        Message(role="assistant", content=(text_block("lexer"),)),
        Message(role="user", content=(result,)),
    )
    model = scripted("turns: [{expect_prompt: [parser], text: a}, {expect_prompt: [lexer], text: b}]")
    assert isinstance(model.ask(ask(messages=talk)), ModelTurn)
    assert isinstance(model.ask(ask(messages=talk)), ModelFault)
    corrected = (*talk, Message(role="assistant", content=()), Message(role="user", content=(text_block("lexer?"),)))
    assert isinstance(model.ask(ask(messages=corrected)), ModelTurn)


def test_turns_by_step_do_not_care_about_the_order_of_steps():
    model = scripted("steps: {a: [{text: a1}, {text: a2}], b: [{text: b1}]}")
    assert [model.ask(ask(step_id=step)).text for step in "aba"] == ["a1", "b1", "a2"]
    assert model.position == {"a": 2, "b": 1}
    assert "ended at step 'b'" in model.ask(ask(step_id="b")).reason
    assert "'c'" in model.ask(ask(step_id="c")).reason


@pytest.mark.parametrize(
    "text",
    [
        "turns: [{tools: [{bash: {}}]}, {error: {status: 529}}, {tools: [{read: {}}, {glob: {}}]}, {repeat: 1}]",
        "steps: {initial.issue: [{tools: [{bash: {}}]}, {text: a}, {tools: [{read: {}}]}, {text: b}], x: [{text: c}]}",
    ],
)
@pytest.mark.parametrize("stop", range(5))
def test_a_resumed_scenario_goes_on_exactly_where_it_stopped(text, stop):
    whole, begun = scripted(text), scripted(text)
    expected = [whole.ask(ask()) for _ in range(4)]
    got = [begun.ask(ask()) for _ in range(min(stop, 4))]
    saved = json.loads(json.dumps(begun.position))
    resumed = scripted(text, position=saved)
    assert got + [resumed.ask(ask()) for _ in range(4 - len(got))] == expected
    assert resumed.leftover == whole.leftover


def test_leftover_counts_what_was_not_played():
    model = scripted("turns: [{text: a}, {repeat: 3}, {text: b}]")
    model.ask(ask())
    assert model.leftover == 4


def test_a_recording_changes_nothing_and_plays_the_same_again():
    script = parse_scenario(
        "turns: [{text: look, tools: [{bash: {command: ls, deep: [null, {a: null}]}}, {read: {file_path: x}}]},"
        ' {output: {next_action: {action: next}, none: null}}, {text: "two\\nlines"}, {stop_reason: refusal},'
        " {text: cut, stop_reason: max_tokens}, {text: '[1]'}, {text: '{\"a\": NaN}'}]"
    )
    issue = Issue(number=7, title="Fix", labels=("bug",))
    recorder = RecordingModel(ScriptedModel(script), params={"issue": 7}, issue=issue)
    first = [recorder.ask(ask()) for _ in script.turns]
    assert first == [turn for model in [ScriptedModel(script)] for turn in [model.ask(ask()) for _ in script.turns]]
    text = recorder.to_yaml(Expect(outcome=Outcome.MODEL_FAILED, steps=("initial.issue",)))
    again = parse_scenario(text)
    model = ScriptedModel(again)
    assert [model.ask(ask()) for _ in again.turns] == first
    assert again.issue.to_issue() == issue
    assert (again.params, again.expect.outcome) == ({"issue": 7}, Outcome.MODEL_FAILED)
    assert {turn.expect_step for turn in again.turns} == {"initial.issue"}
    assert "two\n    lines" in text, "texts of several lines stay readable"


def test_a_real_answer_is_recorded_without_thinking_and_faults_are_not_kept(serve):
    thinking = {"type": "thinking", "thinking": "Hm.", "signature": "s"}
    replies = (
        Failure(status=529, error="overloaded_error"),
        calls(("bash", {"command": "ls"})),
        Answer(content=(thinking, {"type": "text", "text": '{"a": 1}'})),
        says("bye"),
    )
    model, _ = serve(*replies)
    recorder = RecordingModel(model)
    answers = [recorder.ask(ask(iteration=number)) for number in range(4)]
    assert isinstance(answers[0], ModelFault)
    played = ScriptedModel(recorder.scenario())
    again = [played.ask(ask()) for _ in range(3)]
    assert [turn.stop_reason for turn in again] == [turn.stop_reason for turn in answers[1:]]
    assert [replace(use, tool_use_id="") for use in again[0].tool_uses] == [
        replace(use, tool_use_id="") for use in answers[1].tool_uses
    ]
    assert [turn.text for turn in again[1:]] == ['{"a":1}', "bye"]
    assert "Hm." not in recorder.to_yaml()
