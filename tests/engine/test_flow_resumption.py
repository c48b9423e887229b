"""A stopped flow goes on from its messages: nothing that is written happens twice, and what is not written happens."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stepflow.domain.checkout import CommandResult
from stepflow.domain.conversation import ModelTurn, StopReason, ToolCall, Usage
from stepflow.domain.event import (
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
    ToolStarted,
    UserMessage,
    ValidatorRan,
)
from stepflow.domain.flow import fold
from stepflow.domain.run import ImageType, ToolImage
from stepflow.domain.words import FailureAction, Intent, Outcome, Stage, StepKind
from stepflow.engine.loop import run_flow
from stepflow.engine.resumption import WrittenEvents, fold_stopped
from stepflow.errors import InputError
from tests.build import issue_agent, make_facts
from tests.engine.played import started
from tests.fakes import ListJournal, answers, fake_ports, says

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
CALL = ToolCall(tool_use_id="t1", name="bash", input={}, output="out", exit_code=0, seconds=2.0, images=(IMAGE,))
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
RAN = CommandResult(step_id="a", argv=("make",), exit_code=0, stdout="{}", seconds=1.0)


@pytest.mark.parametrize(
    ("recorded", "folded"),
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
def test_a_run_goes_on_from_before_its_last_iteration_or_from_between_two(recorded, folded) -> None:
    flow = fold_stopped(recorded)
    assert (flow.folded, flow.state) == (folded, fold(recorded[:folded]))
    assert flow.iteration in ((), tuple(recorded[folded:]))


def test_a_refusal_that_ended_the_run_is_paid_and_asked_again() -> None:
    refused = replace(TURN, stop_reason=StopReason.REFUSAL)
    ended = replace(ENDED, outcome=Outcome.MODEL_REFUSED)
    flow = fold_stopped([START, BEGIN, PROMPT, refused, ended, FINISHED, RESUMED, refused, ended])
    assert (flow.state.cost_usd, flow.state.usage) == (1.0, Usage(input_tokens=6))
    assert not [event for event in flow.iteration if isinstance(event, ModelTurn)]
    stopped = fold_stopped([START, BEGIN, PROMPT, refused])
    assert refused in stopped.iteration, "a run that was stopped there has yet to end so"
    assert stopped.state.cost_usd == 0.0


def test_an_event_that_is_written_is_given_as_it_was_written_and_a_new_one_is_new() -> None:
    written = WrittenEvents([BEGIN, NOTE, PROMPT])
    assert written.take(replace(BEGIN, model="another")) == BEGIN
    assert written.take(RED) is None, "what follows an attempt happens anew"
    assert written.next == PROMPT
    assert written.take(PROMPT) == PROMPT
    assert written.next is None
    assert written.take(ANSWER) is None


def test_a_note_that_is_written_is_not_written_again_until_something_new_has_happened() -> None:
    other = Noted(level="info", message="another")
    written = WrittenEvents([BEGIN, NOTE])
    assert [written.take(event) for event in (BEGIN, other, NOTE, NOTE)] == [BEGIN, None, NOTE, None]
    written = WrittenEvents([BEGIN, NOTE])
    assert [written.take(event) for event in (BEGIN, PROMPT, NOTE)] == [BEGIN, None, None]


@pytest.mark.parametrize(
    ("iteration", "call"),
    [([BEGIN, TURN, TOOL], "t1"), ([BEGIN, TURN, TOOL, CALL], ""), ([BEGIN, TURN, TOOL, NOTE, RESUMED], "t1")],
)
def test_a_call_that_began_and_has_no_result_was_interrupted(iteration, call) -> None:
    assert WrittenEvents(iteration).interrupted_call == call


SECOND = replace(CALL, tool_use_id="t2")
ASKED = UserMessage(text="", format_retry=True)


@pytest.mark.parametrize(
    "iteration",
    [
        [PROMPT],
        [BEGIN, ANSWER],
        [BEGIN, TURN],
        [BEGIN, PROMPT, CALL],
        [BEGIN, PROMPT, TURN, SECOND],
        [BEGIN, PROMPT, TURN, CALL, CALL],
        [BEGIN, PROMPT, ASKED],
        [BEGIN, PROMPT, TURN, ASKED],
        [BEGIN, PROMPT, RAN],
    ],
)
def test_a_journal_that_no_flow_can_have_written_stops_the_run(iteration) -> None:
    agent, journal = issue_agent(), ListJournal()
    begin = replace(BEGIN, step_id=agent.entry_step)
    iteration = [begin if event is BEGIN else event for event in iteration]
    ports = fake_ports([answers("next")] * 9, journal=journal)
    with pytest.raises(InputError, match="does not fit this agent"):
        run_flow(agent, make_facts(), ports, fold([started(agent, 5)]), iteration)
    new = [event for event in journal.events if not isinstance(event, Noted)]
    assert (ports.model.requests, ports.tools.happened, new) == ([], [], [])


def test_what_a_step_needs_is_started_when_its_conversation_goes_on() -> None:
    agent = issue_agent()
    ports = fake_ports([answers("next"), answers("handoff"), answers("closing")])
    begin = replace(BEGIN, step_id=agent.entry_step)
    turn = replace(says(""), content=TURN.content, stop_reason=StopReason.TOOL_USE)
    run_flow(agent, make_facts(), ports, fold([started(agent, 5)]), [begin, PROMPT, turn, TOOL])
    assert ports.tools.happened == ["step ended"] * 3, "the call that was interrupted does not run again"
    assert len(ports.tools.begun) == 3
    (first, *_rest), message = ports.model.requests, "interrupted; it may have run"
    assert [block["tool_use_id"] for block in first.messages[-1].content] == ["t1"]
    assert message in first.messages[-1].content[0]["content"].lower()
    assert first.messages[-1].content[0]["is_error"]
