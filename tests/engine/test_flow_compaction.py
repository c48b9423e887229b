"""A conversation that does not fit the model is made shorter, or its step begins again; nothing of it is lost."""

from __future__ import annotations

import json

import pytest

from stepflow.domain.conversation import (
    Message,
    ModelFault,
    ModelTurn,
    StopReason,
    ToolResult,
    image_block,
    text_block,
    tool_result_block,
)
from stepflow.domain.definition import OutcomeRule
from stepflow.domain.event import (
    ContextCompacted,
    ContextOverflowed,
    ModelTurned,
    PromptRendered,
    Routed,
    StepAnswered,
    ToolCalled,
)
from stepflow.domain.run import ImageType, IssueImage, Limits
from stepflow.domain.state import fold
from stepflow.domain.words import Intent, Outcome
from stepflow.engine.conversation import compact_messages
from tests.build import issue_agent, make_agent, make_check_step, make_facts, make_step
from tests.engine.played import HAPPY, check_every_beginning, completed, play, steps_of
from tests.engine.test_flow_loop import CLEAN, DIRTY, checked_agent
from tests.fakes import RecordingTools, TableCommands, answers, calls, says

OPENING = Message(role="user", content=(text_block("Do the work. " * 20),))
TOO_LONG = ModelFault(reason="prompt is too long", hint="Let the step read less.", overflow=True)
FULL = says('{"next_act', stop=StopReason.CONTEXT_EXCEEDED)


def exchange(number: int, *sizes: int, name: str = "bash") -> tuple[Message, Message]:
    """An assistant's turn with a call for each size, and the results, each of so many characters."""
    uses = [
        {"type": "tool_use", "id": f"u{number}-{index}", "name": name, "input": {"command": f"cat {number}-{index}"}}
        for index in range(len(sizes))
    ]
    results = [
        tool_result_block(ToolResult(tool_use_id=f"u{number}-{index}", text="x" * size))
        for index, size in enumerate(sizes)
    ]
    return (Message(role="assistant", content=tuple(uses)), Message(role="user", content=tuple(results)))


def talk(*exchanges: tuple[int, ...]) -> tuple[Message, ...]:
    """The opening and these exchanges."""
    return (OPENING, *(message for number, sizes in enumerate(exchanges) for message in exchange(number, *sizes)))


def sizes_of(messages: tuple[Message, ...]) -> list[int]:
    """How long each tool result is; 0 stands for a note."""
    texts = [str(block["content"]) for message in messages for block in message.content if "tool_use_id" in block]
    return [0 if "was removed to make room" in text else len(text) for text in texts]


@pytest.mark.parametrize(
    ("given", "left"),
    [
        pytest.param(talk((9000,), (9000,), (9000,), (9000,)), [0, 0, 0, 9000], id="half-goes-the-oldest-first"),
        pytest.param(talk((90_000,), (900,), (900,)), [0, 900, 900], id="one-huge-result-is-enough"),
        pytest.param(talk((900,), (900,), (9000,), (900,)), [0, 0, 0, 900], id="all-but-the-newest-if-need-be"),
        pytest.param(talk((9000, 50, 9000), (10,)), [0, 50, 0, 10], id="a-result-shorter-than-its-note-stays"),
        pytest.param(talk((9000,), (20_000, 20_000)), [0, 20_000, 20_000], id="the-newest-results-stay"),
        pytest.param((OPENING,), None, id="only-an-opening-is-left-alone"),
        pytest.param(talk((90_000,)), None, id="only-the-newest-result-is-left-alone"),
        pytest.param(talk((50,), (50,), (9000,)), None, id="nothing-worth-it-is-left-alone"),
        pytest.param(talk((900,), (90_000,)), None, id="less-than-a-tenth-is-left-alone"),
    ],
)
def test_old_results_become_notes_as_few_as_free_half(given, left) -> None:
    compacted = compact_messages(given)
    assert (compacted and sizes_of(compacted.messages)) == left
    assert compacted is None or compacted.results == left.count(0)


def test_everything_but_results_stays_and_the_figures_are_true() -> None:
    given = talk((9000,), (9000,), (9000,))
    compacted = compact_messages(given)
    assert compacted is not None
    assert [message for message in compacted.messages if message.role == "assistant"] == list(given[1::2])
    assert (compacted.messages[0], compacted.messages[-1]) == (OPENING, given[-1])
    lengths = [
        len(json.dumps([m.content for m in some], separators=(",", ":"))) for some in (given, compacted.messages)
    ]
    assert compacted.characters == lengths[0] - lengths[1]
    assert 0 < lengths[1] - compacted.left < 60, "the commas and brackets of the lists are not counted"


def test_a_note_is_one_line_that_says_what_went_and_how_to_get_it_again() -> None:
    use = {"type": "tool_use", "id": "u", "name": "bash", "input": {"command": "cat <<E\n" + "word\n" * 100}}
    result = tool_result_block(ToolResult(tool_use_id="u", text="y" * 9000, is_error=True))
    messages = (
        OPENING,
        Message(role="assistant", content=(use,)),
        Message(role="user", content=(result,)),
        *exchange(1, 10),
    )
    compacted = compact_messages(messages)
    assert compacted is not None
    (block,) = compacted.messages[2].content
    note = str(block["content"])
    assert note.startswith('[The result of bash {"command":"cat <<E\\nword')
    assert note.endswith("Call it again only if you need the text.]")
    assert "\n" not in note
    assert len(note) < 400
    assert (block["tool_use_id"], block["is_error"]) == ("u", True)


def test_an_image_counts_as_what_a_model_sees_of_it_and_stays() -> None:
    image = image_block(IssueImage(address="a", type=ImageType.PNG, data="A" * 5_000_000))
    opening = Message(role="user", content=(*OPENING.content, image))
    compacted = compact_messages((opening, *talk((9000,), (10,))[1:]))
    assert compacted is not None
    assert compacted.messages[0] == opening
    assert compacted.left < 20_000


def test_it_ends_after_few_rounds() -> None:
    messages, rounds = talk(*[(2000,)] * 200), 0
    while compacted := compact_messages(messages):
        messages, rounds = compacted.messages, rounds + 1
    assert 1 <= rounds <= 4


# --- in the flow -----------------------------------------------------------------------------------------------


class WordyTools(RecordingTools):
    """Every call gives a long text."""

    def run_tool(self, use) -> ToolResult:
        return ToolResult(tool_use_id=use.id, text="z" * 5000)


def reads(number: int) -> ModelTurn:
    """A turn that reads file `number`."""
    use = {"type": "tool_use", "id": f"use-{number}", "name": "bash", "input": {"command": f"cat {number}"}}
    return ModelTurn(content=(use,), stop_reason=StopReason.TOOL_USE)


@pytest.mark.parametrize(("overflow", "by_fault"), [(TOO_LONG, True), (FULL, False)])
def test_an_overflow_shortens_the_conversation_and_asks_again(overflow, by_fault) -> None:
    replies = [reads(1), reads(2), reads(3), overflow, *HAPPY]
    result, ports = play(issue_agent(), replies, tools=WordyTools())
    assert (result.outcome, result.iterations) == (Outcome.COMPLETED, 3)
    (compacted,) = ports.journal.of(ContextCompacted)
    assert (compacted.by_fault, compacted.results) == (by_fault, 2)
    assert compacted.characters > 9000
    request = ports.model.requests[4]
    assert [message.role for message in request.messages] == ["user", "assistant"] * 3 + ["user"]
    assert sizes_of(request.messages) == [0, 0, 5000]
    assert request.system == ports.model.requests[3].system
    assert len(ports.journal.of(ToolCalled)) == 3, "no tool ran again"
    assert ports.clock.slept == []


def test_later_turns_begin_with_the_same_shorter_messages_so_that_the_cache_serves_them() -> None:
    replies = [reads(1), reads(2), reads(3), TOO_LONG, reads(4), reads(5), *HAPPY]
    _result, ports = play(issue_agent(), replies, tools=WordyTools())
    compacted, *later = [request.messages for request in ports.model.requests[4:7]]
    assert all(messages[: len(compacted)] == compacted for messages in later)


def test_a_step_that_stays_too_long_begins_again_with_its_handoff_and_its_tree() -> None:
    replies = [answers("next", cause="it"), reads(1), reads(2), TOO_LONG, TOO_LONG, *HAPPY[1:]]
    result, ports = play(issue_agent(), replies, tools=WordyTools())
    assert (result.outcome, result.iterations) == (Outcome.COMPLETED, 4)
    assert steps_of(ports) == ["initial.issue", "continuation.issue", "continuation.issue", "closure.issue"]
    (overflowed,) = ports.journal.of(ContextOverflowed)
    assert (overflowed.step_id, overflowed.by_fault) == ("continuation.issue", True)
    again = ports.journal.of(Routed)[1]
    assert (again.to, again.transition) == ("continuation.issue", "repeat")
    assert "outgrew" in again.reason
    assert len(ports.model.requests[5].messages) == 1
    assert len(ports.journal.of(StepAnswered)) == 3, "an answer that was not given is not counted"


def test_the_next_attempt_is_told_why_it_begins_again() -> None:
    agent = make_agent(make_step("initial.issue", text="Begun again because {uv-repeat_reason}."))
    facts = make_facts(limits=Limits(iterations=2))
    _result, ports = play(agent, [reads(1), TOO_LONG, answers("repeat")], tools=WordyTools(), facts=facts)
    assert ports.journal.of(PromptRendered)[1].blocks[0].startswith("Begun again because the conversation outgrew")


def test_an_engine_made_repeat_follows_the_steps_own_repeat() -> None:
    replies = [*HAPPY[:2], reads(1), TOO_LONG, *HAPPY[1:]]
    ports = completed(issue_agent(), replies, tools=WordyTools())
    assert steps_of(ports)[2:] == ["closure.issue", "continuation.issue", "closure.issue"]


def test_a_retry_prompt_is_not_used_up_by_an_attempt_that_outgrew_the_model() -> None:
    commands = TableCommands({"git status --porcelain": [DIRTY, CLEAN]})
    replies = [*HAPPY, reads(1), TOO_LONG, *HAPPY[1:]]
    ports = completed(checked_agent(), replies, commands=commands, tools=WordyTools())
    prompts = ports.journal.of(PromptRendered)
    assert [prompt.retry for prompt in prompts] == [False, False, False, True, True, False]
    assert prompts[3].blocks[0] == prompts[4].blocks[0]


def test_a_check_step_begins_again_without_spending_its_budget() -> None:
    step = make_check_step("s_one", (OutcomeRule(intent=Intent.CLOSING, transition="complete"),), question="Is it so?")
    replies = [reads(1), TOO_LONG, says("{}"), says('{"result": "ok"}')]
    result, ports = play(make_agent(step), replies, tools=WordyTools())
    assert (result.outcome, result.iterations) == (Outcome.COMPLETED, 2)
    assert fold(ports.journal.events).runs == 1


def test_every_beginning_of_its_journal_leads_to_the_same_end_without_asking_twice() -> None:
    replies = [HAPPY[0], reads(1), reads(2), TOO_LONG, reads(3), FULL, TOO_LONG, reads(4), TOO_LONG, *HAPPY[1:]]
    check_every_beginning(issue_agent(), replies, tools=WordyTools())


def test_a_step_that_never_fits_is_bounded_by_the_limits() -> None:
    facts = make_facts(limits=Limits(iterations=4))
    result, ports = play(issue_agent(), [reads(1), TOO_LONG] * 9, tools=WordyTools(), facts=facts)
    assert result.outcome is Outcome.LIMIT_REACHED
    assert len(steps_of(ports)) == 4


@pytest.mark.parametrize(("overflow", "turns"), [(TOO_LONG, 0), (FULL, 1)])
def test_an_opening_that_does_not_fit_ends_the_run_and_says_what_to_do(overflow, turns) -> None:
    result, ports = play(issue_agent(), [overflow])
    assert result.outcome is Outcome.MODEL_FAILED
    assert 'the opening of step "initial.issue" does not fit' in result.reason
    assert "larger context window" in result.reason
    assert len(ports.journal.of(ModelTurned)) == turns


def test_a_call_that_was_cut_off_by_the_window_does_not_run() -> None:
    cut = calls("bash", stop=StopReason.CONTEXT_EXCEEDED, command="rm -r")
    _result, ports = play(issue_agent(), [reads(1), cut, *HAPPY], tools=RecordingTools())
    assert ports.tools.happened[:2] == ["tool bash", "step ended"]
