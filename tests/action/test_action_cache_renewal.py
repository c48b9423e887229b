"""The whole action renews the prompt cache while a tool runs, and says so."""

from __future__ import annotations

import pytest

from stepflow.engine import conversation
from stepflow.sandbox import launcher
from tests.world import World, bash, solve

pytestmark = pytest.mark.whole


def test_while_a_tool_runs_the_cache_is_renewed_and_the_cost_is_told(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With minutes that are tenths of a second."""
    monkeypatch.setattr(conversation, "RENEWED_AFTER", 0.5)
    monkeypatch.setattr(launcher, "_LOOK_EVERY", 0.1)
    done = world.run([bash("sleep 2"), *solve()])
    assert done.outputs["outcome"] == "completed", done.log
    renewals = [body for body in world.model.bodies if body["max_tokens"] <= 1]
    assert renewals[0]["messages"] == world.model.bodies[0]["messages"]
    assert "the prompt cache was renewed during a long wait" in done.log
    events = world.events(done)
    assert sum(event["event"] == "cache_renewed" for event in events) == len(renewals) > 0
    spent = [event["cost_usd"] for event in events if event["event"] in {"model_turn", "cache_renewed"}]
    assert float(done.outputs["cost-usd"]) == pytest.approx(sum(spent), abs=0.01)
