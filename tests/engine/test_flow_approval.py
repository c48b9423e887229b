"""A step that asks for approval begins only after it, in each visit anew, and so does one behind such a transition."""

from __future__ import annotations

from dataclasses import replace

import pytest
from played import HAPPY, play, resume, started

from stepflow.domain.agent.definition import AgentDefinition
from stepflow.domain.effect import ApprovalAnswered, ApprovalAsked
from stepflow.domain.event import CompletionJudged, IterationStarted, Routed
from stepflow.domain.flow import fold
from stepflow.domain.words import Intent, Outcome, Permission
from stepflow.engine.context import approval_digest, required_approver
from tests.build import issue_agent, make_facts
from tests.fakes import Reply, answers

STEP = "continuation.issue"
PLAIN = issue_agent()
AGENT = replace(PLAIN, steps={**PLAIN.steps, STEP: replace(PLAIN.steps[STEP], approval=Permission.MAINTAIN)})
YES = ApprovalAnswered(step_id=STEP, actor="carol", digest="d")


def test_the_flow_ends_before_the_step_without_a_turn() -> None:
    result, ports = play(AGENT, HAPPY[:1])
    assert result.outcome is Outcome.AWAITING_APPROVAL
    assert [event.step_id for event in ports.journal.of(IterationStarted)] == ["initial.issue"]
    (asked,) = ports.journal.of(ApprovalAsked)
    assert (asked.step_id, asked.by, asked.iterations_left) == (STEP, Permission.MAINTAIN, 9)
    assert asked.digest in result.reason


def test_an_approval_counts_until_another_step_leads_there_again() -> None:
    state = fold([started(AGENT, 9), YES])
    assert STEP in state.approved
    stays = Routed(source=STEP, to=STEP, transition=Intent.REPEAT, reason="r")
    assert required_approver(AGENT, fold([stays], state)) is Permission.NONE
    comes_back = Routed(source="closure.issue", to=STEP, transition=Intent.REPEAT, reason="r")
    assert STEP not in fold([comes_back], state).approved
    assert required_approver(AGENT, fold([comes_back], state)) is Permission.MAINTAIN


def by_transition(source: str, word: str, permission: Permission = Permission.ADMIN) -> AgentDefinition:
    """The same agent, with an approval of one transition more."""
    return replace(AGENT, steps={**AGENT.steps, source: replace(AGENT.steps[source], approvals={word: permission})})


@pytest.mark.parametrize(
    ("source", "word", "replies", "by"),
    [
        ("initial.issue", "next", HAPPY[:1], Permission.ADMIN),
        ("initial.issue", "handoff", HAPPY[:1], Permission.MAINTAIN),
        (STEP, "handoff", HAPPY[:2], Permission.ADMIN),
        (STEP, "repeat", [HAPPY[0], answers("repeat")], Permission.ADMIN),
    ],
)
def test_the_higher_permission_of_step_and_transition_counts(
    source: str, word: str, replies: list[Reply], by: Permission
) -> None:
    agent = by_transition(source, word)
    result, ports = play(agent, replies[:1])
    journal = ports.journal
    if len(replies) > 1:
        result, journal = resume(agent, [*journal.events, YES], replies[1:], make_facts())
    assert result.outcome is Outcome.AWAITING_APPROVAL
    assert journal.of(ApprovalAsked)[-1].by is by


def test_a_red_check_that_sends_back_to_an_approved_step_asks_nobody_again() -> None:
    approved = Routed(source="initial.issue", to=STEP, transition="next", reason="r")
    handed_off = Routed(source=STEP, to="closure.issue", transition="handoff", reason="r")
    red = CompletionJudged(entry="closure.issue", done=False, validated=False, step_id=STEP)
    state = fold([started(AGENT, 9), approved, YES, handed_off, red])
    assert (state.source, state.transition) == ("closure.issue", "repeat")
    assert STEP in state.approved


def test_the_digest_is_bound_to_each_of_its_parts() -> None:
    bound = {"definition": "d", "base_commit": "b", "issue_text": "i", "handoff": {"s": {"plan": "p"}}}
    others = [{**bound, name: {"s": {"plan": "q"}} if name == "handoff" else "x"} for name in bound]
    digests = {approval_digest(STEP, **parts) for parts in (bound, *others)}  # type: ignore[arg-type]
    assert len({*digests, approval_digest("other", **bound)}) == 6  # type: ignore[arg-type]
