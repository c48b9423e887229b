"""The router turns an intent into the next step, the completion or the end."""

from __future__ import annotations

import pytest

from stepflow.domain.agent.definition import Branch
from stepflow.domain.end import End
from stepflow.domain.flow import Close, Decided, GoTo
from stepflow.domain.words import Intent, Outcome, StepKind
from stepflow.engine.loop import choose_move, choose_repeat
from tests.build import make_step

A = make_step("initial.a", to={"handoff": "closure.a", "jump": "continuation.a"})
B = make_step("continuation.a", to={"next": "initial.a", "repeat": "initial.a"})
V = make_step("verification.a", StepKind.VERIFICATION, to={"escalate": "continuation.a", "repeat": None})
C = make_step("closure.a", StepKind.CLOSURE, to={"closing": "closure.a"})
STEPS = {step.id: step for step in (A, B, V, C)}


def decided(intent: Intent, **more: object) -> Decided:
    return Decided(intent=intent, reason="because", **more)


@pytest.mark.parametrize(
    ("step", "intent", "more", "move"),
    [
        (A, Intent.NEXT, {}, GoTo(step_id="continuation.a", by_prefix=True)),
        (B, Intent.NEXT, {}, GoTo(step_id="initial.a")),
        (A, Intent.REPEAT, {}, GoTo(step_id="initial.a")),
        (B, Intent.REPEAT, {}, GoTo(step_id="initial.a")),
        (V, Intent.REPEAT, {}, GoTo(step_id="verification.a")),
        (A, Intent.JUMP, {"target": "verification.a"}, GoTo(step_id="verification.a")),
        (A, Intent.JUMP, {}, GoTo(step_id="continuation.a")),
        (A, Intent.HANDOFF, {}, GoTo(step_id="closure.a")),
        (V, Intent.ESCALATE, {}, GoTo(step_id="continuation.a")),
        (C, Intent.CLOSING, {}, Close()),
        (A, Intent.ABORT, {}, End(outcome=Outcome.ABORTED, reason="because")),
        (C, Intent.ABORT, {}, End(outcome=Outcome.ABORTED, reason="because")),
    ],
)
def test_the_table(step, intent, more, move) -> None:
    assert choose_move(step, decided(intent, **more), STEPS) == move


@pytest.mark.parametrize(
    ("step", "intent", "more", "words"),
    [
        (A, Intent.JUMP, {"target": "nowhere"}, '"nowhere", which is not a flow step'),
        (V, Intent.JUMP, {}, "no transition for jump"),
        (B, Intent.HANDOFF, {}, "no transition for handoff"),
        (V, Intent.NEXT, {}, "no transition for next"),
        (A, Intent.CLOSING, {}, "work step and may not answer closing"),
        (C, Intent.NEXT, {}, "closure step and may not answer next"),
        (V, Intent.HANDOFF, {}, "verification step and may not answer handoff"),
    ],
)
def test_what_leads_nowhere_fails_the_routing_and_says_why(step, intent, more, words) -> None:
    move = choose_move(step, decided(intent, **more), STEPS)
    assert isinstance(move, End)
    assert move.outcome is Outcome.ROUTING_FAILED
    assert words in move.reason


@pytest.mark.parametrize(
    ("handoff", "target"),
    [
        ({"status": "ready"}, "continuation.a"),
        ({"status": True}, "closure.a"),
        ({"status": 2}, "verification.a"),
        ({"status": 2.5}, "initial.a"),
        ({"status": ["ready"]}, "initial.a"),
        ({}, "initial.a"),
    ],
)
def test_a_conditional_transition_follows_this_answers_handoff(handoff, target) -> None:
    targets = {"ready": "continuation.a", "true": "closure.a", "2": "verification.a"}
    branch = Branch(condition="status", targets=targets, default="initial.a")
    step = make_step("initial.a", edges={Intent.NEXT: branch, Intent.REPEAT: branch})
    assert choose_move(step, decided(Intent.NEXT, handoff=handoff), STEPS) == GoTo(step_id=target)
    assert choose_repeat(step, handoff, STEPS) == GoTo(step_id=target)


def test_a_conditional_transition_without_match_or_default_fails_the_routing() -> None:
    step = make_step("initial.a", edges={Intent.NEXT: Branch(condition="s", targets={"x": "closure.a"}, default=None)})
    move = choose_move(step, decided(Intent.NEXT, handoff={"s": "y"}), STEPS)
    assert isinstance(move, End)
    assert 's = "y"' in move.reason
