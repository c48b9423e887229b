"""What readers may unfold, and what they see who asked for every word."""

from __future__ import annotations

import json

from hostile import obeyed

from stepflow.domain.conversation import Usage
from stepflow.domain.event import (
    Entry,
    Event,
    IterationStarted,
    ModelTurned,
    Noted,
    PromptRendered,
    StepAnswered,
    UserMessage,
)
from stepflow.domain.words import StepKind
from stepflow.report.log import ActionLog, TerminalLog, folded_traceback

LONG = "word " * 300


def shown(log: ActionLog | TerminalLog, *events: Event) -> list[str]:
    return [
        line for number, event in enumerate(events, 1) for line in log.render(Entry(seq=number, time=1.0, event=event))
    ]


def turned(*blocks: dict) -> ModelTurned:
    return ModelTurned(
        content=list(blocks), stop_reason="end_turn", usage=Usage(), cost_usd=0.0, model="m", seconds=0.1
    )


PROMPT = PromptRendered(
    system="You are careful.\nVery.", blocks=["Do it.", LONG], source="prompts/a.md", retry=False, tools=[]
)


def test_with_debug_every_word_of_prompt_and_answer_is_there():
    answer = turned({"type": "text", "text": '{"next_action": {"action": "next"}}'})
    said = UserMessage(text="Answer in JSON.\nOnly JSON.", format_retry=True, errors=["no JSON"])
    lines = shown(ActionLog(debug=True), PROMPT, answer, said)
    text = "".join(line.removeprefix("│ ") for line in lines)
    for words in ("You are careful.", "Very.", "Do it.", LONG.strip(), '"action": "next"', "Only JSON."):
        assert words in text


def test_with_debug_a_tool_call_is_shown_with_all_its_input():
    use = {"type": "tool_use", "id": "u1", "name": "write", "input": {"file_path": "a.txt", "content": "x" * 900}}
    text = "".join(line.removeprefix("│ ") for line in shown(ActionLog(debug=True), turned(use)))
    assert "x" * 900 in text


def test_without_debug_prompts_and_answers_stay_short():
    lines = shown(ActionLog(), PROMPT, turned({"type": "text", "text": '{"secret plan": 1}'}))
    assert lines == ["prompt: prompts/a.md; tools: none"]


def test_the_terminal_has_debug_too():
    assert any("You are careful." in line for line in shown(TerminalLog(debug=True), PROMPT))


def test_what_a_command_printed_is_folded_under_its_message():
    lines = shown(
        ActionLog(),
        Noted(level="info", message="setup ended with exit code 0", data={"output": "one\n::error::two\n100 %"}),
        Noted(level="info", message="next"),
    )
    assert lines == [
        "::group::setup ended with exit code 0",
        "  one",
        "  │ ::error::two",
        "  100 %",
        "::endgroup::",
        "next",
    ]


def test_a_fold_in_a_step_ends_the_steps_group_since_groups_do_not_nest():
    begun = IterationStarted(iteration=1, step_id="initial.a", kind=StepKind.WORK, model="m")
    bug = Noted(level="error", message="internal error", data={"traceback": "Traceback\n  boom"})
    after = StepAnswered(step_id="initial.a", answer=None, intent=None, target=None, reason="r")
    assert obeyed("\n".join(shown(ActionLog(), begun, bug, after))) == ["group", "endgroup", "group", "endgroup"]


def test_a_traceback_before_any_run_is_folded_and_not_obeyed():
    lines = folded_traceback("Traceback (most recent call last):\n  ##[error]x\n::set-output name=a::b")
    assert lines[0] == "::group::internal error"
    assert lines[-1] == "::endgroup::"
    assert obeyed("\n".join(lines)) == ["group", "endgroup"]
    assert json.dumps(lines).count("set-output") == 1
