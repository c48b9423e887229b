"""A run's past is played again: nothing that is recorded happens twice, and what is not recorded happens."""

from __future__ import annotations

import json

import pytest

from stepflow.domain.checkout import CommandRequest, CommandResult
from stepflow.domain.conversation import ModelRequest, ModelTurn, StopReason, ToolUse, Usage
from stepflow.domain.event import (
    CommandRan,
    CompletionJudged,
    FlowEnded,
    IterationStarted,
    Noted,
    PromptRendered,
    Routed,
    RunFinished,
    RunResumed,
    RunStarted,
    SchemaFailed,
    StepAnswered,
    ToolCalled,
    ToolStarted,
    UserMessage,
    ValidatorRan,
)
from stepflow.domain.run import ImageType, ToolImage
from stepflow.domain.words import FailureAction, Intent, Outcome, Stage, StepKind
from stepflow.errors import InputError
from stepflow.run.recorded import INTERRUPTED, replay, safe_point
from tests.fakes import ListJournal, answers, fake_ports

START = RunStarted(
    run_id="run-1",
    agent="demo",
    dialect="gate",
    definition_digest="0" * 64,
    verdict_type="poll:state",
    entry_step="a",
    max_iterations=5,
)
BEGIN = IterationStarted(iteration=1, step_id="a", kind=StepKind.WORK, model="opus")
PROMPT = PromptRendered(system="", blocks=["Do it."], source="a.md", retry=False, tools=["bash"])
TURN = ModelTurn(
    content=[{"type": "tool_use", "id": "t1", "name": "bash", "input": {}}],
    stop_reason="tool_use",
    usage=Usage(input_tokens=3),
    cost_usd=0.5,
    model="m",
    seconds=1.0,
)
TOOL = ToolStarted(tool_use_id="t1", name="bash")
IMAGE = ToolImage(type=ImageType.PNG, data="iVBORw0KGgo=")
CALL = ToolCalled(
    tool_use_id="t1", name="bash", input={}, output="out", is_error=False, exit_code=0, seconds=2.0, images=[IMAGE]
)
ANSWER = StepAnswered(step_id="a", answer={"x": 1}, intent=Intent.NEXT, target=None, reason="r", handoff={"x": 1})
ROUTED = Routed(source="a", to="b", transition="next", reason="r")
CLOSED = Routed(source="a", to=None, transition="closing", reason="r")
NOTE = Noted(level="info", message="[Tools] bash")
RED = ValidatorRan(
    iteration=1,
    entry="a",
    name="tests",
    passed=False,
    exit_code=1,
    pattern="p",
    attempt=1,
    max_attempts=3,
    action=FailureAction.RETRY,
    recoverable=True,
    seconds=0.1,
    output_tail="",
)
DONE = CompletionJudged(entry="a", done=True, validated=True, step_id="a")
AGAIN = CompletionJudged(entry="a", done=False, validated=False, step_id="b", retry_prompt="Mend it.")
ENDED = FlowEnded(outcome=Outcome.TIMED_OUT, stage=Stage.FLOW, reason="x", step_id="a", answer=None, validated=False)
FINISHED = RunFinished(outcome=Outcome.TIMED_OUT, stage=Stage.FLOW, reason="x", success=False)
RESUMED = RunResumed(events=4, from_seq=1, iteration=1, step_id="a")
RAN = CommandRan(
    step_id="a",
    argv=["make"],
    exit_code=0,
    stdout="{}",
    stderr="",
    timed_out=False,
    started=True,
    error="",
    seconds=1.0,
)
REQUEST = ModelRequest(step_id="a", iteration=1, model="opus", system="", messages=())
USE = ToolUse(id="t1", name="bash", input={})


@pytest.mark.parametrize(
    ("events", "safe"),
    [
        ([START], 1),
        ([START, NOTE, BEGIN], 2),
        ([START, BEGIN, PROMPT, TURN, CALL, ANSWER], 1),
        ([START, BEGIN, PROMPT, TURN, ANSWER, ROUTED], 6),
        ([START, BEGIN, PROMPT, TURN, ANSWER, ROUTED, NOTE, BEGIN], 7),
        ([START, BEGIN, ANSWER, CLOSED, RED], 1),
        ([START, BEGIN, ANSWER, CLOSED, RED, AGAIN], 6),
        ([START, BEGIN, ANSWER, CLOSED, DONE, ENDED, FINISHED], 1),
        ([START, BEGIN, SchemaFailed(step_id="a", strikes=1, reason="r")], 3),
        ([START, BEGIN, SchemaFailed(step_id="a", strikes=2, reason="r")], 1),
        ([START, BEGIN, ANSWER, ROUTED, ENDED, FINISHED, RESUMED], 4),
    ],
)
def test_a_run_goes_on_from_before_its_last_iteration_or_from_between_two(events, safe) -> None:
    assert safe_point(events) == safe


def play(*events, **parts):
    """The ports of a replay of these events over fakes, and the journal behind it."""
    journal = ListJournal()
    return replay(events, fake_ports([answers("next")], journal=journal, **parts)), journal


def test_recorded_turns_calls_and_commands_are_given_and_what_follows_them_is_asked_for() -> None:
    real = fake_ports([answers("next")])
    ports = replay([BEGIN, NOTE, PROMPT, TURN, TOOL, CALL, RAN, ANSWER, CLOSED, RED], real)
    for event in (BEGIN, NOTE, PROMPT):
        ports.journal.append(event)
    turn = ports.model.ask(REQUEST)
    assert (turn.stop_reason, turn.cost_usd, turn.usage) == (StopReason.TOOL_USE, 0.5, Usage(input_tokens=3))
    assert turn.tool_uses == (USE,)
    ports.journal.append(TURN)
    result = ports.tools.run_tool(USE)
    assert (result.text, result.exit_code, result.is_error) == ("out", 0, False)
    assert result.images == (IMAGE,)
    ports.journal.append(CALL)
    assert ports.commands.run_command(CommandRequest(argv=("make",), timeout=1)).stdout == "{}"
    for event in (RAN, ANSWER):
        ports.journal.append(event)
    ports.tools.end_step()
    ports.journal.append(CLOSED)
    assert (real.model.requests, real.tools.happened, real.commands.ran, real.journal.events) == ([], [], [], [])
    # The past is used up: validators run, the model is asked, and everything is written down.
    asked = CommandRequest(argv=("sh", "-c", "true"), timeout=1)
    assert ports.commands.run_command(asked) == CommandResult(exit_code=0)
    ports.journal.append(RED)
    assert json.loads(ports.model.ask(REQUEST).text)["next_action"]["action"] == "next"
    ports.journal.append(TURN)
    assert ports.tools.run_tool(USE).text == "fine"
    ports.tools.end_step()
    assert real.journal.events == [RED, TURN]
    assert real.tools.happened == ["tool bash", "step ended"]


def test_what_a_step_needs_is_started_when_its_past_is_used_up() -> None:
    real = fake_ports([answers("next")])
    ports = replay([BEGIN, PROMPT, TURN], real)
    for event in (BEGIN, PROMPT):
        ports.journal.append(event)
    ports.tools.begin_step(REQUEST.tools)
    ports.model.ask(REQUEST)
    ports.journal.append(TURN)
    assert real.tools.begun == []
    ports.model.ask(REQUEST)
    ports.tools.run_tool(USE)
    assert real.tools.begun == [REQUEST.tools]


def test_a_call_that_was_at_work_is_answered_that_it_was_and_only_once() -> None:
    real = fake_ports([])
    ports = replay([TURN, TOOL], real)
    ports.journal.append(TURN)
    result = ports.tools.run_tool(USE)
    assert (result.text, result.is_error) == (INTERRUPTED, True)
    assert "interrupted; it may have run" in INTERRUPTED.lower()
    assert ports.tools.run_tool(USE).text == "fine"
    assert real.tools.happened == ["tool bash"]


def test_a_note_that_is_written_is_not_written_again_until_something_new_has_happened() -> None:
    ports, journal = play(BEGIN, NOTE)
    other = Noted(level="info", message="another")
    for event in (BEGIN, other, NOTE, NOTE, PROMPT, NOTE):
        ports.journal.append(event)
    assert journal.events == [other, NOTE, PROMPT, NOTE]
    ports, journal = play(BEGIN, NOTE)
    for event in (BEGIN, PROMPT, NOTE):
        ports.journal.append(event)
    assert journal.events == [PROMPT, NOTE]


@pytest.mark.parametrize(
    ("recorded", "happens"),
    [
        (BEGIN, PROMPT),
        (BEGIN, IterationStarted(iteration=2, step_id="a", kind=StepKind.WORK, model="opus")),
        (CALL, ToolCalled(**{**vars(CALL), "tool_use_id": "t2"})),
        (UserMessage(text="", format_retry=True), UserMessage(text="", format_retry=False)),
        (ANSWER, StepAnswered(**{**vars(ANSWER), "intent": Intent.REPEAT})),
        (ROUTED, CLOSED),
    ],
)
def test_a_flow_that_goes_another_way_than_its_journal_is_stopped(recorded, happens) -> None:
    ports, journal = play(recorded)
    with pytest.raises(InputError, match="does not fit this agent"):
        ports.journal.append(happens)
    assert journal.events == []
