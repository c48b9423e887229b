"""The gate reads an intent, or says that there is none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepflow.domain.decision import Decided, Undecided
from stepflow.domain.words import Intent, StepKind
from stepflow.engine.gate.decision import canonical_answer, read_gate
from tests.build import make_gate

WORK = make_gate(StepKind.WORK)
CLOSURE = make_gate(StepKind.CLOSURE)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def action(word: object, **more: object) -> dict:
    return {"next_action": {"action": word, **more}}


@pytest.mark.parametrize(
    ("word", "intent"),
    [
        ("next", Intent.NEXT),
        ("NEXT", Intent.NEXT),
        ("Continue", Intent.NEXT),
        ("pass", Intent.NEXT),
        ("repeat", Intent.REPEAT),
        ("retry", Intent.REPEAT),
        ("wait", Intent.REPEAT),
        ("fail", Intent.REPEAT),
        ("jump", Intent.JUMP),
        ("handoff", Intent.HANDOFF),
        ("abort", Intent.ABORT),
    ],
)
def test_a_known_word_or_alias_gives_its_intent_in_any_case(word: str, intent: Intent) -> None:
    decision = read_gate(WORK, action(word))
    assert isinstance(decision, Decided)
    assert decision.intent is intent


@pytest.mark.parametrize("word", ["done", "finished", "CLOSING"])
def test_closing_has_aliases_at_a_closure(word: str) -> None:
    decision = read_gate(CLOSURE, action(word))
    assert isinstance(decision, Decided)
    assert decision.intent is Intent.CLOSING


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


@given(JSON)
def test_any_structured_output_gives_a_decision_and_never_an_exception(value: object) -> None:
    answer = value if isinstance(value, dict) else {"next_action": value}
    assert isinstance(read_gate(WORK, answer), Decided | Undecided)
