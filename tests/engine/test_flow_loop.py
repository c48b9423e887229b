"""The Flow loop, driven by a model that plays its answers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stepflow.domain.checkout import CommandResult
from stepflow.domain.conversation import ModelFault, StopReason, Usage
from stepflow.domain.event import (
    AnswerLost,
    CompletionJudged,
    FlowEnded,
    IterationStarted,
    ModelWaited,
    PromptRendered,
    Routed,
    StepAnswered,
    ToolCalled,
    UserMessage,
    ValidatorRan,
)
from stepflow.domain.run import Limits
from stepflow.domain.state import RunState, fold
from stepflow.domain.words import FailureAction, Intent, Outcome, StepKind
from tests.build import issue_agent, make_agent, make_entry, make_facts, make_step, make_validator
from tests.engine.played import play
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


def steps_of(ports) -> list[str]:
    return [event.step_id for event in ports.journal.of(IterationStarted)]


HAPPY = [answers("next"), answers("handoff"), answers("closing")]


def test_a_run_walks_its_steps_and_completes_only_after_closing() -> None:
    result, ports = play(issue_agent(), HAPPY)
    assert result.outcome is Outcome.COMPLETED
    assert result.reason == "Completion loop: closing it is"
    assert steps_of(ports) == ["initial.issue", "continuation.issue", "closure.issue"]
    assert [event.transition for event in ports.journal.of(Routed)] == ["next", "handoff", "closing"]
    assert result.answer is not None
    assert result.answer["next_action"]["action"] == "closing"


def test_each_iteration_is_a_fresh_conversation_with_the_steps_own_prompt_and_schema() -> None:
    _result, ports = play(issue_agent(), HAPPY)
    assert [len(request.messages) for request in ports.model.requests] == [1, 1, 1]
    assert [request.schema for request in ports.model.requests] == [
        step.schema for step in issue_agent().steps.values()
    ]


def test_the_tools_of_a_step_are_dead_before_its_answer_counts() -> None:
    _result, ports = play(issue_agent(), [calls("bash", command="true"), *HAPPY])
    assert ports.tools.happened == ["tool bash", "step ended", "step ended", "step ended"]


def test_a_tool_call_goes_back_into_the_same_conversation() -> None:
    _result, ports = play(issue_agent(), [calls("bash", command="ls"), *HAPPY])
    second = ports.model.requests[1]
    assert [message.role for message in second.messages] == ["user", "assistant", "user"]
    assert second.messages[2].content[0]["tool_use_id"] == "use-bash"
    (call,) = ports.journal.of(ToolCalled)
    assert (call.name, call.input, call.output, call.denied) == ("bash", {"command": "ls"}, "fine", False)


def test_a_tool_that_the_step_does_not_have_is_denied_and_never_runs() -> None:
    agent = replace(issue_agent(), allowed_tools=frozenset({"Read"}))
    _result, ports = play(agent, [calls("bash", command="rm -rf /"), *HAPPY])
    (call,) = ports.journal.of(ToolCalled)
    assert call.denied
    assert "Its tools: read." in call.output
    assert "tool bash" not in ports.tools.happened


# --- closing -------------------------------------------------------------------------------------------------


def checked_agent(**changes):
    clean = make_validator(
        "git-clean", "git status --porcelain", empty=True, extract={"changedFiles": "parseChangedFiles"}
    )
    return issue_agent(clean, make_validator("type-check", "mypy ."), **changes)


def test_only_green_validators_complete() -> None:
    result, ports = play(checked_agent(), HAPPY)
    assert result.outcome is Outcome.COMPLETED
    assert result.validated
    assert [request.argv for request in ports.commands.ran] == [
        ("sh", "-c", "git status --porcelain"),
        ("sh", "-c", "mypy ."),
    ]


def test_a_red_validator_sends_the_flow_back_with_a_retry_prompt() -> None:
    commands = TableCommands({"git status --porcelain": [DIRTY, CLEAN], "mypy .": [RED, CLEAN]})
    replies = [*HAPPY, answers("handoff"), answers("closing"), answers("handoff"), answers("closing")]
    result, ports = play(checked_agent(), replies, commands=commands)
    assert result.outcome is Outcome.COMPLETED
    assert result.validated
    assert steps_of(ports) == [
        "initial.issue",
        *["continuation.issue", "closure.issue"] * 3,
    ]
    prompts = ports.journal.of(PromptRendered)
    assert [prompt.retry for prompt in prompts] == [False, False, False, True, False, True, False]
    assert "git-clean" in prompts[3].blocks[0]
    assert "a.py" in prompts[3].blocks[0]
    assert "type-check" in prompts[5].blocks[0]
    assert [(run.name, run.passed, run.attempt) for run in ports.journal.of(ValidatorRan)] == [
        ("git-clean", False, 1),
        ("git-clean", True, 2),
        ("type-check", False, 2),
        ("git-clean", True, 3),
        ("type-check", True, 3),
    ]


def test_the_tail_of_a_validators_output_keeps_the_blank_that_git_begins_a_line_with() -> None:
    agent = issue_agent(make_validator("git-clean", "git status --porcelain", empty=True), action=FailureAction.ABORT)
    commands = TableCommands({"git status --porcelain": [DIRTY]})
    _, ports = play(agent, [answers("next"), answers("handoff"), answers("closing")], commands=commands)
    assert [ran.output_tail for ran in ports.journal.of(ValidatorRan)] == [" M a.py\n?? b.py"]


def test_a_retry_prompt_takes_the_usual_prompt_along_as_context() -> None:
    commands = TableCommands({"git status --porcelain": [DIRTY, CLEAN]})
    _result, ports = play(checked_agent(), [*HAPPY, answers("handoff"), answers("closing")], commands=commands)
    retry = ports.journal.of(PromptRendered)[3]
    assert len(retry.blocks) == 2
    assert "Do the work." in retry.blocks[1]


def test_attempts_are_bounded_and_the_last_failure_ends_the_run() -> None:
    commands = TableCommands({"git status --porcelain": [DIRTY]})
    result, ports = play(checked_agent(max_attempts=2), [*HAPPY, *HAPPY[1:]], commands=commands)
    assert result.outcome is Outcome.VALIDATION_FAILED
    assert result.reason.startswith('Completion loop: validator "git-clean" failed')
    assert "attempt 2 of 2" in result.reason
    assert not result.validated
    assert len(ports.journal.of(ValidatorRan)) == 2


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


def test_green_validators_set_the_attempts_back_to_zero() -> None:
    entry_id = "closure.issue"
    commands = TableCommands({"git status --porcelain": [DIRTY, CLEAN]})
    _result, ports = play(checked_agent(), [*HAPPY, answers("handoff"), answers("closing")], commands=commands)
    assert fold(ports.journal.events).attempts[entry_id] == 0


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


def test_words_about_permissions_on_stdout_are_a_validators_own_and_it_may_be_tried_again() -> None:
    failed = CommandResult(exit_code=1, stdout="FAILED test_login: expected 'Permission denied', got EACCES")
    commands = TableCommands({"mypy .": [failed, CLEAN]})
    result, ports = play(checked_agent(), [*HAPPY, answers("handoff"), answers("closing")], commands=commands)
    assert result.outcome is Outcome.COMPLETED
    assert [run.recoverable for run in ports.journal.of(ValidatorRan) if not run.passed] == [True]


def test_a_timeout_fails_the_validator_but_may_be_tried_again() -> None:
    slow = CommandResult(exit_code=-1, timed_out=True, error="timed out after 600 s")
    commands = TableCommands({"mypy .": [slow, CLEAN]})
    result, ports = play(checked_agent(), [*HAPPY, answers("handoff"), answers("closing")], commands=commands)
    assert result.outcome is Outcome.COMPLETED
    assert "timed out after 600 s" in ports.journal.of(PromptRendered)[3].blocks[0]


def test_under_abort_the_first_red_validator_ends_the_run() -> None:
    commands = TableCommands({"git status --porcelain": [DIRTY]})
    result, _ports = play(checked_agent(action=FailureAction.ABORT), HAPPY, commands=commands)
    assert result.outcome is Outcome.VALIDATION_FAILED


def test_under_skip_a_red_validator_is_shown_but_does_not_hold_the_end_up() -> None:
    commands = TableCommands({"git status --porcelain": [DIRTY]})
    result, ports = play(checked_agent(action=FailureAction.SKIP), HAPPY, commands=commands)
    assert result.outcome is Outcome.COMPLETED
    assert not result.validated
    assert [run.action for run in ports.journal.of(ValidatorRan)] == [FailureAction.SKIP, None]


def test_without_validators_a_run_completes_but_is_not_called_validated() -> None:
    result, _ports = play(issue_agent(), HAPPY)
    assert not result.validated


def test_a_closing_answer_that_does_not_fit_its_schema_repeats_instead() -> None:
    agent = issue_agent()
    strict = make_entry("closure.issue", schema={"required": ["proof"]})
    closure = replace(agent.steps["closure.issue"], validation=strict, format_retries=1)
    agent = replace(agent, steps={**agent.steps, "closure.issue": closure})
    proven = answers("closing", proof="yes")
    result, ports = play(agent, [*HAPPY, answers("closing"), answers("handoff"), proven])
    assert result.outcome is Outcome.COMPLETED
    answered = ports.journal.of(StepAnswered)
    assert answered[2].intent is Intent.REPEAT
    assert "'proof' is a required property" in answered[2].reason
    assert steps_of(ports)[3] == "continuation.issue"


def test_closing_from_a_work_step_never_closes() -> None:
    result, ports = play(issue_agent(make_validator("x", "true")), [answers("closing")] * 4)
    assert result.outcome is Outcome.ROUTING_FAILED
    assert "FAILED_STEP_ROUTING" in result.reason
    assert ports.journal.of(ValidatorRan) == []
    assert ports.commands.ran == []


# --- answers that are no answers -----------------------------------------------------------------------------


def test_prose_in_the_first_iteration_runs_the_same_step_again() -> None:
    result, ports = play(issue_agent(), [says("I will think about it."), *HAPPY])
    assert result.outcome is Outcome.COMPLETED
    assert steps_of(ports)[:2] == ["initial.issue", "initial.issue"]
    assert '[StepFlow] No intent on iteration 1, step "initial.issue"' in ports.journal.notes()


def test_prose_in_a_later_iteration_ends_the_run() -> None:
    result, _ports = play(issue_agent(), [answers("next"), says("Done!")])
    assert result.outcome is Outcome.ROUTING_FAILED
    assert result.iterations == 2


def test_a_word_that_is_no_intent_ends_the_run_with_the_allowed_words() -> None:
    agent = issue_agent()
    result, _ports = play(agent, [answers("proceed")] * 3)
    assert result.outcome is Outcome.ROUTING_FAILED
    assert '"proceed"' in result.reason
    assert "handoff, jump, next, repeat" in result.reason


def test_a_broken_answer_is_corrected_in_the_same_conversation() -> None:
    broken = says('{"next_action": {"action": "next", "reason": 5}}')
    result, ports = play(issue_agent(), [broken, *HAPPY])
    assert result.outcome is Outcome.COMPLETED
    assert steps_of(ports)[:2] == ["initial.issue", "continuation.issue"]
    (spoken,) = ports.journal.of(UserMessage)
    assert spoken.format_retry
    assert "next_action.reason" in spoken.text
    assert len(ports.model.requests[1].messages) == 3


def test_format_retries_are_bounded_and_a_readable_intent_goes_on() -> None:
    broken = says('{"next_action": {"action": "next", "reason": 5}}')
    result, ports = play(issue_agent(), [broken, says("no JSON"), broken, *HAPPY[1:]])
    assert result.outcome is Outcome.COMPLETED
    assert len(ports.journal.of(UserMessage)) == 2
    assert '[Format] giving up on step "initial.issue"' in ports.journal.notes()


def test_an_intent_written_another_way_costs_no_format_retry() -> None:
    result, ports = play(issue_agent(), [answers("Continue"), answers("HANDOFF"), answers("done")])
    assert result.outcome is Outcome.COMPLETED
    assert ports.journal.of(UserMessage) == []


def test_abort_ends_the_run_without_a_format_check() -> None:
    result, ports = play(issue_agent(), [says('{"next_action": {"action": "abort", "reason": "no way"}, "x": 1}')])
    assert result.outcome is Outcome.ABORTED
    assert result.reason == "Flow loop: no way"
    assert ports.journal.of(UserMessage) == []


def test_a_wrong_step_id_is_corrected_and_logged() -> None:
    _result, ports = play(issue_agent(), [answers("next", stepId="s9"), *HAPPY[1:]])
    assert '[StepFlow] stepId corrected: "s9" -> "initial.issue"' in ports.journal.notes()
    assert ports.journal.of(StepAnswered)[0].answer["stepId"] == "initial.issue"


def test_an_answer_cut_at_the_output_limit_is_asked_for_again() -> None:
    cut = says('{"next_action": {"acti', stop=StopReason.MAX_TOKENS)
    result, ports = play(issue_agent(), [cut, *HAPPY])
    assert result.outcome is Outcome.COMPLETED
    assert len(ports.model.requests[1].messages) == 3


def test_a_tool_call_cut_at_the_output_limit_does_not_run() -> None:
    cut = calls("bash", stop=StopReason.MAX_TOKENS, command="rm -r")
    result, ports = play(issue_agent(), [cut, *HAPPY])
    assert result.outcome is Outcome.COMPLETED
    assert "tool bash" not in ports.tools.happened


def test_a_paused_turn_is_continued() -> None:
    result, ports = play(issue_agent(), [says("…", stop=StopReason.PAUSE_TURN), *HAPPY])
    assert result.outcome is Outcome.COMPLETED
    assert [message.role for message in ports.model.requests[1].messages] == ["user", "assistant"]


# --- schema strikes ------------------------------------------------------------------------------------------


def test_one_schema_failure_costs_an_iteration_but_no_model_call() -> None:
    result, ports = play(issue_agent(), HAPPY, schemas=LoadedSchemas([True]))
    assert result.outcome is Outcome.COMPLETED
    assert result.iterations == 4
    assert len(ports.model.requests) == 3


def test_a_success_resets_the_strikes() -> None:
    result, _ports = play(issue_agent(), HAPPY, schemas=LoadedSchemas([True, False, True, False]))
    assert result.outcome is Outcome.COMPLETED


def test_two_schema_failures_in_a_row_end_the_run() -> None:
    result, ports = play(issue_agent(), HAPPY, schemas=LoadedSchemas([True, True]))
    assert result.outcome is Outcome.SCHEMA_FAILED
    assert "FAILED_SCHEMA_RESOLUTION" in result.reason
    assert ports.model.requests == []


# --- the model fails -----------------------------------------------------------------------------------------

BUSY = ModelFault(reason="overloaded (529)", transient=True)


def test_a_fault_that_passes_is_waited_out_and_leaves_no_trace_in_the_outcome() -> None:
    result, ports = play(issue_agent(), [BUSY, BUSY, *HAPPY])
    assert result.outcome is Outcome.COMPLETED
    assert result.iterations == 3
    assert ports.clock.slept == [5.0, 10.0]


def test_five_tries_in_a_row_are_the_most() -> None:
    result, ports = play(issue_agent(), [BUSY] * 5)
    assert result.outcome is Outcome.MODEL_FAILED
    assert "overloaded (529) (5 tries)" in result.reason
    assert ports.clock.slept == [5.0, 10.0, 20.0, 40.0]


def test_an_answer_that_broke_off_counts_as_spent() -> None:
    lost = ModelFault(reason="reset", transient=True, usage=Usage(input_tokens=900), cost_usd=0.5)
    result, ports = play(issue_agent(), [lost, *HAPPY])
    assert result.outcome is Outcome.COMPLETED
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


def test_a_success_resets_the_count_of_tries() -> None:
    replies = [*[BUSY] * 4, answers("next"), *[BUSY] * 4, *HAPPY[1:]]
    assert play(issue_agent(), replies)[0].outcome is Outcome.COMPLETED


def test_the_services_own_waiting_time_is_kept() -> None:
    fault = ModelFault(reason="rate limit (429)", transient=True, retry_after=90)
    _result, ports = play(issue_agent(), [fault, *HAPPY])
    assert [(event.seconds, event.attempt) for event in ports.journal.of(ModelWaited)] == [(90, 1)]


@pytest.mark.parametrize(
    ("deadline", "seconds", "words"),
    [
        (1060, 61, "only 60 s are left before the deadline (input timeout-minutes)"),
        (1060, 1e12, "only 60 s are left"),
        (None, 3601, "waits 3600 s at most"),
    ],
)
def test_a_wait_that_cannot_help_is_not_begun(deadline, seconds, words) -> None:
    fault = ModelFault(reason="rate limit (429).", hint="Let fewer runs work.", transient=True, retry_after=seconds)
    facts = make_facts(limits=Limits(iterations=10, deadline=deadline))
    result, ports = play(issue_agent(), [fault], facts=facts)
    assert result.outcome is Outcome.MODEL_FAILED
    assert f"rate limit (429). It asks for a wait of {seconds:.0f} s, and " in result.reason
    assert words in result.reason
    assert result.reason.endswith("Let fewer runs work.")
    assert ports.clock.slept == []


def test_a_wait_says_which_try_failed_and_what_is_left_of_the_deadline() -> None:
    facts = make_facts(limits=Limits(iterations=10, deadline=1100))
    _result, ports = play(issue_agent(), [BUSY, BUSY, *HAPPY], facts=facts)
    waits = [(event.seconds, event.attempt, event.tries, event.deadline_in) for event in ports.journal.of(ModelWaited)]
    assert waits == [(5, 1, 5, 100), (10, 2, 5, 95)]


def test_a_call_may_take_what_is_left_of_the_deadline_and_half_a_minute() -> None:
    facts = make_facts(limits=Limits(iterations=10, deadline=1100))
    _result, ports = play(issue_agent(), [BUSY, *HAPPY], facts=facts)
    assert [request.seconds for request in ports.model.requests[:2]] == [130, 125]
    _result, ports = play(issue_agent(), HAPPY)
    assert [request.seconds for request in ports.model.requests] == [None] * 3


def test_a_call_that_fails_at_the_deadline_is_not_waited_for() -> None:
    facts = make_facts(limits=Limits(iterations=10, deadline=1001))
    result, ports = play(issue_agent(), [BUSY], facts=facts, clock=StillClock(tick=0.4))
    assert result.outcome is Outcome.TIMED_OUT
    assert ports.clock.slept == []


def test_waiting_never_outlasts_the_deadline() -> None:
    facts = make_facts(limits=Limits(iterations=10, deadline=1003))
    result, ports = play(issue_agent(), [BUSY, *HAPPY], facts=facts)
    assert result.outcome is Outcome.TIMED_OUT
    assert ports.clock.slept == [3.0]
    assert len(ports.model.requests) == 1, "a wait that used the time up is followed by no further call"


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (ModelFault(reason="invalid key (401)", hint="Check anthropic-api-key."), "invalid key (401). Check anthropic"),
        (says("", stop=StopReason.REFUSAL), "refused"),
        (says("", stop=StopReason.CONTEXT_EXCEEDED), "context window"),
    ],
)
def test_other_failures_of_the_model_end_the_run_at_once(reply, words) -> None:
    result, ports = play(issue_agent(), [reply])
    assert result.outcome is Outcome.MODEL_FAILED
    assert words in result.reason
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


def test_turns_within_one_iteration_are_limited() -> None:
    limits = Limits(iterations=9, turns=3)
    result, ports = play(issue_agent(), [calls("bash", command="ls")] * 9, facts=make_facts(limits=limits))
    assert result.outcome is Outcome.LIMIT_REACHED
    assert "took 3 model turns" in result.reason
    assert len(ports.model.requests) == 3


def test_a_deadline_ends_the_run_before_the_next_turn() -> None:
    facts = make_facts(limits=Limits(iterations=9, deadline=1010))
    result, ports = play(issue_agent(), [answers("repeat")] * 9, facts=facts, clock=StillClock(tick=2.0))
    assert result.outcome is Outcome.TIMED_OUT
    assert len(ports.model.requests) < 4


def test_a_limit_met_while_completing_does_not_interrupt_it() -> None:
    facts = make_facts(limits=Limits(iterations=3, tokens=330))
    assert play(checked_agent(), HAPPY, facts=facts)[0].outcome is Outcome.COMPLETED


# --- what passes between steps -------------------------------------------------------------------------------


def test_only_declared_handoff_passes_to_later_steps() -> None:
    agent = issue_agent()
    first = agent.steps["initial.issue"]
    first = replace(first, gate=replace(first.gate, handoff_fields=("plan.goal",)))
    second = make_step("continuation.issue", text="Goal: {uv-initial_issue_goal}", to={"handoff": "closure.issue"})
    agent = replace(agent, steps={**agent.steps, "initial.issue": first, "continuation.issue": second})
    result, ports = play(agent, [answers("next", plan={"goal": "green {uv-x}", "secret": "s"}), *HAPPY[1:]])
    assert ports.journal.of(PromptRendered)[1].blocks[0] == "Goal: green {uv-x}"
    assert result.handoff == {"initial.issue": {"goal": "green {uv-x}", "plan.goal": "green {uv-x}"}}


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


def test_a_handoff_from_an_initial_step_is_allowed_with_a_warning() -> None:
    agent = issue_agent()
    step = make_step("initial.issue", to={"handoff": "closure.issue"})
    agent = replace(agent, steps={**agent.steps, "initial.issue": step})
    result, ports = play(agent, [answers("handoff"), answers("closing")])
    assert result.outcome is Outcome.COMPLETED
    assert '[StepFlow] handoff from initial step "initial.issue"' in ports.journal.notes()


def test_without_fail_fast_a_fallback_intent_is_used_logged_and_counted() -> None:
    agent = issue_agent()
    first = agent.steps["initial.issue"]
    first = replace(first, gate=replace(first.gate, fail_fast=False, fallback_intent=Intent.NEXT), format_retries=0)
    agent = replace(agent, steps={**agent.steps, "initial.issue": first})
    result, ports = play(agent, [answers("whatever"), *HAPPY[1:]])
    assert result.outcome is Outcome.COMPLETED
    assert any(note.startswith('[StepFlow][SpecViolation] step "initial.issue": ') for note in ports.journal.notes())
    assert fold(ports.journal.events).violations == 1


def test_all_seven_intents_lead_where_the_registry_says() -> None:
    work = make_step("initial.a", to={"next": "verification.a", "handoff": "closure.a", "jump": "closure.a"})
    verify = make_step("verification.a", StepKind.VERIFICATION, to={"escalate": "initial.a", "next": "closure.a"})
    close = make_step("closure.a", StepKind.CLOSURE, to={"repeat": "initial.a", "closing": None})
    replies = [
        answers("next"),
        answers("escalate"),
        says('{"next_action": {"action": "jump", "target": "verification.a"}}'),
        answers("next"),
        answers("repeat"),
        answers("handoff"),
        answers("closing"),
    ]
    result, ports = play(make_agent(work, verify, close), replies)
    assert result.outcome is Outcome.COMPLETED
    assert steps_of(ports) == [
        "initial.a",
        "verification.a",
        "initial.a",
        "verification.a",
        "closure.a",
        "initial.a",
        "closure.a",
    ]


def test_every_run_writes_its_end_down_once() -> None:
    _result, ports = play(checked_agent(), HAPPY)
    assert len(ports.journal.of(FlowEnded)) == 1
    assert [judged.done for judged in ports.journal.of(CompletionJudged)] == [True]


def test_the_state_of_a_fresh_run_is_the_fold_of_no_events() -> None:
    assert fold([]) == RunState()
