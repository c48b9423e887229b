"""What logs the job in to a cloud is masked and withheld, and there for the model's service alone."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from stepflow.action.runner import read_runner, secret_variables, secrets_in
from tests.servers.dialects import FederatedDialect
from tests.servers.messages_api import MessagesApi
from tests.servers.providers import IDS, open_access
from tests.world import World, answer, bash, label_event

pytestmark = pytest.mark.whole

#: As the runner, aws-actions/configure-aws-credentials, google-github-actions/auth and a step's `env:` set them.
LOGIN = {
    "ACTIONS_ID_TOKEN_REQUEST_URL": "https://identity.example/token?api-version=2.0",
    "ACTIONS_ID_TOKEN_REQUEST_TOKEN": "request-token-of-the-job",
    "AWS_ACCESS_KEY_ID": "AKIAEXAMPLEOFATEST01",
    "AWS_SECRET_ACCESS_KEY": "aws/secret+key/of+a+test",
    "AWS_SESSION_TOKEN": "aws-session-token-of-a-test",
    "AWS_BEARER_TOKEN_BEDROCK": "bedrock-key-of-a-test",
    "CLOUDSDK_AUTH_ACCESS_TOKEN": "ya29.google-token-of-a-test",
    "ANTHROPIC_FOUNDRY_API_KEY": "foundry-key-of-a-test",
    "ANTHROPIC_FOUNDRY_AUTH_TOKEN": "entra-token-of-a-test",
    "AZURE_CLIENT_SECRET": "azure-secret-of-a-test",
}
PATHS = {
    "GOOGLE_APPLICATION_CREDENTIALS": "/github/workspace/gha-creds-1.json",
    "GOOGLE_GHA_CREDS_PATH": "/github/workspace/gha-creds-1.json",
    "AWS_PROFILE": "ci",
}


def environ_of(tmp_path: Path) -> dict[str, str]:
    """A job's environment with every login at once, and one copy of a key under another name."""
    event = tmp_path / "event.json"
    event.write_text(json.dumps(label_event()))
    copy = {"MY_COPY": f"key={LOGIN['AWS_SECRET_ACCESS_KEY']}"}
    return {"GITHUB_EVENT_PATH": str(event), "AWS_REGION": "eu-west-1", **LOGIN, **PATHS, **copy}


def test_logins_are_secrets_and_leave_the_environment(tmp_path: Path) -> None:
    environ = environ_of(tmp_path)
    assert set(LOGIN.values()) <= set(secrets_in(environ))
    assert {*LOGIN, *PATHS, "MY_COPY"} <= secret_variables(environ, secrets_in(environ))
    runner = read_runner(environ)
    assert not ({*LOGIN, *PATHS, "MY_COPY"} & environ.keys())
    assert environ["AWS_REGION"] == runner.environment["AWS_REGION"] == "eu-west-1"
    assert runner.login == {**LOGIN, **PATHS, "AWS_REGION": "eu-west-1"}
    assert not any(secret in repr(runner) for secret in LOGIN.values())


def test_a_stand_in_for_a_credential_masks_no_ordinary_word(tmp_path: Path) -> None:
    environ = {**environ_of(tmp_path), "AWS_ACCESS_KEY_ID": "test", "NODE_ENV": "test"}
    assert "test" not in secrets_in(environ)
    runner = read_runner(environ)
    assert runner.environment["NODE_ENV"] == "test"
    assert "AWS_ACCESS_KEY_ID" in runner.withheld


def test_no_tool_sees_what_logs_the_job_in_and_nothing_that_is_left_holds_it(world: World) -> None:
    world.runner.environ = {**LOGIN, **PATHS, "AWS_REGION": "eu-west-1"}
    look = "env; cat /proc/self/environ /proc/$PPID/environ | tr '\\0' '\\n'"
    done = world.run([bash(look), answer("initial.issue", "abort")], pass_env="AWS_REGION")
    assert done.outputs["outcome"] == "aborted", done.log
    shown = json.dumps(world.model.bodies[1])
    assert "AWS_REGION=eu-west-1" in shown
    assert re.findall(r"(?:AWS|GOOGLE|CLOUDSDK|ANTHROPIC|AZURE|ACTIONS)_\w+", shown) == ["AWS_REGION"] * shown.count(
        "AWS_REGION"
    )
    folder = done.folder
    files = [path.read_text("utf-8", "replace") for path in folder.rglob("*") if path.is_file()]
    log = done.visible_log
    for text in (*files, log, done.summary, shown):
        assert [name for name, value in LOGIN.items() if value in text] == []
    assert set(LOGIN.values()) <= {line.removeprefix("::add-mask::") for line in done.log.splitlines()}


@pytest.mark.parametrize("account", [IDS["service_account_id"], ""], ids=["named", "none"])
def test_the_service_account_of_the_workload_identity_is_the_one_that_the_workflow_names(
    account: str, world: World, tmp_path: Path
) -> None:
    """The server takes an exchange with exactly these ids."""
    ids = {name: value for name, value in IDS.items() if name != "service_account_id" or account}
    with open_access("identity", tmp_path) as access:
        dialect = FederatedDialect(ids=ids, knows=lambda token: token in access.logins.identities)
        with MessagesApi(lambda body: world.next_reply(body), dialect=dialect) as api:
            world.runner.environ = dict(access.login)
            del world.runner.inputs["anthropic-api-key"]
            named = "\n".join(f"{name.replace('_', '-')}: {value}" for name, value in {**IDS, **ids}.items())
            if not account:
                named = "\n".join(line for line in named.splitlines() if not line.startswith("service-account-id"))
            world.runner.inputs |= {"anthropic-workload-identity": named, "anthropic-base-url": api.url}
            done = world.run([answer("initial.issue", "abort")], on_failure="nothing")
    assert done.outputs["outcome"] == "aborted", done.log
    assert [exchange.get("service_account_id", "") for exchange in dialect.exchanges] == [account]
