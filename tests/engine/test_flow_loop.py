"""The Flow loop, driven by a model that plays its answers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stepflow.domain.agent.agent_settings import McpServer, McpTool
from stepflow.domain.checkout import CommandResult
from stepflow.domain.conversation import ModelFault, ModelTurn, Refusal, StopReason, ToolCall, Usage
from stepflow.domain.event import AnswerLost, ModelWaited, PromptRendered, StepAnswered, UserMessage, ValidatorRan
from stepflow.domain.flow import fold
from stepflow.domain.run import Limits
from stepflow.domain.words import Intent, Outcome, StepKind, state_reason
from tests.build import issue_agent, make_agent, make_entry, make_facts, make_gate, make_step, make_validator
from tests.engine.played import HAPPY, completed, play, steps_of
from tests.fakes import (
    LoadedSchemas,
    StillClock,
    TableCommands,
    answers,
    calls,
    says,
)

DIRTY = CommandResult(exit_code=0, stdout=" M a.py\n?? b.py\n")
CLEAN = CommandResult(exit_code=0)
RED = CommandResult(exit_code=1, stdout="a.py:3: error: bad")


def test_the_tools_of_a_step_are_dead_before_its_answer_counts() -> None:
    _result, ports = play(issue_agent(), [calls("bash", command="true"), *HAPPY])
    assert ports.tools.happened == ["tool bash", "step ended", "step ended", "step ended"]


def test_a_tool_call_goes_back_into_the_same_conversation() -> None:
    _result, ports = play(issue_agent(), [calls("bash", command="ls"), *HAPPY])
    second = ports.model.requests[1]
    assert [message.role for message in second.messages] == ["user", "assistant", "user"]
    assert second.messages[2].content[0]["tool_use_id"] == "use-bash"
    (call,) = ports.journal.of(ToolCall)
    assert (call.name, call.input, call.output, call.denied) == ("bash", {"command": "ls"}, "fine", False)


def test_a_tool_that_the_step_does_not_have_is_denied_and_never_runs() -> None:
    agent = replace(issue_agent(), allowed_tools=frozenset({"Read"}))
    _result, ports = play(agent, [calls("bash", command="rm -rf /"), *HAPPY])
    (call,) = ports.journal.of(ToolCall)
    assert call.denied
    assert "Its tools: read." in call.output
    assert "tool bash" not in ports.tools.happened


def test_a_tool_of_a_server_is_offered_to_the_step_that_names_it_and_to_no_other() -> None:
    search = McpTool(name="search", description="Searches.", input_schema={"type": "object"})
    agent = issue_agent()
    first = replace(agent.steps["initial.issue"], tools=("Read", "mcp__docs__search"))
    agent = replace(
        agent,
        steps={**agent.steps, first.id: first},
        mcp_servers=(McpServer(name="docs", command=("serve",), tools=(search,)),),
    )
    use = calls("mcp__docs__search", query="x")
    _result, ports = play(agent, [use, HAPPY[0], use, *HAPPY[1:]])
    offered = [[tool.name for tool in request.tools] for request in ports.model.requests]
    assert offered[:2] == [["read", "mcp__docs__search"]] * 2
    assert offered[2:] == [["bash", "read", "write", "edit", "glob", "grep"]] * 3
    assert [call.denied for call in ports.journal.of(ToolCall)] == [False, True]
    assert ports.tools.happened.count("tool mcp__docs__search") == 1


# --- closing -------------------------------------------------------------------------------------------------


def checked_agent(**changes):
    clean = make_validator(
        "git-clean", "git status --porcelain", empty=True, extract_params={"changedFiles": "parseChangedFiles"}
    )
    return issue_agent(clean, make_validator("type-check", "mypy ."), **changes)


def test_only_green_validators_complete() -> None:
    result, ports = play(checked_agent(), HAPPY)
    assert (result.outcome, result.validated) == (Outcome.COMPLETED, True)
    assert [request.argv[-1] for request in ports.commands.ran] == ["git status --porcelain", "mypy ."]


def test_attempts_belong_to_the_validation_entry_whatever_its_step_is_called() -> None:
    agent = checked_agent(max_attempts=2)
    closure = agent.steps["closure.issue"]
    assert closure.validation is not None
    shared = replace(closure, validation=replace(closure.validation, id="closure.polling"))
    agent = replace(agent, steps={**agent.steps, closure.id: shared})
    commands = TableCommands({"git status --porcelain": [DIRTY]})
    result, ports = play(agent, [*HAPPY, *HAPPY[1:]], commands=commands)
    assert "attempt 2 of 2" in result.reason
    assert [(run.entry, run.attempt) for run in ports.journal.of(ValidatorRan)] == [
        ("closure.polling", 1),
        ("closure.polling", 2),
    ]


@pytest.mark.parametrize(
    "result",
    [
        CommandResult(exit_code=127, stderr="sh: mypy: not found"),
        CommandResult(exit_code=126),
        CommandResult(exit_code=1, stderr="Permission denied"),
        CommandResult(exit_code=-1, started=False, error="could not start sh"),
    ],
)
def test_a_validator_that_trying_again_cannot_help_ends_the_run_at_once(result) -> None:
    ended, ports = play(checked_agent(), HAPPY, commands=TableCommands({"mypy .": [result]}))
    assert ended.outcome is Outcome.VALIDATION_FAILED
    assert "trying again cannot help" in ended.reason
    assert ports.journal.of(ValidatorRan)[-1].recoverable is False


@pytest.mark.parametrize(
    ("result", "shown"),
    [
        pytest.param(CommandResult(exit_code=-1, timed_out=True, error="timed out after 600 s"), "600 s", id="timeout"),
        pytest.param(CommandResult(exit_code=1, stdout="got 'Permission denied'"), "got 'Permission", id="own words"),
    ],
)
def test_a_validator_that_may_pass_the_next_time_is_tried_again(result, shown) -> None:
    commands = TableCommands({"mypy .": [result, CLEAN]})
    ports = completed(checked_agent(), [*HAPPY, *HAPPY[1:]], commands=commands)
    assert shown in ports.journal.of(PromptRendered)[3].blocks[0]
    assert [run.recoverable for run in ports.journal.of(ValidatorRan) if not run.passed] == [True]


def test_a_closing_answer_that_does_not_fit_its_schema_repeats_instead() -> None:
    agent = issue_agent()
    strict = make_entry("closure.issue", schema={"required": ["proof"]})
    closure = replace(agent.steps["closure.issue"], validation=strict, format_retries=1)
    agent = replace(agent, steps={**agent.steps, "closure.issue": closure})
    proven = answers("closing", proof="yes")
    ports = completed(agent, [*HAPPY, answers("closing"), answers("handoff"), proven])
    answered = ports.journal.of(StepAnswered)
    assert answered[2].intent is Intent.REPEAT
    assert "'proof' is a required property" in answered[2].reason
    assert steps_of(ports)[3] == "continuation.issue"


def test_closing_from_a_work_step_never_closes() -> None:
    result, ports = play(issue_agent(make_validator("x", "true")), [answers("closing")] * 4)
    assert result.outcome is Outcome.ROUTING_FAILED
    assert state_reason(result.stage, result.outcome, "x") == "Flow loop: FAILED_STEP_ROUTING: x"
    assert ports.journal.of(ValidatorRan) == []
    assert ports.commands.ran == []


# --- answers that are no answers -----------------------------------------------------------------------------


def test_format_retries_are_bounded_and_a_readable_intent_goes_on() -> None:
    broken = says('{"next_action": {"action": "next", "reason": 5}}')
    ports = completed(issue_agent(), [broken, says("no JSON"), broken, *HAPPY[1:]])
    assert len(ports.journal.of(UserMessage)) == 2
    assert '[Format] giving up on step "initial.issue"' in ports.journal.notes()


def test_an_intent_written_another_way_costs_no_format_retry() -> None:
    ports = completed(issue_agent(), [answers("Continue"), answers("HANDOFF"), answers("done")])
    assert ports.journal.of(UserMessage) == []


def test_abort_ends_the_run_without_a_format_check() -> None:
    misfit = says('{"next_action": {"action": "abort", "reason": 5}, "reason": "no way"}')
    result, ports = play(issue_agent(), [misfit])
    assert (result.outcome, result.reason) == (Outcome.ABORTED, "no way")
    assert ports.journal.of(UserMessage) == []


def test_a_wrong_step_id_is_corrected_and_logged_and_an_odd_one_left_alone() -> None:
    own = {"stepId": "continuation.issue"}
    replies = [answers("next", stepId="s9"), answers("handoff", **own), answers("closing", stepId=5)]
    ports = completed(issue_agent(), replies)
    corrected = [note for note in ports.journal.notes() if "stepId" in note]
    assert corrected == ['[StepFlow] stepId corrected: "s9" -> "initial.issue"']
    ids = [answered.answer["stepId"] for answered in ports.journal.of(StepAnswered)]
    assert ids == ["initial.issue", "continuation.issue", 5]


@pytest.mark.parametrize(
    ("unfinished", "messages"),
    [
        pytest.param(says('{"next_action": {"acti', stop=StopReason.MAX_TOKENS), 3, id="an answer is asked for again"),
        pytest.param(calls("bash", stop=StopReason.MAX_TOKENS), 3, id="a tool call does not run"),
        pytest.param(says("…", stop=StopReason.PAUSE_TURN), 2, id="a paused turn is continued"),
        pytest.param(ModelTurn(content=(), stop_reason=StopReason.MAX_TOKENS), 1, id="no empty message is sent back"),
    ],
)
def test_a_turn_that_was_cut_off_goes_on_in_its_conversation(unfinished, messages) -> None:
    ports = completed(issue_agent(), [unfinished, *HAPPY])
    assert len(ports.model.requests[1].messages) == messages
    assert "tool bash" not in ports.tools.happened


def test_a_flow_that_goes_on_with_a_fallback_after_a_cut_answer_says_so() -> None:
    agent = issue_agent()
    entry = agent.steps[agent.entry_step]
    gate = make_gate(StepKind.WORK, fail_fast=False, fallback_intent=Intent.NEXT)
    agent = replace(agent, steps={**agent.steps, entry.id: replace(entry, gate=gate)})
    cut_off = [says("{", stop=StopReason.MAX_TOKENS)] * (entry.format_retries + 1)
    ports = completed(agent, [*cut_off, *HAPPY[1:]])
    (note,) = [note for note in ports.journal.notes() if "goes on without the whole answer" in note]
    assert '"initial.issue"' in note
    assert "maxOutputTokens" in note


# --- schema strikes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("failures", "outcome", "iterations", "turns"),
    [
        pytest.param([True], Outcome.COMPLETED, 4, 3, id="one costs an iteration but no turn"),
        pytest.param([True, False, True, False], Outcome.COMPLETED, 5, 3, id="a success resets the strikes"),
        pytest.param([True, True], Outcome.SCHEMA_FAILED, 2, 0, id="two in a row end the run"),
    ],
)
def test_schema_failures_are_counted_as_strikes(failures, outcome, iterations, turns) -> None:
    result, ports = play(issue_agent(), HAPPY, schemas=LoadedSchemas(list(failures)))
    assert (result.outcome, result.iterations, len(ports.model.requests)) == (outcome, iterations, turns)


# --- the model fails -----------------------------------------------------------------------------------------

BUSY = ModelFault(reason="overloaded (529)", transient=True)


def test_a_fault_that_passes_is_waited_out_as_long_as_the_service_says_and_leaves_no_trace_in_the_outcome() -> None:
    facts = make_facts(limits=Limits(iterations=10, deadline=1100))
    result, ports = play(issue_agent(), [BUSY, BUSY, replace(BUSY, retry_after=30), *HAPPY], facts=facts)
    assert (result.outcome, result.iterations) == (Outcome.COMPLETED, 3)
    assert ports.clock.slept == [5, 10, 30]
    waits = [(event.seconds, event.attempt, event.tries, event.deadline_in) for event in ports.journal.of(ModelWaited)]
    assert waits == [(5, 1, 5, 100), (10, 2, 5, 95), (30, 3, 5, 85)]


def test_five_tries_in_a_row_are_the_most_and_a_success_resets_the_count() -> None:
    result, ports = play(issue_agent(), [*[BUSY] * 4, answers("next"), *[BUSY] * 5])
    assert result.outcome is Outcome.MODEL_FAILED
    assert "overloaded (529) (5 tries)" in result.reason
    assert ports.clock.slept == [5, 10, 20, 40] * 2


def test_an_answer_that_broke_off_counts_as_spent() -> None:
    lost = ModelFault(reason="reset", transient=True, usage=Usage(input_tokens=900), cost_usd=0.5)
    ports = completed(issue_agent(), [lost, *HAPPY])
    [answer_lost] = ports.journal.of(AnswerLost)
    assert (answer_lost.usage.input_tokens, answer_lost.cost_usd) == (900, 0.5)
    state = fold(ports.journal.events)
    assert (state.usage.input_tokens >= 900, state.cost_usd >= 0.5) == (True, True)


@pytest.mark.parametrize("limits", [Limits(iterations=9, usd=1.0), Limits(iterations=9, tokens=1000)])
def test_answers_that_break_off_use_a_budget_up(limits: Limits) -> None:
    lost = ModelFault(reason="reset", transient=True, usage=Usage(input_tokens=600), cost_usd=0.6)
    result, ports = play(issue_agent(), [lost] * 5, facts=make_facts(limits=limits))
    assert result.outcome is Outcome.BUDGET_EXHAUSTED
    assert len(ports.journal.of(AnswerLost)) == 2


@pytest.mark.parametrize(
    ("deadline", "seconds", "words"),
    [
        (1060, 61, "only 60 s are left before the deadline (limits.minutes)"),
        (1060, 1e12, "only 60 s are left"),
        (None, 3601, "waits 3600 s at most"),
    ],
)
def test_a_wait_that_cannot_help_is_not_begun(deadline, seconds, words) -> None:
    fault = ModelFault(reason="rate limit (429).", hint="Let fewer runs work.", transient=True, retry_after=seconds)
    facts = make_facts(limits=Limits(iterations=10, deadline=deadline))
    result, ports = play(issue_agent(), [fault], facts=facts)
    assert result.outcome is Outcome.MODEL_FAILED
    assert f"rate limit (429). It asks to wait {seconds:.0f} s, but " in result.reason
    assert words in result.reason
    assert result.reason.endswith("Let fewer runs work.")
    assert ports.clock.slept == []


def test_a_call_may_take_what_is_left_of_the_deadline_and_half_a_minute() -> None:
    facts = make_facts(limits=Limits(iterations=10, deadline=1100))
    _result, ports = play(issue_agent(), [BUSY, *HAPPY], facts=facts)
    assert [request.seconds for request in ports.model.requests[:2]] == [130, 125]
    _result, ports = play(issue_agent(), HAPPY)
    assert [request.seconds for request in ports.model.requests] == [None] * 3


@pytest.mark.parametrize(
    ("deadline", "tick", "slept"),
    [
        pytest.param(1001, 0.4, [], id="the call itself used the time up"),
        pytest.param(1003, 0.0, [3], id="only what is left is waited"),
    ],
)
def test_waiting_never_outlasts_the_deadline(deadline, tick, slept) -> None:
    facts = make_facts(limits=Limits(iterations=10, deadline=deadline))
    result, ports = play(issue_agent(), [BUSY, *HAPPY], facts=facts, clock=StillClock(tick=tick))
    assert (result.outcome, ports.clock.slept) == (Outcome.TIMED_OUT, slept)
    assert len(ports.model.requests) == 1, "no further call follows"


@pytest.mark.parametrize(
    ("reply", "outcome", "reason"),
    [
        (
            ModelFault(reason="invalid key (401)", hint="Check anthropic-api-key."),
            Outcome.MODEL_FAILED,
            "invalid key (401). Check anthropic-api-key.",
        ),
        (
            says("", stop=StopReason.REFUSAL),
            Outcome.MODEL_REFUSED,
            "the model's safeguards refused this without naming a category",
        ),
        (
            replace(says("", stop=StopReason.REFUSAL), refusal=Refusal(category="cyber", explanation="It asks how.\n")),
            Outcome.MODEL_REFUSED,
            "the model's safeguards refused this as `cyber`: It asks how.",
        ),
    ],
)
def test_other_failures_of_the_model_end_the_run_at_once(reply, outcome, reason) -> None:
    result, ports = play(issue_agent(), [reply])
    assert (result.outcome, result.reason) == (outcome, reason)
    assert ports.clock.slept == []


# --- limits --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "outcome", "turns", "words"),
    [
        (Limits(iterations=3), Outcome.LIMIT_REACHED, 3, "3 iterations"),
        (Limits(iterations=9, visits=2), Outcome.LIMIT_REACHED, 2, 'step "initial.issue" has run 2 times'),
        (Limits(iterations=9, tokens=220), Outcome.BUDGET_EXHAUSTED, 2, "220 of 220 tokens"),
        (Limits(iterations=9, usd=0.03), Outcome.BUDGET_EXHAUSTED, 3, "$0.0300 of $0.0300 are spent"),
    ],
)
def test_a_limit_is_exact_and_asked_before_a_turn_is_spent(limits, outcome, turns, words) -> None:
    result, ports = play(issue_agent(), [answers("repeat")] * 20, facts=make_facts(limits=limits))
    assert result.outcome is outcome
    assert words in result.reason
    assert len(ports.model.requests) == turns


def test_a_deadline_ends_the_run_before_the_next_turn() -> None:
    facts = make_facts(limits=Limits(iterations=9, deadline=1010))
    result, ports = play(issue_agent(), [answers("repeat")] * 9, facts=facts, clock=StillClock(tick=2.0))
    assert result.outcome is Outcome.TIMED_OUT
    assert len(ports.model.requests) < 4


def test_a_limit_met_while_completing_does_not_interrupt_it() -> None:
    facts = make_facts(limits=Limits(iterations=3, tokens=330))
    assert play(checked_agent(), HAPPY, facts=facts)[0].outcome is Outcome.COMPLETED


# --- what passes between steps -------------------------------------------------------------------------------


def test_a_repeated_step_is_told_why() -> None:
    agent = issue_agent()
    step = make_step(
        "initial.issue", text="Again: {uv-repeat_reason} ({uv-repeat_count})", to={"next": "continuation.issue"}
    )
    agent = replace(agent, steps={**agent.steps, "initial.issue": step})
    _result, ports = play(agent, [answers("repeat"), answers("repeat"), *HAPPY])
    assert [prompt.blocks[0] for prompt in ports.journal.of(PromptRendered)][:3] == [
        "Again:  (0)",
        "Again: repeat it is (1)",
        "Again: repeat it is (2)",
    ]


def test_a_prompt_that_cannot_be_rendered_ends_the_run_and_names_the_variable() -> None:
    agent = make_agent(make_step("initial.issue", text="{uv-topic}", to={"next": "initial.issue"}))
    result, ports = play(agent, [])
    assert result.outcome is Outcome.INVALID_DEFINITION
    assert "topic" in result.reason
    assert "prompts/initial.issue.md" in result.reason
    assert ports.model.requests == []
