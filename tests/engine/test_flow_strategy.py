"""How structured output is asked for: settled before a conversation begins, and never changed inside it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepflow.domain.conversation import ModelFault, ModelTurn, Remedy, RequestAdapted, StopReason
from stepflow.domain.event import ModelWaited, PromptRendered, UserMessage
from stepflow.domain.words import Outcome, Strategy, StructuredOutput
from stepflow.engine.loop import run_flow
from stepflow.engine.resumption import fold_stopped
from tests.build import issue_agent, make_facts
from tests.engine.played import HAPPY, check_every_beginning, completed, play, steps_of
from tests.fakes import ListJournal, answers, calls, fake_ports, says
from tests.tried import tried

PROSE = says("I had a look and all is well.")
NEXT = {"next_action": {"action": "next", "reason": "next it is"}}
FENCED = says(f"Here it is:\n```json\n{json.dumps(NEXT)}\n```\nThat is all.")
TWO = says(f"{json.dumps(NEXT)}\nor rather\n{json.dumps(NEXT)}")
REFUSED = ModelFault(reason="output_config: Extra inputs are not permitted", remedy=Remedy.ASK_IN_WORDS)
NATIVE, PROMPT = Strategy


def facts(given: StructuredOutput = StructuredOutput.AUTO):
    return replace(make_facts(), structured_output=given)


def with_a_map(agent):
    """The agent, whose first step answers with an object that may hold any key."""
    step = agent.steps["initial.issue"]
    schema = {**step.schema, "properties": {**step.schema["properties"], "details": {"type": "object"}}}
    return replace(agent, steps={**agent.steps, step.id: replace(step, schema=schema)})


def adapted(ports) -> list[tuple[Remedy, bool]]:
    return [(event.remedy, event.by_fault) for event in ports.journal.of(RequestAdapted)]


def strategies(ports) -> list[Strategy]:
    return [request.strategy for request in ports.model.requests]


def described(ports) -> list[bool]:
    """Of each request, whether its messages describe the answer's form."""
    return ["JSON Schema" in str(request.messages) for request in ports.model.requests]


def retries(ports) -> list[str]:
    return [note for note in ports.journal.notes() if note.startswith("[Format] retry")]


def check_conversations_only_grow(ports) -> None:
    """Every request of a conversation begins with what the one before it held, and under the same system and tools."""
    for before, after in zip(ports.model.requests, ports.model.requests[1:], strict=False):
        if (before.step_id, before.iteration) == (after.step_id, after.iteration):
            assert (after.system, after.tools) == (before.system, before.tools)
            assert blocks_of(after)[: len(blocks_of(before))] == blocks_of(before)


def blocks_of(request) -> list[tuple[str, dict]]:
    return [(message.role, block) for message in request.messages for block in message.content]


def test_a_service_that_heeds_output_config_is_asked_in_no_other_way() -> None:
    ports = completed(issue_agent(), HAPPY, facts=facts())
    assert strategies(ports) == [NATIVE] * 3
    assert (adapted(ports), retries(ports), any(described(ports))) == ([], [], False)


def test_prose_is_corrected_in_words_and_later_steps_begin_with_them() -> None:
    ports = completed(issue_agent(), [PROSE, *HAPPY], facts=facts())
    assert steps_of(ports) == ["initial.issue", "continuation.issue", "closure.issue"], "the retry is no iteration"
    assert strategies(ports) == [NATIVE, NATIVE, PROMPT, PROMPT], "within the conversation the request stays as it is"
    assert described(ports) == [False, True, True, True]
    assert adapted(ports) == [(Remedy.ASK_IN_WORDS, False)]
    assert retries(ports) == ['[Format] retry 1/2 on step "initial.issue"']
    check_conversations_only_grow(ports)


def test_words_stay_where_they_were_said_once() -> None:
    ports = completed(issue_agent(), [PROSE, PROSE, FENCED, *HAPPY[1:]], facts=facts())
    said = ports.journal.of(UserMessage)
    assert ["JSON Schema" in event.text for event in said] == [True, False]
    openings = ports.journal.of(PromptRendered)
    assert ["JSON Schema" in "\n".join(event.blocks) for event in openings] == [False, True, True]
    check_conversations_only_grow(ports)


def test_a_service_that_heeds_nothing_ends_as_without_an_object() -> None:
    result, ports = play(issue_agent(), [PROSE] * 6, facts=facts())
    assert (result.outcome, result.iterations) == (Outcome.ROUTING_FAILED, 2)
    assert "no JSON object" in result.reason
    assert strategies(ports) == [*[NATIVE] * 3, *[PROMPT] * 3]
    assert len(retries(ports)) == 4


@pytest.mark.parametrize("given", [StructuredOutput.AUTO, StructuredOutput.NATIVE])
def test_a_service_that_refuses_a_schema_is_asked_in_the_message_that_it_refused_and_nobody_waits(given) -> None:
    ports = completed(issue_agent(), [REFUSED, *HAPPY], facts=facts(given))
    assert strategies(ports)[:2] == [NATIVE, PROMPT]
    assert described(ports)[:2] == [False, True]
    assert adapted(ports)[0] == (Remedy.ASK_IN_WORDS, True)
    (opening,) = ports.model.requests[1].messages
    assert "JSON Schema" in opening.content[-1]["text"]
    assert (retries(ports), ports.journal.of(ModelWaited), ports.clock.slept) == ([], [], [])


def test_a_schema_that_cannot_be_expressed_is_described_from_the_opening_on() -> None:
    ports = completed(with_a_map(issue_agent()), [PROSE, *HAPPY], facts=facts())
    assert strategies(ports) == [PROMPT, PROMPT, NATIVE, NATIVE], "only the step that has such a schema"
    assert (described(ports), adapted(ports)) == ([True, True, False, False], [])
    assert len(retries(ports)) == 1
    check_conversations_only_grow(ports)


def test_an_answer_without_the_shape_that_was_asked_for_shows_that_nobody_heeded_it() -> None:
    shapeless = says('{"next_action": {"reason": "all is well"}}')
    ports = completed(issue_agent(), [shapeless, *HAPPY], facts=facts())
    assert described(ports)[:2] == [False, True]


def test_an_answer_that_breaks_what_no_service_can_enforce_shows_nothing() -> None:
    agent = issue_agent()
    step = agent.steps["initial.issue"]
    schema = {**step.schema, "properties": {**step.schema["properties"], "why": {"type": "string", "minLength": 9}}}
    agent = replace(agent, steps={**agent.steps, step.id: replace(step, schema=schema)})
    ports = completed(
        agent, [answers("next", why="short"), answers("next", why="long enough"), *HAPPY[1:]], facts=facts()
    )
    assert (set(strategies(ports)), any(described(ports))) == ({NATIVE}, False)
    assert len(retries(ports)) == 1


def test_an_answer_in_a_fence_that_fits_is_taken_as_it_is() -> None:
    result, ports = play(issue_agent(), [FENCED, *HAPPY[1:]], facts=facts())
    assert (result.outcome, adapted(ports), retries(ports)) == (Outcome.COMPLETED, [], [])


def test_an_answer_that_was_cut_off_says_nothing_about_the_service() -> None:
    cut = says('{"next', StopReason.MAX_TOKENS)
    _result, ports = play(issue_agent(), [cut, cut, cut, *HAPPY], facts=facts())
    assert adapted(ports) == []


def test_words_given_are_kept_and_a_missing_object_is_asked_for_again() -> None:
    ports = completed(issue_agent(), [PROSE, PROSE, FENCED, *HAPPY[1:]], facts=facts(StructuredOutput.PROMPT))
    assert set(strategies(ports)) == {PROMPT}
    assert (len(retries(ports)), adapted(ports)) == (2, [])


def test_native_given_is_kept_whatever_the_service_answers() -> None:
    result, ports = play(issue_agent(), [PROSE, PROSE], facts=facts(StructuredOutput.NATIVE))
    assert (result.outcome, result.iterations) == (Outcome.ROUTING_FAILED, 2)
    assert (adapted(ports), retries(ports)) == ([], [])


def test_of_two_objects_none_is_guessed() -> None:
    ports = completed(issue_agent(), [TWO, *HAPPY], facts=facts(StructuredOutput.PROMPT))
    (said,) = ports.journal.of(UserMessage)
    assert said.errors == ["(answer): 2 JSON objects, where there must be exactly one"]


def test_an_empty_answer_leaves_no_message_and_what_is_said_next_goes_on_in_the_last_one() -> None:
    ports = completed(issue_agent(), [ModelTurn(content=(), stop_reason=StopReason.END_TURN), *HAPPY], facts=facts())
    (opening,) = ports.model.requests[1].messages
    assert "does not fit" in opening.content[-1]["text"]
    check_conversations_only_grow(ports)


def test_thinking_that_the_service_calls_bound_elsewhere_is_left_out_for_the_rest_of_the_conversation_once() -> None:
    bound = ModelFault(reason="The block is bound to a different conversation.", remedy=Remedy.DROP_THINKING)
    replies = [calls("bash", command="ls"), bound, calls("bash", command="ls"), *HAPPY]
    ports = completed(issue_agent(), replies, facts=facts())
    assert [request.drop_thinking for request in ports.model.requests] == [False, False, True, True, False, False]
    assert adapted(ports) == [(Remedy.DROP_THINKING, True)]
    result, _ports = play(issue_agent(), [calls("bash", command="ls"), bound, bound], facts=facts())
    assert result.outcome is Outcome.MODEL_FAILED


def test_every_beginning_of_its_journal_leads_to_the_same_end_without_asking_twice() -> None:
    replies = [REFUSED, calls("bash", command="ls"), PROSE, PROSE, FENCED, calls("bash"), TWO, *HAPPY[1:]]
    check_every_beginning(issue_agent(), replies, facts())
    check_every_beginning(with_a_map(issue_agent()), [PROSE, *HAPPY], facts())


BOUND = ModelFault(reason="The block is bound to a different conversation.", remedy=Remedy.DROP_THINKING)
TOO_LONG = ModelFault(reason="prompt is too long", remedy=Remedy.SHORTEN)
ANYTHING = (
    calls("bash", command="ls"),
    calls("bash", command="ls"),
    PROSE,
    FENCED,
    TWO,
    REFUSED,
    BOUND,
    TOO_LONG,
    *HAPPY,
    says('{"next', StopReason.MAX_TOKENS),
    says('{"next', StopReason.CONTEXT_EXCEEDED),
    says("…", StopReason.PAUSE_TURN),
    ModelTurn(content=(), stop_reason=StopReason.END_TURN),
)


@tried(40)
@given(st.lists(st.sampled_from(ANYTHING), max_size=12), st.booleans(), st.integers(0, 999))
def test_no_conversation_ever_changes_what_it_has_begun_with_nor_does_a_run_that_goes_on(replies, maps, cut) -> None:
    agent = with_a_map(issue_agent()) if maps else issue_agent()
    enough = [*replies, *[says("…")] * 40]
    _result, ports = play(agent, enough, most=6, facts=facts())
    check_conversations_only_grow(ports)

    recorded = ports.journal.events
    before = list(recorded[: 1 + cut % len(recorded)])
    spent = sum(isinstance(event, ModelTurn) or getattr(event, "by_fault", False) for event in before)
    flow = fold_stopped(before)
    again = fake_ports(enough[spent:], journal=ListJournal(before))
    run_flow(agent, facts(), again, flow.state, flow.iteration)
    check_conversations_only_grow(again)
    for asked_again, asked in zip(again.model.requests, ports.model.requests[spent:], strict=False):
        assert (asked_again.system, asked_again.tools) == (asked.system, asked.tools)
        assert blocks_of(asked_again) == blocks_of(asked), "what a killed run had said is said again to the letter"


def test_the_form_of_the_answer_is_described_by_the_user_even_when_the_model_had_paused() -> None:
    paused = says("I search…", StopReason.PAUSE_TURN)
    refused = ModelFault(reason="output_config: Extra inputs are not permitted", remedy=Remedy.ASK_IN_WORDS)
    _result, ports = play(issue_agent(), [paused, refused, *HAPPY], facts=facts())
    described = [m.role for request in ports.model.requests for m in request.messages if "JSON Schema" in str(m)]
    assert set(described) == {"user"}
