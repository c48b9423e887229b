"""Structured output in several ways: what a run learns of a service, and when it asks in another way."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from stepflow.domain.conversation import ModelFault, StopReason
from stepflow.domain.event import ModelTurned, ModelWaited, PromptRendered, StrategyChosen, UserMessage
from stepflow.domain.words import Outcome, Strategy, StructuredOutput
from tests.build import issue_agent, make_facts
from tests.engine.played import HAPPY, check_every_beginning, completed, play, resume, steps_of
from tests.fakes import answers, calls, says

PROSE = says("I had a look and all is well.")
NEXT = {"next_action": {"action": "next", "reason": "next it is"}}
FENCED = says(f"Here it is:\n```json\n{json.dumps(NEXT)}\n```\nThat is all.")
TWO = says(f"{json.dumps(NEXT)}\nor rather\n{json.dumps(NEXT)}")
REFUSED = ModelFault(reason="output_config: Extra inputs are not permitted", transient=True, no_strategy=True)
NO_TOOLS = ModelFault(reason="this model knows no tools", no_strategy=True)
NATIVE, TOOL, PROMPT = Strategy


def facts(given: StructuredOutput = StructuredOutput.AUTO):
    return replace(make_facts(), structured_output=given)


def chosen(ports) -> list[tuple[Strategy, bool]]:
    return [(event.strategy, event.by_fault) for event in ports.journal.of(StrategyChosen)]


def strategies(ports) -> list[tuple[Strategy, bool]]:
    return [(request.strategy, request.insist) for request in ports.model.requests]


def retries(ports) -> list[str]:
    return [note for note in ports.journal.notes() if note.startswith("[Format] retry")]


def test_a_service_that_heeds_output_config_is_asked_in_no_other_way() -> None:
    ports = completed(issue_agent(), HAPPY, facts=facts())
    assert strategies(ports) == [(NATIVE, False)] * 3
    assert (chosen(ports), retries(ports)) == ([], [])


def test_prose_moves_the_run_on_to_a_forced_tool_and_later_steps_begin_with_the_tool() -> None:
    ports = completed(issue_agent(), [PROSE, *HAPPY], facts=facts())
    assert steps_of(ports) == ["initial.issue", "continuation.issue", "closure.issue"], "the retry is no iteration"
    assert strategies(ports) == [(NATIVE, False), (TOOL, True), (TOOL, False), (TOOL, False)]
    assert chosen(ports) == [(TOOL, False)]
    assert retries(ports) == ['[Format] retry 1/2 on step "initial.issue"']


def test_prose_in_spite_of_a_forced_tool_moves_the_run_on_to_words_which_stay_where_they_were_said() -> None:
    ports = completed(issue_agent(), [PROSE, PROSE, FENCED, *HAPPY[1:]], facts=facts())
    assert strategies(ports) == [(NATIVE, False), (TOOL, True), (PROMPT, True), (PROMPT, False), (PROMPT, False)]
    assert [event.strategy for event in ports.journal.of(StrategyChosen)] == [TOOL, PROMPT]
    said = ports.journal.of(UserMessage)
    assert ["JSON Schema" in event.text for event in said] == [False, True]
    openings = ports.journal.of(PromptRendered)
    assert ["JSON Schema" in "\n".join(event.blocks) for event in openings] == [False, True, True]
    systems = {request.system for request in ports.model.requests[:3]}
    assert len(systems) == 1, "what stands before the conversation is the same for all its turns"
    for before, after in zip(ports.model.requests[:2], ports.model.requests[1:3], strict=True):
        assert after.messages[: len(before.messages)] == before.messages


def test_a_service_that_heeds_nothing_ends_as_without_an_object_once_every_way_was_tried() -> None:
    result, ports = play(issue_agent(), [PROSE] * 6, facts=facts())
    assert (result.outcome, result.iterations) == (Outcome.ROUTING_FAILED, 2)
    assert "no JSON object" in result.reason
    assert [strategy for strategy, _ in strategies(ports)] == [NATIVE, TOOL, *[PROMPT] * 4]
    assert len(retries(ports)) == 4


def test_a_service_that_refuses_output_config_is_asked_by_a_tool_at_once_and_nobody_waits() -> None:
    ports = completed(issue_agent(), [REFUSED, *HAPPY], facts=facts())
    assert strategies(ports) == [(NATIVE, False), *[(TOOL, False)] * 3]
    assert chosen(ports) == [(TOOL, True)]
    assert (retries(ports), ports.journal.of(ModelWaited), ports.clock.slept) == ([], [], [])


def test_a_service_that_refuses_tools_too_is_told_in_words_in_the_message_it_refused() -> None:
    ports = completed(issue_agent(), [REFUSED, NO_TOOLS, FENCED, *HAPPY[1:]], facts=facts())
    assert chosen(ports) == [(TOOL, True), (PROMPT, True)]
    (opening,) = ports.model.requests[2].messages
    assert "JSON Schema" in opening.content[-1]["text"]


def test_an_answer_without_the_shape_that_was_asked_for_shows_that_nobody_heeded_it() -> None:
    shapeless = says('{"next_action": {"reason": "all is well"}}')
    ports = completed(issue_agent(), [shapeless, *HAPPY], facts=facts())
    assert strategies(ports)[:2] == [(NATIVE, False), (TOOL, True)]


def test_an_answer_that_breaks_what_no_service_can_enforce_shows_nothing() -> None:
    agent = issue_agent()
    step = agent.steps["initial.issue"]
    schema = {**step.schema, "properties": {**step.schema["properties"], "why": {"type": "string", "minLength": 9}}}
    agent = replace(agent, steps={**agent.steps, step.id: replace(step, schema=schema)})
    ports = completed(
        agent, [answers("next", why="short"), answers("next", why="long enough"), *HAPPY[1:]], facts=facts()
    )
    assert {strategy for strategy, _ in strategies(ports)} == {NATIVE}
    assert len(retries(ports)) == 1


def test_an_answer_in_a_fence_that_fits_is_taken_as_it_is() -> None:
    result, ports = play(issue_agent(), [FENCED, *HAPPY[1:]], facts=facts())
    assert (result.outcome, chosen(ports), retries(ports)) == (Outcome.COMPLETED, [], [])


def test_an_answer_that_was_cut_off_says_nothing_about_the_service() -> None:
    cut = says('{"next', StopReason.MAX_TOKENS)
    _result, ports = play(issue_agent(), [cut, cut, cut, *HAPPY], facts=facts())
    assert chosen(ports) == []


@pytest.mark.parametrize("given", [StructuredOutput.TOOL, StructuredOutput.PROMPT])
def test_a_given_strategy_is_kept_and_a_missing_object_is_asked_for_again(given) -> None:
    ports = completed(issue_agent(), [PROSE, PROSE, FENCED, *HAPPY[1:]], facts=facts(given))
    assert {strategy.value for strategy, _ in strategies(ports)} == {given.value}
    assert (len(retries(ports)), chosen(ports)) == (2, [])


def test_native_given_is_kept_whatever_the_service_does() -> None:
    result, ports = play(issue_agent(), [PROSE, PROSE], facts=facts(StructuredOutput.NATIVE))
    assert (result.outcome, result.iterations) == (Outcome.ROUTING_FAILED, 2)
    assert (chosen(ports), retries(ports)) == ([], [])
    _result, ports = play(issue_agent(), [REFUSED, *HAPPY], facts=facts(StructuredOutput.NATIVE))
    assert len(ports.journal.of(ModelWaited)) == 1, "the call is made again, with the schema in the system prompt"


@pytest.mark.parametrize("given", [StructuredOutput.TOOL, StructuredOutput.PROMPT])
def test_of_two_objects_none_is_guessed(given) -> None:
    ports = completed(issue_agent(), [TWO, *HAPPY], facts=facts(given))
    (said,) = ports.journal.of(UserMessage)
    assert said.errors == ["(answer): 2 JSON objects, where there must be exactly one"]


def test_tools_stay_usable_until_the_answer_is_asked_for_again() -> None:
    _result, ports = play(issue_agent(), [REFUSED, calls("bash", command="ls"), PROSE, *HAPPY], facts=facts())
    assert strategies(ports)[1:4] == [(TOOL, False), (TOOL, False), (TOOL, True)]
    assert ports.tools.happened[0] == "tool bash"


def test_every_beginning_of_its_journal_leads_to_the_same_end_without_asking_twice() -> None:
    replies = [REFUSED, calls("bash", command="ls"), PROSE, PROSE, FENCED, calls("bash"), TWO, *HAPPY[1:]]
    check_every_beginning(issue_agent(), replies, facts())


def test_a_run_that_goes_on_with_auto_learns_from_what_came_before() -> None:
    """It began with `native`, which moves on from nothing."""
    replies = [HAPPY[0], answers("dance"), PROSE, PROSE]
    _result, ports = play(issue_agent(), replies, facts=facts(StructuredOutput.NATIVE))
    turned = [number for number, event in enumerate(ports.journal.events) if isinstance(event, ModelTurned)]
    before = ports.journal.events[: turned[2] + 1]
    again, journal = resume(issue_agent(), before, [answers("handoff"), HAPPY[2]], facts())
    assert again.outcome is Outcome.COMPLETED
    assert [event.strategy for event in journal.of(StrategyChosen)] == [TOOL, PROMPT]
