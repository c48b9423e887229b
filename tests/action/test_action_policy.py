"""The input `policy`: read first, told in the first line, and kept whatever workflow and agent ask for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from stepflow.definition.loading import load_agent
from tests.checkout import Invocation
from tests.servers.messages_api import Reply
from tests.world import World, answer, label_event, solve, understood

pytestmark = pytest.mark.whole

GIVES_UP: list[Reply] = [understood(), answer("continuation.issue", "abort", reason="no")]


def run(world: World, policy: dict[str, object], **inputs: str) -> Invocation:
    return world.run(GIVES_UP, policy=yaml.safe_dump(policy), **inputs)


def refused(world: World, done: Invocation) -> str:
    """The reason of a run that was refused before the model was asked."""
    assert (done.outputs["outcome"], done.exit_code) == ("refused", 1), done.log
    assert world.model.requests == []
    return done.outputs["reason"]


@pytest.mark.fast
@pytest.mark.parametrize("policy", [{"enabled": False}, {"start": {"by": ["ann"]}}])
def test_the_off_switch_and_the_list_of_people_stop_a_run_before_any_request(
    world: World, policy: dict[str, object]
) -> None:
    done = run(world, policy)
    assert (done.outputs["outcome"], done.exit_code) == ("skipped", 0), done.log
    assert world.model.requests == []
    assert world.requests_made() == 0
    assert world.clock.slept == []
    assert "STEPFLOW_POLICY" in done.outputs["reason"]
    assert "**Reason**: the policy" in done.summary
    assert not (world.runner.folder / "temp" / "stepflow").exists()


def test_the_first_line_of_a_run_tells_the_policy_and_the_options_are_narrowed(world: World) -> None:
    policy = {"models": ["opus"], "network": "none", "limits": {"usd": 2}, "start": {"min-permission": "triage"}}
    done = run(world, policy, limits={"usd": 9})
    assert done.outputs["outcome"] == "aborted", done.log
    first, started = world.events(done)[:2]
    told = "models: opus; network: none; limits.usd: $2.00; start.min-permission: triage"
    assert first["message"] == f"[Policy] {told}"
    assert next(line for line in done.log.splitlines() if not line.startswith("::")).endswith(f"[Policy] {told}")
    assert started["options"]["network"] == "none"
    assert started["options"]["start"]["min-permission"] == "write"
    assert started["options"]["limits"]["usd"] == 2


def test_an_agent_runs_in_the_version_that_the_policy_names(world: World) -> None:
    digest = load_agent("fixer", root=world.checkout).digest
    reason = refused(world, run(world, {"agents": {"fixer": "0" * 64}}))
    assert f"This one has the digest {digest}; give it to fixer below `agents` in STEPFLOW_POLICY" in reason
    done = run(world, {"agents": {"builtin/fix": "any", "fixer": ["0" * 64, digest]}})
    assert done.outputs["outcome"] == "aborted", done.log
    assert world.events(done)[1]["definition_digest"] == digest
    # A change to a prompt is another version.
    world.edit("agent.json", lambda it: it.update(description="Another."))
    before = len(world.model.requests)
    assert run(world, {"agents": {"fixer": digest}}).outputs["outcome"] == "refused"
    assert len(world.model.requests) == before


@pytest.mark.fast
def test_an_agent_that_the_policy_does_not_name_is_refused(world: World) -> None:
    reason = refused(world, run(world, {"agents": {"builtin/fix": "any"}}))
    assert "the policy allows only these agents: builtin/fix; add fixer to `agents` in STEPFLOW_POLICY" in reason
    # Somebody waits for the run, so the issue says it too.
    assert "the policy allows only these agents" in world.comments()[0]


def test_a_model_that_the_policy_does_not_name_is_refused_and_a_rung_is_left_out(world: World) -> None:
    reason = refused(world, run(world, {"models": ["haiku", "sonnet:low"]}))
    assert (
        "the policy allows only the models haiku, sonnet:low, and step initial.issue of fixer has only opus;" in reason
    )
    world.edit("agent.json", lambda it: it["runner"]["flow"].update(models=["opus", "sonnet:low", "haiku"]))
    done = run(world, {"models": ["haiku", "sonnet:low"]})
    assert done.outputs["outcome"] == "aborted", done.log
    asked = {request.body["model"] for request in world.model.requests if request.method == "POST"}
    assert asked == {"claude-sonnet-5-5"}


@pytest.mark.fast
def test_the_person_needs_the_permission_of_the_policy(world: World) -> None:
    assert "requires 'maintain'" in refused(world, run(world, {"start": {"min-permission": "maintain"}}))


def test_a_budget_of_the_policy_cannot_be_replaced_by_tokens_or_go_unseen(world: World) -> None:
    done = run(world, {"limits": {"usd": 2}}, model={"name": "other"}, limits={"tokens": 9000})
    assert (done.outputs["outcome"], world.model.requests) == ("misconfigured", []), done.log
    assert "The price of the model other is not known" in done.outputs["reason"]
    for key in ("usd-per-day", "usd-per-month"):
        reason = refused(world, run(world, {"limits": {key: 2}}, read_token="ghp_ofsomebodyelse0123456789"))
        assert "give the token of `github-token` as `read-token` too" in reason
    reason = refused(world, run(world, {"limits": {"usd-per-issue": 2}}, read_token=""))
    assert "give the token of `github-token` as `read-token` too" in reason
    assert run(world, {"limits": {"usd-per-issue": 2}}).outputs["outcome"] == "aborted"


def test_a_policy_with_a_mistake_stops_the_run(world: World) -> None:
    done = run(world, {"modles": ["opus"]})
    assert (done.outputs["outcome"], done.exit_code) == ("misconfigured", 2), done.log
    assert world.model.requests == []
    assert 'there is no key `modles` (did you mean "models"?)' in done.outputs["reason"]


def test_a_preflight_shows_the_policy_and_what_it_refuses(world: World) -> None:
    done = run(world, {"models": ["opus"], "limits": {"usd": 2}}, mode="preflight")
    assert re.search(r"✓ ok +policy +models: opus; limits\.usd: \$2\.00\n", done.log), done.log
    for policy, words in (
        ({"enabled": False}, "the policy turns off all runs"),
        ({"models": ["haiku"]}, "the policy allows only the models haiku"),
        ({"agents": {"fixer": "0" * 64}}, "This one has the digest"),
    ):
        done = run(world, policy, mode="preflight", agent="fixer")
        assert done.outputs["outcome"] == "refused", done.log
        assert "| policy | ❌ failed |" in done.summary
        assert words in done.summary


def test_a_run_that_is_resumed_is_bound_by_the_policy_of_now(world: World) -> None:
    stopped = world.run(GIVES_UP[:1], limits={"iterations": 1})
    assert stopped.outputs["outcome"] == "limit_reached", stopped.log
    folder, before = stopped.outputs["run-folder"], len(world.model.requests)
    off = world.run([], policy="enabled: false", resume=folder)
    assert (off.outputs["outcome"], len(world.model.requests)) == ("skipped", before), off.log
    done = world.run(solve()[1:], policy="limits: {usd: 3}", resume=folder)
    assert done.outputs["outcome"] == "completed", done.log
    lines = (Path(folder) / "journal.jsonl").read_text()
    assert '"message":"[Policy] limits.usd: $3.00"' in lines.replace('": "', '":"')


def test_a_rehearsal_needs_no_leave(world: World) -> None:
    done = world.run([], label_event(), mode="rehearse", policy="{agents: {other: any}, models: [haiku]}")
    assert done.outputs["outcome"] != "refused", done.log
