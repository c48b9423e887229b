"""What an agent says of its model and its provider: in each request, and no login in anything that is left."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from stepflow.engine import cache_renewal
from stepflow.sandbox import launcher
from tests.checkout import Invocation
from tests.servers.logins import REQUEST_TOKEN
from tests.servers.messages_api import Answer, Failure, MessagesApi
from tests.servers.providers import ProviderAccess, open_access
from tests.world import World, answer, bash, open_world, solve

pytestmark = pytest.mark.whole

#: Keys of the report that are each run's or provider's own: times, prices, the digest of a commit's surroundings.
OWN = {"seconds", "cost_usd", "run_id", "duration_seconds"}
HASH = re.compile(r"\b[0-9a-f]{7,64}\b")


@contextmanager
def served(world: World, name: str, folder: Path) -> Iterator[tuple[ProviderAccess, MessagesApi]]:
    """The world with this provider's server in the place of the Anthropic API."""
    with (
        open_access(name, folder) as access,
        MessagesApi(lambda body: world.next_reply(body), dialect=access.dialect) as api,
    ):
        world.runner.environ = {**access.login, "RUNNER_DEBUG": "1"}
        del world.runner.inputs["anthropic-api-key"]
        model = {**access.inputs.get("model", {}), "base-url": api.url + access.suffix}
        world.runner.inputs |= {**access.inputs, "model": model}
        yield access, api


def figures_of(done: Invocation, root: Path) -> Any:
    """The report without what is each run's own."""
    text = Path(done.outputs["report"]).read_text().replace(str(root), "…")
    for name in ("claude-sonnet-5-5", "claude-opus-5-5"):
        text = text.replace(f"global.anthropic.{name}", name)
    text = re.sub(r"http://127\.0\.0\.1:\d+|1001-1-\w+", "…", text)
    return _same(json.loads(text))


def _same(value: Any) -> Any:
    match value:
        case dict():
            return {key: _same(item) for key, item in value.items() if key not in OWN}
        case list():
            return [_same(item) for item in value]
        case str():
            return HASH.sub("…", value)
        case _:
            return value


@pytest.fixture(scope="module")
def direct(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What the run with a key of the Anthropic API reports."""
    root = tmp_path_factory.mktemp("direct")
    with open_world(root) as world, served(world, "key", root):
        world.runner.inputs["base-checks"] = "skip"
        done = world.run(solve())
        assert done.outputs["outcome"] == "completed", done.log
        return figures_of(done, root)


#: Each provider and each kind of login; tests/model/test_model_providers.py has every way on the wire.
@pytest.mark.parametrize("name", ["identity", "bedrock", "vertex-identity", "foundry-token"])
def test_the_same_scenario_gives_the_same_report_through_every_provider(
    name: str, world: World, tmp_path: Path, direct: Any
) -> None:
    with served(world, name, tmp_path) as (access, api):
        done = world.run(solve())
    assert (done.exit_code, done.outputs["outcome"], done.outputs["validated"]) == (0, "completed", "true"), done.log
    assert len(api.bodies) == len(solve())
    assert float(done.outputs["cost-usd"]) > 0
    assert (len(world.pulls()), len(world.comments())) == (1, 1)
    assert figures_of(done, tmp_path) == {**direct, "provider": access.provider}
    assert direct["history"][1]["tool_calls"]
    files = (path for path in done.folder.rglob("*") if path.is_file())
    left = [path.read_text("utf-8", "replace") for path in files]
    log = done.visible_log
    for text in (*left, log, done.summary, str(done.outputs), *world.comments(), json.dumps(api.bodies)):
        assert [secret for secret in access.secrets() if secret in text] == []


def test_a_provider_that_refuses_the_login_ends_the_run_with_what_to_change(world: World, tmp_path: Path) -> None:
    with served(world, "bedrock", tmp_path):
        refusal = Failure(status=403, error="permission_error", message="not for you")
        done = world.run([refusal])
    assert (done.exit_code, done.outputs["outcome"]) == (1, "model_failed"), done.log
    assert "not for you" in done.outputs["reason"]
    assert world.clock.slept == []


@pytest.mark.parametrize("provider", ["bedrock", "vertex", "foundry"])
def test_a_provider_without_a_login_is_refused_before_anything_is_started(provider: str, world: World) -> None:
    done = world.run([], model={"provider": provider, "base-url": ""})
    assert (done.exit_code, done.outputs["outcome"]) == (2, "misconfigured"), done.log
    assert f"Provider {provider} needs" in done.outputs["reason"]
    assert "docs/how-to/providers.md" in done.outputs["reason"]
    assert not (world.runner.folder / "temp" / "stepflow").exists()


def test_workload_identity_without_id_token_write_says_which_permission_is_missing(world: World) -> None:
    del world.runner.inputs["anthropic-api-key"]
    done = world.run([], model={"workload-identity": "federation-rule-id: fdrl_1\norganization-id: org"})
    assert (done.exit_code, world.model.requests) == (2, [])
    assert "id-token: write" in done.outputs["reason"]


@pytest.mark.parametrize(("model", "tokens", "code"), [("my-deployment", "", 2), ("my-deployment", "400000", 0)])
def test_a_deployment_without_a_known_price_needs_a_budget_in_tokens(
    model: str, tokens: str, code: int, world: World, tmp_path: Path
) -> None:
    with served(world, "foundry", tmp_path):
        done = world.run(solve(), model={"name": model}, limits={"tokens": tokens})
    assert done.exit_code == code, done.log
    assert code == 0 or "limits.tokens" in done.outputs["reason"]


@pytest.mark.parametrize("name", ["identity", "bedrock"])
def test_preflight_says_that_the_login_works_or_what_the_first_turn_will_tell(
    name: str, world: World, tmp_path: Path
) -> None:
    with served(world, name, tmp_path) as (_, api):
        done = world.run([], mode="preflight")
    assert done.exit_code == 0, done.log
    assert api.bodies == []
    word = "answers at" if name == "identity" else "the first turn will tell"
    assert word in next(line for line in done.log.splitlines() if " model " in line)


def test_a_resumed_run_logs_in_again(world: World, tmp_path: Path) -> None:
    with served(world, "identity", tmp_path) as (access, _):
        stopped = world.run([*solve()[:2], Failure(status=400, error="invalid_request_error", message="stop")])
        assert stopped.outputs["outcome"] == "model_failed", stopped.log
        done = world.run(solve()[2:], resume=stopped.outputs["run-folder"])
    assert done.outputs["outcome"] == "completed", done.log
    assert len(access.dialect.given) == 2


def test_the_credentials_file_that_a_login_step_left_in_the_checkout_is_not_in_the_workspace(world: World) -> None:
    exclude = world.checkout / ".git" / "info" / "exclude"
    exclude.write_text(exclude.read_text() + "gha-creds-*.json\n")
    with served(world, "vertex-identity", world.checkout) as (access, api):
        path = world.checkout / "gha-creds-1.json"
        before = path.read_bytes()
        done = world.run([bash("cat gha-creds-1.json"), answer("initial.issue", "abort")])
    assert done.outputs["outcome"] == "aborted", done.log
    assert "gha-creds-1.json: No such file or directory" in json.dumps(api.bodies[1])
    assert path.read_bytes() == before
    files = [file.read_text("utf-8", "replace") for file in done.folder.rglob("*.json*")]
    for text in (*files, json.dumps(api.bodies)):
        assert [secret for secret in (REQUEST_TOKEN, *access.secrets()) if secret in text] == []


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
    done = world.run(solve(), model={"name": "fable"})
    assert done.outputs["outcome"] == "completed", done.log
    assert asked(world) == [("claude-fable-5-2", None)] * 4


def test_a_model_of_the_run_that_does_not_take_the_effort_of_the_agent_is_refused_before_it(world: World) -> None:
    world.edit("agent.json", lambda it: it["runner"]["flow"].update(effort="max"))
    done = world.run([], model={"name": "claude-opus-4-5"})
    assert (done.exit_code, done.outputs["outcome"]) == (2, "misconfigured")
    assert 'the model "claude-opus-4-5" does not know the effort "max"' in done.outputs["reason"]
    assert "Choose another model for this run" in done.log
    assert world.model.bodies == []
    row = next(
        line
        for line in world.run([], mode="preflight", model={"name": "claude-opus-4-5"}).summary.splitlines()
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


def test_while_a_tool_runs_the_cache_is_renewed_and_the_cost_is_told(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With minutes that are tenths of a second."""
    monkeypatch.setattr(cache_renewal, "RENEWED_AFTER", 0.5)
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
