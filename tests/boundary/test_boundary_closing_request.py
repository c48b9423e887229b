"""What a closing answer says of review threads: each answer typed, and a warning for each that does not fit."""

from __future__ import annotations

import pytest

from stepflow.boundary.settings import ClosingRequest, ThreadAnswer, read_closing_request
from stepflow.domain.json import JsonValue

DONE = {"thread": "PRRT_1", "applied": True, "why": "The name says more now."}
NOT_DONE = {"thread": "PRRT_2", "applied": False, "why": "The other callers need the old order."}
ANSWERS = (
    ThreadAnswer(thread="PRRT_1", applied=True, why="The name says more now."),
    ThreadAnswer(thread="PRRT_2", applied=False, why="The other callers need the old order."),
)


def read(*threads: JsonValue) -> ClosingRequest:
    return read_closing_request({"threads": [*threads]})


def test_each_thread_is_answered_in_the_order_of_the_answer() -> None:
    request = read(DONE, NOT_DONE)
    assert (request.threads, request.warnings) == (ANSWERS, ())


@pytest.mark.parametrize(
    "odd",
    [
        "PRRT_3",
        {"thread": "PRRT_3", "applied": True},
        {"thread": "PRRT_3", "applied": "yes", "why": "So."},
        {"thread": " ", "applied": True, "why": "So."},
    ],
)
def test_what_does_not_fit_is_left_out_with_a_warning(odd: JsonValue) -> None:
    request = read(DONE, odd, NOT_DONE)
    assert request.threads == ANSWERS
    (warning,) = request.warnings
    assert "`threads`" in warning
    assert "an object with `thread`, `applied` and `why`" in warning


@pytest.mark.parametrize("odd", ["PRRT_1", {"PRRT_1": True}, 1, True])
def test_threads_that_are_no_list_have_no_effect(odd: JsonValue) -> None:
    request = read_closing_request({"threads": odd, "comment": "Done."})
    assert (request.threads, request.comment) == ((), "Done.")
    (warning,) = request.warnings
    assert "not a list of answers to review threads" in warning


def test_of_two_answers_to_one_thread_the_first_counts() -> None:
    request = read(DONE, {**DONE, "thread": " PRRT_1 ", "applied": False}, NOT_DONE)
    assert request.threads == ANSWERS
    assert request.warnings == ("The closing answer's `threads` answers 'PRRT_1' twice: the first answer counts.",)


def test_half_a_surrogate_pair_is_replaced() -> None:
    asked = read_closing_request({"comment": "half \ud800 a character", "labels": {}})
    assert (asked.comment, asked.warnings) == ("half \ufffd a character", ())
