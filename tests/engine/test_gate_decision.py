"""The gate reads an intent or the outcome of a check, or says that there is none."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepflow.domain.agent.definition import Gate, OutcomeRule, StepCheck
from stepflow.domain.flow import Decided, Undecided
from stepflow.domain.json import JsonObject, JsonValue
from stepflow.domain.words import INTENT_ALIASES, Intent, StepKind
from stepflow.engine.gate import canonical_answer, find_object, read_gate
from stepflow.engine.ungated import (
    CheckOutcome,
    decide_by_rules,
    read_check_answer,
    read_handoff,
    read_own_result,
)
from tests.build import make_gate
from tests.tried import tried

WORK = make_gate(StepKind.WORK)
CLOSURE = make_gate(StepKind.CLOSURE)


def action(word: object, **more: object) -> dict:
    return {"next_action": {"action": word, **more}}


@pytest.mark.parametrize(
    ("gate", "word", "intent"),
    [
        *[(WORK, word, Intent.NEXT) for word in ("next", "NEXT", "Continue", "pass")],
        *[(WORK, word, Intent.REPEAT) for word in ("repeat", "retry", "wait", "fail")],
        *[(WORK, word, Intent(word)) for word in ("jump", "handoff", "abort")],
        *[(CLOSURE, word, Intent.CLOSING) for word in ("done", "finished", "CLOSING")],
    ],
)
def test_a_known_word_or_alias_gives_its_intent_in_any_case(gate: Gate, word: str, intent: Intent) -> None:
    decision = read_gate(gate, action(word))
    assert isinstance(decision, Decided)
    assert decision.intent is intent


@pytest.mark.parametrize(
    "word", [" next", "next ", "closing", "done", "go", "", None, 1, True, ["next"], {"a": "next"}]
)
def test_nothing_is_guessed_from_any_other_value(word: object) -> None:
    decision = read_gate(WORK, action(word))
    assert isinstance(decision, Undecided)
    assert "next_action.action" in decision.reason
    assert "handoff, jump, next, repeat" in decision.reason


def test_a_missing_field_is_named_in_the_reason() -> None:
    decision = read_gate(WORK, {"action": "next"})
    assert isinstance(decision, Undecided)
    assert "next_action.action is missing" in decision.reason


def test_the_target_is_read_only_for_jump_and_only_from_the_declared_field() -> None:
    jump = read_gate(WORK, action("jump", target="a.b", targetStepId="c"))
    other = read_gate(WORK, action("next", target="a.b"))
    empty = read_gate(WORK, action("jump", target="", targetStepId="c"))
    assert [decision.target for decision in (jump, other, empty)] == ["a.b", None, None]


def test_the_handoff_is_stored_under_last_segment_and_full_path_and_missing_fields_are_told() -> None:
    gate = make_gate(StepKind.WORK, handoff_fields=("analysis.plan", "list.1", "gone.x"))
    decision = read_gate(gate, {**action("next"), "analysis": {"plan": ["a"]}, "list": [1, 2], "gone": {"x": None}})
    assert isinstance(decision, Decided)
    assert decision.handoff == {"plan": ["a"], "analysis.plan": ["a"], "1": 2, "list.1": 2}
    assert decision.missing == ("gone.x",)


@pytest.mark.parametrize(
    ("extra", "reason"),
    [
        ({"reason": "r", "message": "m"}, "r"),
        ({"message": "m"}, "m"),
        ({}, "the answer declares next at next_action.action"),
        ({"reason": 5, "message": ""}, "the answer declares next at next_action.action"),
    ],
)
def test_the_reason_is_the_first_text_that_the_answer_gives(extra: dict, reason: str) -> None:
    assert read_gate(WORK, {**action("next"), **extra}).reason == reason


def test_without_fail_fast_the_fallback_intent_is_used_and_marked_as_a_violation() -> None:
    gate = make_gate(StepKind.WORK, fail_fast=False, fallback_intent=Intent.REPEAT)
    decision = read_gate(gate, action("maybe"))
    assert isinstance(decision, Decided)
    assert decision.intent is Intent.REPEAT
    assert decision.violation is not None
    assert '"maybe"' in decision.violation


def test_the_canonical_answer_holds_the_intents_own_word_and_leaves_the_original_alone() -> None:
    answer = {"steps": [{"do": "Continue"}, {"do": "x"}], "n": 1}
    gate = make_gate(StepKind.WORK, intent_field="steps.0.do")
    assert canonical_answer(gate, answer, Intent.NEXT) == {"steps": [{"do": "next"}, {"do": "x"}], "n": 1}
    assert answer["steps"][0]["do"] == "Continue"


# --- the outcome of a check -------------------------------------------------------------------------------------------

NEXT = OutcomeRule(intent=Intent.NEXT, transition="next", target="s_b2c1")
RETRY = OutcomeRule(intent=Intent.REPEAT, transition="retry", retries_below=2)
BACK = OutcomeRule(intent=Intent.JUMP, transition="fallback", target="s_a8f3")
CHECK = StepCheck(on_pass=(NEXT,), on_fail=(RETRY, BACK), handoff_keys=("plan", "diff"))


@pytest.mark.parametrize(
    ("text", "passed"),
    [
        ('{"result": "ok"}', True),
        ('{"result": " Pass "}', True),
        ('{"result": true}', True),
        ('{"result": "ng", "message": "2 tests fail"}', False),
        ('{"result": false}', False),
        ('{"result": "fine"}', False),
        ('{"result": 1}', False),
        ('{"message": "all is well"}', False),
        ('All done.\n```json\n{ "result": "ok", "message": "All tests pass" }\n```', True),
        ("The result: ok", True),
        ('"result" = "PASS"', True),
        ("result is ok", False),
        ("result: ok for the parser, but result: NG for the printer", False),
        ("result: failed", False),
        ("result ------ ok", False),
        ("ok", False),
        ("[]", False),
        ("", False),
    ],
)
def test_a_check_answer_passes_only_when_it_says_so_readably(text: str, passed: bool) -> None:
    assert read_check_answer(text).passed is passed


@pytest.mark.parametrize(
    ("answer", "demanded", "passed"),
    [
        ({"result": "ok"}, True, True),
        ({"result": "NG"}, True, False),
        ({}, True, False),
        (None, True, False),
        ({"result": "perhaps"}, True, False),
        ({}, False, True),
        (None, False, True),
        ({"result": "perhaps"}, False, True),
        ({"result": "fail"}, False, False),
    ],
)
def test_a_steps_own_result_is_needed_only_where_it_is_demanded(
    answer: dict | None, demanded: bool, passed: bool
) -> None:
    check = StepCheck(on_pass=(NEXT,), on_fail=(RETRY,), is_demanded=demanded)
    assert read_own_result(check, answer).passed is passed


@pytest.mark.parametrize(
    ("passed", "retries", "transition", "target"),
    [
        (True, 0, "next", "s_b2c1"),
        (False, 0, "retry", None),
        (False, 1, "retry", None),
        (False, 2, "fallback", "s_a8f3"),
    ],
)
def test_the_first_rule_with_budget_left_is_taken(
    passed: bool, retries: int, transition: str, target: str | None
) -> None:
    decision = decide_by_rules(CHECK, CheckOutcome(passed=passed, message="why"), {}, runs=retries + 1, retries=retries)
    assert isinstance(decision, Decided)
    assert (decision.word, decision.target, decision.reason) == (transition, target, "why")


def test_an_outcome_without_a_rule_left_decides_nothing_and_says_what_was_used_up() -> None:
    check = StepCheck(on_pass=(NEXT,), on_fail=(RETRY,))
    decision = decide_by_rules(check, CheckOutcome(passed=False, message="2 tests fail"), {}, runs=3, retries=2)
    assert decision == Undecided(
        reason='the check failed (2 tests fail), and "onFail" leads nowhere: '
        "in this visit the step ran 3 times and used 2 retries",
        lacking="no rule left for the check",
    )


def test_handoff_is_read_below_handoff_and_else_at_the_top() -> None:
    assert read_handoff(CHECK, {"handoff": {"plan": "p"}, "plan": "other", "diff": 3}) == ({"plan": "p", "diff": 3}, ())
    assert read_handoff(CHECK, {"handoff": ["plan"], "diff": None}) == ({}, ("plan", "diff"))


# --- any answer, any text, any gate -----------------------------------------------------------------------------------

KEYS = ("next_action", "action", "reason", "stepId", "0", "1", "", "a.b", "message", "plan")
WORDS = [*Intent, *INTENT_ALIASES, "Next", " next", "CLOSING", "other", ""]
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([10**400, -0.0, 1e308])
    | st.sampled_from(WORDS)
    | st.text(max_size=6)
)
JSON: st.SearchStrategy[JsonValue] = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=10,
)
PATHS = st.lists(st.sampled_from(KEYS), min_size=1, max_size=4).map(".".join)
GATES = st.builds(
    Gate,
    allowed=st.lists(st.sampled_from(Intent), min_size=1, unique=True).map(tuple),
    intent_field=st.just("next_action.action") | PATHS,
    target_field=st.none() | PATHS,
    handoff_fields=st.lists(PATHS, max_size=3, unique=True).map(tuple),
    fail_fast=st.booleans(),
    fallback_intent=st.none() | st.sampled_from(Intent),
)
ANSWERS = st.dictionaries(st.sampled_from(KEYS), JSON, max_size=5) | st.builds(
    lambda word, rest: {**rest, "next_action": {"action": word}},
    st.sampled_from(WORDS),
    st.dictionaries(st.sampled_from(KEYS), JSON, max_size=3),
)


@tried(60)
@given(gate=GATES, answer=ANSWERS)
def test_any_structured_output_gives_a_decision_of_an_allowed_intent(gate: Gate, answer: JsonObject) -> None:
    before = json.dumps(answer)
    decision = read_gate(gate, answer)
    assert isinstance(decision, Decided | Undecided)
    assert decision.reason
    if isinstance(decision, Decided):
        assert decision.intent in {*gate.allowed, Intent.ABORT, gate.fallback_intent}
        assert decision.target is None or (decision.intent is Intent.JUMP and decision.target != "")
        assert None not in decision.handoff.values()
        assert set(decision.missing) <= set(gate.handoff_fields)
        if decision.violation is None:
            corrected = canonical_answer(gate, answer, decision.intent)
            again = read_gate(gate, corrected)
            assert isinstance(again, Decided)
            assert again.intent is decision.intent
    assert json.dumps(answer) == before


@tried(60)
@given(answer=st.dictionaries(st.sampled_from(["result", "message", "handoff", "plan"]), JSON), runs=st.integers(1, 5))
def test_any_answer_of_a_check_step_gives_a_decision(answer: JsonObject, runs: int) -> None:
    judged = read_own_result(CHECK, answer)
    decision = decide_by_rules(CHECK, judged, answer, runs=runs, retries=runs - 1)
    assert isinstance(decision, Decided)
    assert decision.word == ("next" if judged.passed else "retry" if runs < 3 else "fallback")


@tried(60)
@given(
    text=st.text(max_size=40)
    | st.builds(
        lambda before, value, after: f"{before}{json.dumps(value)}{after}",
        st.sampled_from(["", "I think: ", "```json\n", "{", "[" * 99, '{"a": ']),
        JSON,
        st.sampled_from(["", "\n```", "}", " and so on", '", {"b": 1}']),
    )
)
def test_any_text_is_read_to_an_object_or_to_none_and_to_the_outcome_of_a_check(text: str) -> None:
    assert read_check_answer(text).word in ("ok", "ng")
    answer_object = find_object(text)
    assert answer_object is None or isinstance(answer_object, dict)
