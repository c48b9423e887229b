"""What came, put into the text of a scenario: everything else stays as it was written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepflow.domain.effect import EffectKind
from stepflow.domain.words import Outcome
from stepflow.errors import InputError
from stepflow.model.scenario import Expect
from stepflow.modes.rehearse import update_expect
from stepflow.run.scenarios import parse_scenario
from tests.tried import tried

CAME = Expect(
    outcome=Outcome.ABORTED,
    steps=("initial.issue", "closure.issue"),
    effects=(EffectKind.POST_COMMENT,),
    validators={"git-clean": ("fail", "pass"), "型検査": ("pass",)},
    files={"a.txt": "one\ntwo: 2\n", "غير.txt": None},
)
WRITTEN = """\
# Two turns are enough.
issue: { number: 7, title: "修正してください 🐛" }

turns: [] # none
expect:
  outcome: completed   # for now
  steps:
    - initial.issue # first
    # and then?
    - continuation.issue

  # the checks
  validators: { git-clean: [pass] }
# the end
"""


def test_expect_is_written_anew_under_its_keys_and_everything_else_stays() -> None:
    before, _, after = WRITTEN.partition("expect:")
    written = """\
expect:
  outcome: aborted
  steps:
  - initial.issue
  - closure.issue
  validators:
    git-clean:
    - fail
    - pass
    型検査:
    - pass
"""
    assert update_expect(WRITTEN, CAME) == before + written + after[after.index("# the end") :]


@pytest.mark.parametrize(
    "text", ["turns: []\n", "turns: []", "# a\nturns: []\nexpect: {} # all\n", "expect:\nturns: []\n", "turns: []\r\n"]
)
def test_a_scenario_that_expects_nothing_is_given_outcome_steps_validators_and_effects(text: str) -> None:
    updated = update_expect(text, CAME)
    assert parse_scenario(updated).expect == CAME.model_copy(update={"files": None})
    assert ("\r\n" in updated) == ("\r\n" in text)
    assert updated.count("\n") == updated.count("\r\n" if "\r" in text else "\n")


def test_a_value_that_others_refer_to_is_left_for_people() -> None:
    text = "turns: []\nexpect:\n  steps: &way [a]\n  effects: []\nparams: { way: *way }\n"
    with pytest.raises(InputError, match="cannot be changed by its place"):
        update_expect(text, CAME)


words = st.text(min_size=1, max_size=12).filter(lambda text: text.encode(errors="ignore").decode() == text)


@tried(30)
@given(steps=st.lists(words, max_size=40), end=words)
def test_whatever_came_is_what_is_read_afterwards(steps: list[str], end: str) -> None:
    came = CAME.model_copy(update={"steps": tuple(steps), "validators": {end: ("pass",)}})
    for text in (WRITTEN, "expect: { steps: [x], validators: {} }\nturns: []\n"):
        expect = parse_scenario(update_expect(text, came)).expect
        assert expect is not None
        assert (expect.steps, expect.validators) == (came.steps, came.validators)
