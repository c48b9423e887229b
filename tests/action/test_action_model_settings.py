"""What an agent and its steps say of the model's answers is in each of their requests, and nowhere else."""

from __future__ import annotations

import pytest

from tests.servers.messages_api import Answer, Failure
from tests.world import World, solve

pytestmark = [pytest.mark.whole, pytest.mark.usefixtures("unchecked_base")]


def test_what_the_agent_does_not_say_is_not_sent(world: World) -> None:
    assert world.run(solve()).outputs["outcome"] == "completed"
    assert [body["output_config"].keys() for body in world.model.bodies] == [{"format"}] * 4
    assert [body["max_tokens"] for body in world.model.bodies] == [32_000] * 4


def test_effort_and_most_output_of_a_step_beat_those_of_the_agent_in_every_turn(world: World) -> None:
    world.edit("agent.json", lambda it: it["runner"]["flow"].update(effort="medium", maxOutputTokens=64_000))
    own = {"effort": "xhigh", "maxOutputTokens": 128_000}
    world.edit("steps_registry.json", lambda it: it["steps"]["continuation.issue"].update(own))
    rows = world.run([], mode="preflight").summary.splitlines()
    assert [row for row in rows if row.startswith("| output tokens")] == [
        "| output tokens: initial.issue | ✅ ok | at most 64,000 an answer |",
        "| output tokens: continuation.issue | ✅ ok | at most 128,000 an answer |",
        "| output tokens: closure.issue | ✅ ok | at most 64,000 an answer |",
    ]
    done = world.run(solve())
    assert done.outputs["outcome"] == "completed", done.log
    assert [body["output_config"]["effort"] for body in world.model.bodies] == ["medium", "xhigh", "xhigh", "medium"]
    assert [body["max_tokens"] for body in world.model.bodies] == [64_000, 128_000, 128_000, 64_000]


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


LADDER = ["haiku:low", "sonnet:medium", "opus:high"]


def use_ladder(world: World, **more: object) -> None:
    world.edit("agent.json", lambda it: it["runner"]["flow"].update(models=LADDER, **more))


def asked(world: World) -> list[tuple[str, str | None]]:
    """Model and effort of each request."""
    return [(body["model"], body["output_config"].get("effort")) for body in world.model.bodies]


def test_a_ladder_begins_below_and_a_refusal_climbs_it(world: World) -> None:
    use_ladder(world)
    refusal = Answer(
        content=(), stop_reason="refusal", stop_details={"category": "cyber", "explanation": "An exploit."}
    )
    first, *rest = solve()
    done = world.run([first, refusal, *rest])
    assert done.outputs["outcome"] == "completed", done.log
    assert asked(world) == [("claude-haiku-5-5", "low")] * 2 + [("claude-sonnet-5-5", "medium")] * 3
    assert "sonnet:medium takes over from haiku:low: the model's safeguards refused this as `cyber`" in done.log
    assert "| `claude-haiku-5-5` | low | 2 |" in done.summary
    assert "`sonnet:medium` took over from `haiku:low`" in done.summary
    changes = [event["cause"] for event in world.events(done) if event["event"] == "model_changed"]
    assert changes == ["refusal"]


def test_the_model_of_the_run_takes_the_place_of_the_ladder(world: World) -> None:
    use_ladder(world)
    done = world.run(solve(), model="fable")
    assert done.outputs["outcome"] == "completed", done.log
    assert asked(world) == [("claude-fable-5-2", None)] * 4


def test_a_model_of_the_run_that_does_not_take_the_effort_of_the_agent_is_refused_before_it(world: World) -> None:
    world.edit("agent.json", lambda it: it["runner"]["flow"].update(effort="max"))
    done = world.run([], model="claude-opus-4-5")
    assert (done.exit_code, done.outputs["outcome"]) == (2, "misconfigured")
    assert 'the model "claude-opus-4-5" does not know the effort "max"' in done.outputs["reason"]
    assert "Choose another model for this run" in done.log
    assert world.model.bodies == []
    row = next(
        line
        for line in world.run([], mode="preflight", model="claude-opus-4-5").summary.splitlines()
        if "effort" in line
    )
    assert "failed" in row


def test_preflight_shows_the_ladder_and_asks_for_each_of_its_models(world: World) -> None:
    use_ladder(world, fallbackModel="claude-opus-4-6")
    rows = world.run([], mode="preflight").summary.splitlines()
    shown = (
        "claude-haiku-5-5: low → claude-sonnet-5-5: medium → claude-opus-5-5: high → after a refusal claude-opus-4-6"
    )
    assert f"| models | ✅ ok | {shown}: its default |" in rows
    assert sum(row.startswith("| model |") for row in rows) == 4
