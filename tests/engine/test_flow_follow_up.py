"""A follow-up begins at the step that the agent has for its kind, and goes on there when it is taken up again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stepflow.domain.run import FollowUp
from stepflow.domain.words import FollowUpKind
from tests.build import issue_agent, make_facts
from tests.engine.played import HAPPY, check_every_beginning, completed, steps_of
from tests.fakes import answers

AGENT = replace(issue_agent(), entry_steps={FollowUpKind.REVIEW: "continuation.issue"})
USUAL = ["initial.issue", "continuation.issue", "closure.issue"]
REVIEW = FollowUp(
    kind=FollowUpKind.REVIEW,
    pull_request=12,
    url="https://github.com/acme/app/pull/12",
    branch="stepflow/demo/issue-7",
    base="main",
    head="0123456789abcdef0123456789abcdef01234567",
    threads=("PRRT_1",),
)


def test_a_review_begins_at_its_own_step() -> None:
    ports = completed(AGENT, HAPPY[1:], facts=make_facts(follow_up=REVIEW))
    assert steps_of(ports) == USUAL[1:]


@pytest.mark.parametrize("follow_up", [None, replace(REVIEW, kind=FollowUpKind.CHECKS)])
def test_any_other_run_begins_at_the_usual_step(follow_up: FollowUp | None) -> None:
    assert steps_of(completed(AGENT, HAPPY, facts=make_facts(follow_up=follow_up))) == USUAL


def test_a_follow_up_goes_on_wherever_it_stopped() -> None:
    replies = [answers("next"), answers("handoff"), answers("closing")]
    check_every_beginning(AGENT, replies, make_facts(follow_up=REVIEW))
    again = completed(AGENT, [answers("handoff"), answers("repeat"), *replies[1:]], facts=make_facts(follow_up=REVIEW))
    assert steps_of(again) == ["continuation.issue", "closure.issue", "continuation.issue", "closure.issue"]
