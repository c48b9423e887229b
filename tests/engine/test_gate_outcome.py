"""The outcome of a check is read, and the first rule of the outcome that still holds is taken."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepflow.domain.decision import Decided, Undecided
from stepflow.domain.definition import OutcomeRule, StepCheck
from stepflow.domain.words import Intent
from stepflow.engine.gate.decision import Judged, decide_outcome, read_check_answer, read_handoff, read_own_result

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
    decision = decide_outcome(CHECK, Judged(passed=passed, message="why"), {}, runs=retries + 1, retries=retries)
    assert isinstance(decision, Decided)
    assert (decision.word, decision.target, decision.reason) == (transition, target, "why")


def test_an_outcome_without_a_rule_left_decides_nothing_and_says_what_was_used_up() -> None:
    check = StepCheck(on_pass=(NEXT,), on_fail=(RETRY,))
    decision = decide_outcome(check, Judged(passed=False, message="2 tests fail"), {}, runs=3, retries=2)
    assert decision == Undecided(
        reason='the check failed (2 tests fail), and "onFail" leads nowhere: '
        "in this visit the step ran 3 times and used 2 retries",
        lacking="no way on from the check",
    )


def test_handoff_is_read_below_handoff_and_else_at_the_top() -> None:
    assert read_handoff(CHECK, {"handoff": {"plan": "p"}, "plan": "other", "diff": 3}) == ({"plan": "p", "diff": 3}, ())
    assert read_handoff(CHECK, {"handoff": ["plan"], "diff": None}) == ({}, ("plan", "diff"))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["result", "message", "handoff", "plan"]), JSON), st.integers(1, 5))
def test_any_answer_gives_a_decision(answer: dict, runs: int) -> None:
    judged = read_own_result(CHECK, answer)
    decision = decide_outcome(CHECK, judged, answer, runs=runs, retries=runs - 1)
    assert isinstance(decision, Decided)
    assert decision.word == ("next" if judged.passed else "retry" if runs < 3 else "fallback")


@given(st.text(max_size=40))
def test_any_text_gives_an_outcome(text: str) -> None:
    assert read_check_answer(text).word in ("ok", "ng")
