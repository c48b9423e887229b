"""What came, put into the text of a scenario: everything else stays as it was written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepflow.domain.effect import EffectKind
from stepflow.domain.words import Outcome
from stepflow.errors import InputError
from stepflow.model.scenario import Expect
from stepflow.run.scenarios import parse_scenario, place_of, update_expect
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


def test_only_the_values_that_differ_are_written_and_comments_stay() -> None:
    assert update_expect(WRITTEN, CAME) == WRITTEN.replace(
        "outcome: completed   # for now", "outcome: aborted   # for now"
    ).replace(
        "    - initial.issue # first\n    # and then?\n    - continuation.issue\n",
        "    - initial.issue\n    - closure.issue\n",
    ).replace("{ git-clean: [pass] }", "{ git-clean: [fail, pass], 型検査: [pass] }")


def test_a_value_that_is_as_it_came_keeps_its_inner_comments() -> None:
    came = CAME.model_copy(update={"steps": ("initial.issue", "continuation.issue")})
    assert "    - initial.issue # first\n    # and then?\n" in update_expect(WRITTEN, came)


@pytest.mark.parametrize(
    "text", ["turns: []\n", "turns: []", "# a\nturns: []\nexpect: {} # all\n", "expect:\nturns: []\n"]
)
def test_a_scenario_that_expects_nothing_is_given_outcome_steps_validators_and_effects(text: str) -> None:
    updated = update_expect(text, CAME)
    expect = parse_scenario(updated).expect
    assert expect == CAME.model_copy(update={"files": None})
    assert "  outcome: aborted\n  steps: [initial.issue, closure.issue]\n" in updated
    assert ("# all" in updated) == ("# all" in text)


@pytest.mark.parametrize(
    "files",
    [
        '{ a.txt: "old", غير.txt: old }',
        '\n    a.txt: |\n      old\n\n    غير.txt: "old"',
        "\n    a.txt: >-\n      old\n      old\n    غير.txt: null",
    ],
)
def test_texts_of_files_in_every_style_become_what_came(files: str) -> None:
    text = f"turns: []\nexpect:\n  files: {files}\n  # the end\n"
    updated = update_expect(text, CAME)
    assert parse_scenario(updated).expect == Expect(files=CAME.files)
    assert updated.endswith("\n  # the end\n")


def test_the_line_ends_of_the_file_stay() -> None:
    updated = update_expect("turns: []\r\n", CAME)
    assert updated.count("\n") == updated.count("\r\n") == 7


def test_a_value_that_others_refer_to_is_left_for_people() -> None:
    text = "turns: []\nexpect:\n  steps: &way [a]\n  effects: []\nparams: { way: *way }\n"
    with pytest.raises(InputError, match="cannot be changed by its place"):
        update_expect(text, CAME)


def test_the_line_of_expect_is_found_and_1_where_there_is_none() -> None:
    assert place_of(WRITTEN, "expect") == 6
    assert place_of(WRITTEN, "expect", "validators") == 13
    assert place_of("turns: []\n", "expect") == 1
    assert place_of("{", "expect") == 1


words = st.text(min_size=1, max_size=12).filter(lambda text: text.encode(errors="ignore").decode() == text)


@tried(30)
@given(steps=st.lists(words, max_size=40), end=words)
def test_whatever_came_is_what_is_read_afterwards(steps: list[str], end: str) -> None:
    came = CAME.model_copy(update={"steps": tuple(steps), "validators": {end: ("pass",)}})
    for text in (WRITTEN, "expect: { steps: [x], validators: {} }\nturns: []\n"):
        expect = parse_scenario(update_expect(text, came)).expect
        assert expect is not None
        assert (expect.steps, expect.validators) == (came.steps, came.validators)
