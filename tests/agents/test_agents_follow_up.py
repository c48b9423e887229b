"""A shipped agent that changes files, started again after a review: it makes no new plan, and answers each thread."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stepflow.boundary.settings import ThreadAnswer, read_closing_request
from stepflow.definition.builtin import builtin_root
from stepflow.definition.loading import load_agent
from stepflow.domain.agent.definition import AgentDefinition
from stepflow.domain.run import FollowUp
from stepflow.domain.words import FollowUpKind, Outcome
from tests.build import make_facts
from tests.engine.played import play, steps_of
from tests.fakes import Reply, answers

ROOT = Path(__file__).parents[2]
FIRST, LAST = "continuation.default", "closure.default"
STEPS = {
    "fix": [FIRST, LAST],
    "minimal": [FIRST, LAST],
    "verify": [FIRST, "verification.default", "continuation.report", LAST],
    "fixer": ["continuation.issue", "verification.issue", "continuation.report", "closure.issue"],
}
TASK = "If review threads or failed checks are listed below, they are the task"
CHANGED = {"changes": "PRRT_1: renamed.", "question": "none"}
WRITTEN = {"title": "Rename it", "body": "Renamed.", "comment": "Renamed."}
TO_CLOSE = {
    "missing": "nothing",
    "comment": "Renamed.",
    "pull_request": {"title": "Rename it", "body": "Renamed."},
    "threads": [{"thread": "PRRT_1", "applied": True, "why": "The new name says what it holds."}],
}


@contextmanager
def shipped(name: str) -> Iterator[AgentDefinition]:
    if name == "fixer":
        yield load_agent(name, root=ROOT)
        return
    with builtin_root(name, ()) as root:
        yield load_agent(name, root=root)


def replies_of(agent: AgentDefinition, steps: list[str]) -> list[Reply]:
    """The straight way through these steps; each answer has just what its schema asks for."""
    said = {**CHANGED, "checks": "All green.", "findings": "nothing", **WRITTEN, **TO_CLOSE}
    replies: list[Reply] = []
    for step_id in steps:
        step = agent.steps[step_id]
        assert step.schema
        intent = next(word for word in ("closing", "handoff", "next") if step.gate and word in step.gate.allowed)
        replies.append(
            answers(intent, **{key: value for key, value in said.items() if key in step.schema["properties"]})
        )
    return replies


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", FollowUpKind)
@pytest.mark.parametrize("name", STEPS)
def test_a_follow_up_works_on_what_it_is_given_and_answers_the_threads(name: str, kind: FollowUpKind) -> None:
    follow_up = FollowUp(
        kind=kind, pull_request=12, url="https://github.com/a/b/pull/12", branch="b", base="main", head="0" * 40
    )
    facts = make_facts(follow_up=follow_up, args={"issue": 7}, context_text="Thread PRRT_1: rename it.")
    with shipped(name) as agent:
        result, ports = play(agent, replies_of(agent, STEPS[name]), facts=facts)
    assert result.outcome is Outcome.COMPLETED, result.reason
    assert steps_of(ports) == STEPS[name]
    first, last = (str(request.messages) for request in (ports.model.requests[0], ports.model.requests[-1]))
    assert TASK in first
    assert "Thread PRRT_1" in first
    assert "answer each review thread below in `threads` by its id" in last
    answered = ThreadAnswer(thread="PRRT_1", applied=True, why="The new name says what it holds.")
    assert read_closing_request(result.answer).threads == (answered,)


@pytest.mark.parametrize("name", STEPS)
def test_a_run_that_is_no_follow_up_makes_its_plan_first(name: str) -> None:
    with shipped(name) as agent:
        assert agent.entry_for(None) == agent.entry_step
        assert agent.entry_step.startswith("initial.") == (name != "minimal")
