"""What an agent and its steps say of the model's answers is in each of their requests, and nowhere else."""

from __future__ import annotations

import pytest

from tests.servers.messages_api import Failure
from tests.world import World, solve

pytestmark = pytest.mark.whole


def test_no_effort_is_sent_where_none_is_said(world: World) -> None:
    assert world.run(solve()).outputs["outcome"] == "completed"
    assert [body["output_config"].keys() for body in world.model.bodies] == [{"format"}] * 4


def test_the_effort_of_a_step_beats_that_of_the_agent_in_every_turn(world: World) -> None:
    world.edit("agent.json", lambda it: it["runner"]["flow"].update(effort="medium"))
    world.edit("steps_registry.json", lambda it: it["steps"]["continuation.issue"].update(effort="xhigh"))
    done = world.run(solve())
    assert done.outputs["outcome"] == "completed", done.log
    assert [body["output_config"]["effort"] for body in world.model.bodies] == ["medium", "xhigh", "xhigh", "medium"]


def test_the_most_output_of_a_step_beats_that_of_the_agent_in_every_turn(world: World) -> None:
    world.run(solve())
    assert [body["max_tokens"] for body in world.model.bodies] == [32_000] * 4
    world.edit("agent.json", lambda it: it["runner"]["flow"].update(maxOutputTokens=64_000))
    world.edit("steps_registry.json", lambda it: it["steps"]["continuation.issue"].update(maxOutputTokens=128_000))
    rows = world.run([], mode="preflight").summary.splitlines()
    assert [row for row in rows if row.startswith("| output tokens")] == [
        "| output tokens: initial.issue | ✅ ok | at most 64,000 an answer |",
        "| output tokens: continuation.issue | ✅ ok | at most 128,000 an answer |",
        "| output tokens: closure.issue | ✅ ok | at most 64,000 an answer |",
    ]
    done = world.run(solve(), resume="never")
    assert done.outputs["outcome"] == "completed", done.log
    assert [body["max_tokens"] for body in world.model.bodies[4:]] == [64_000, 128_000, 128_000, 64_000]


def test_a_model_that_takes_no_effort_ends_the_run_with_advice_that_names_it(world: World) -> None:
    world.edit("agent.json", lambda it: it["runner"]["flow"].update(effort="low"))
    said = "This model does not support the effort parameter."
    refusal = Failure(status=400, error="invalid_request_error", message=said)
    done = world.run([refusal])
    assert done.outputs["outcome"] == "model_failed", done.log
    assert said in done.outputs["reason"]
    assert len(world.model.bodies) == 1
    (comment,) = world.comments()
    assert "Remove `effort` from the step or from agent.json" in comment.replace("\\", "")
