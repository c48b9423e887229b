"""The same scenario through each provider's server gives the same report, and no login is in anything that is left."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.checkout import Invocation
from tests.servers.logins import REQUEST_TOKEN
from tests.servers.messages_api import Failure, MessagesApi
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
        world.runner.inputs |= {**access.inputs, "anthropic-base-url": api.url + access.suffix}
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
    done = world.run([], provider=provider, anthropic_base_url="")
    assert (done.exit_code, done.outputs["outcome"]) == (2, "misconfigured"), done.log
    assert f"Provider {provider} needs" in done.outputs["reason"]
    assert "docs/how-to/providers.md" in done.outputs["reason"]
    assert not (world.runner.folder / "temp" / "stepflow").exists()


def test_workload_identity_without_id_token_write_says_which_permission_is_missing(world: World) -> None:
    del world.runner.inputs["anthropic-api-key"]
    done = world.run([], anthropic_workload_identity="federation-rule-id: fdrl_1\norganization-id: org")
    assert (done.exit_code, world.model.requests) == (2, [])
    assert "id-token: write" in done.outputs["reason"]


@pytest.mark.parametrize(("model", "tokens", "code"), [("my-deployment", "", 2), ("my-deployment", "400000", 0)])
def test_a_deployment_without_a_known_price_needs_a_budget_in_tokens(
    model: str, tokens: str, code: int, world: World, tmp_path: Path
) -> None:
    with served(world, "foundry", tmp_path):
        done = world.run(solve(), model=model, budget_tokens=tokens)
    assert done.exit_code == code, done.log
    assert code == 0 or "budget-tokens" in done.outputs["reason"]


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
