"""A conversation that outgrew the model: its step begins again, and nothing of what it did is lost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stepflow.domain.agent.definition import OutcomeRule
from stepflow.domain.conversation import ModelFault, ModelTurn, Remedy, StopReason, ToolCall, text_block
from stepflow.domain.event import ContextOverflowed, PromptRendered
from stepflow.domain.flow import fold
from stepflow.domain.run import Limits
from stepflow.domain.words import Intent, Outcome
from tests.build import issue_agent, make_agent, make_check_step, make_facts, make_step
from tests.engine.played import HAPPY, check_every_beginning, completed, play, steps_of
from tests.engine.test_flow_loop import CLEAN, DIRTY, checked_agent
from tests.fakes import RecordingTools, TableCommands, answers, calls, says

TOO_LONG = ModelFault(reason="prompt is too long", hint="Let the step read less.", remedy=Remedy.SHORTEN)
FULL = says('{"next_act', stop=StopReason.CONTEXT_EXCEEDED)


class WordyTools(RecordingTools):
    """Every call gives a long text."""

    def run_tool(self, use) -> ToolCall:
        return ToolCall(**vars(use), output="z" * 5000)


def reads(number: int) -> ModelTurn:
    """A turn that reads file `number`."""
    use = {"type": "tool_use", "id": f"use-{number}", "name": "bash", "input": {"command": f"cat {number}"}}
    return ModelTurn(content=(use,), stop_reason=StopReason.TOOL_USE)


@pytest.mark.parametrize(("overflow", "by_fault"), [(TOO_LONG, True), (FULL, False)])
def test_a_conversation_that_outgrew_the_model_is_never_shortened_its_step_begins_again(overflow, by_fault) -> None:
    replies = [reads(1), reads(2), reads(3), overflow, *HAPPY]
    result, ports = play(issue_agent(), replies, tools=WordyTools())
    assert (result.outcome, result.iterations) == (Outcome.COMPLETED, 4)
    (overflowed,) = ports.journal.of(ContextOverflowed)
    assert overflowed.by_fault == by_fault
    before, after = ports.model.requests[3:5]
    assert [message.role for message in before.messages] == ["user", "assistant"] * 3 + ["user"]
    assert "z" * 5000 in str(before.messages), "every result is sent as it was"
    assert len(after.messages) == 1
    assert len(ports.journal.of(ToolCall)) == 3, "no tool ran again"
    assert ports.clock.slept == []


def test_the_new_conversation_is_shown_what_was_done_in_the_old_one() -> None:
    says_so = replace(reads(2), content=(text_block("The parser is the culprit."), *reads(2).content))
    _result, ports = play(issue_agent(), [reads(1), says_so, TOO_LONG, *HAPPY], tools=WordyTools())
    (opening,) = ports.model.requests[3].messages
    shown = "\n".join(str(block["text"]) for block in opening.content)
    assert "in a conversation that ended before its answer:" in shown
    assert "bash (2 calls)" in shown
    assert '- bash {"command":"cat 1"}' in shown
    assert "The parser is the culprit." in shown
    assert "zzz" not in shown
    later = ports.model.requests[4]
    assert "What was done" not in str(later.messages), "only the step itself needs it"


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
    replies = [HAPPY[0], reads(1), reads(2), TOO_LONG, reads(3), FULL, reads(4), TOO_LONG, *HAPPY[1:]]
    check_every_beginning(issue_agent(), replies, tools=WordyTools())


@pytest.mark.parametrize(("overflow", "turns"), [(TOO_LONG, 0), (FULL, 1)])
def test_an_opening_that_does_not_fit_ends_the_run_and_says_what_to_do(overflow, turns) -> None:
    result, ports = play(issue_agent(), [overflow])
    assert result.outcome is Outcome.MODEL_FAILED
    assert 'the opening of step "initial.issue" does not fit' in result.reason
    assert "larger context window" in result.reason
    assert len(ports.journal.of(ModelTurn)) == turns


def test_a_call_that_was_cut_off_by_the_window_does_not_run() -> None:
    cut = calls("bash", stop=StopReason.CONTEXT_EXCEEDED, command="rm -r")
    _result, ports = play(issue_agent(), [reads(1), cut, *HAPPY], tools=RecordingTools())
    assert ports.tools.happened[:2] == ["tool bash", "step ended"]
