"""A step that asks for approval begins only after it, in each visit anew."""

from __future__ import annotations

from dataclasses import replace

from played import HAPPY, play, started

from stepflow.domain.approval import ApprovalAnswered, ApprovalAsked
from stepflow.domain.event import IterationStarted, Routed
from stepflow.domain.state import fold
from stepflow.domain.words import Intent, Outcome, Permission
from stepflow.engine.approval import approval_digest
from tests.build import issue_agent

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
    assert STEP in fold([stays], state).approved
    comes_back = Routed(source="closure.issue", to=STEP, transition=Intent.REPEAT, reason="r")
    assert STEP not in fold([comes_back], state).approved


def test_the_digest_is_bound_to_each_of_its_parts() -> None:
    bound = {"definition": "d", "base_commit": "b", "issue_text": "i", "handoff": {"s": {"plan": "p"}}}
    others = [{**bound, name: {"s": {"plan": "q"}} if name == "handoff" else "x"} for name in bound]
    digests = {approval_digest(STEP, **parts) for parts in (bound, *others)}  # type: ignore[arg-type]
    assert len({*digests, approval_digest("other", **bound)}) == 6  # type: ignore[arg-type]
