"""What each token of a follow-up is used for, and that its tools find no credential."""

from __future__ import annotations

import codecs
import json

import pytest

from tests.action.follow_up_world import ANSWERS, before_last, follow_up, improve
from tests.sandbox.credentials_world import PAYLOAD, persist_as_v5
from tests.servers.messages_api import Reply
from tests.world import BRANCH, READ_TOKEN, World, bash

pytestmark = pytest.mark.whole

LOGIN = {"type": "service_account", "private_key_id": "k1", "private_key": "key-of-the-cloud-0123456789"}


@pytest.mark.parametrize("commits", ["git", "verified"])
def test_until_the_model_is_through_the_write_token_asks_nothing(opened: World, commits: str) -> None:
    api, git_server = opened.github, opened.git_server
    api.read_token = git_server.read_token = opened.runner.inputs["read-token"] = READ_TOKEN
    api.requests.clear()
    git_server.requests.clear()
    seen: list[int] = []

    def count(_: World) -> None:
        seen.extend((len(api.requests), len(git_server.requests)))

    done = follow_up(opened, before_last(opened, improve(threads=ANSWERS), count), commits=commits)
    assert done.outputs["outcome"] == "completed", done.log
    before, fetched = api.requests[: seen[0]], git_server.requests[: seen[1]]
    assert {each.credential for each in before} == {"read"}
    assert fetched
    assert all(each.read_only for each in fetched)
    assert not any(each.read_only for each in git_server.requests[seen[1] :])
    # What wrote is the other token, without exception.
    writes = [each for each in api.requests if each.method != "GET" and not each.path.endswith("/graphql")]
    mutations = [each for each in api.requests if each.body and str(each.body.get("query", "")).startswith("mutation")]
    assert {each.credential for each in (*writes, *mutations)} == {"write"}


def test_a_read_token_of_another_account_follows_up_nothing_and_names_it(opened: World) -> None:
    opened.github.read_token = opened.git_server.read_token = opened.runner.inputs["read-token"] = READ_TOKEN
    opened.github.state.reader = ("reader[bot]", 77)
    done = follow_up(opened, improve(threads=ANSWERS))
    assert done.outputs["outcome"] == "skipped", done.log
    assert "that reader[bot] pushed for an agent" in done.outputs["reason"]


def test_tools_find_no_credential_in_the_workspace_or_in_the_checkout(opened: World) -> None:
    checkout = opened.checkout
    persist_as_v5(checkout)
    login = checkout / "gha-creds-1.json"
    login.write_text(json.dumps(LOGIN))
    opened.runner.environ = {**opened.runner.environ, "GOOGLE_GHA_CREDS_PATH": str(login)}
    config = (checkout / ".git/config").read_bytes()
    # Turned, so that nothing takes it out of the output again.
    turn = "tr A-Za-z N-ZA-Mn-za-m"
    looks: list[Reply] = [
        bash(f"cat {place}/.git/config {place}/{login.name} | {turn}; echo looked") for place in (".", checkout)
    ]
    before = opened.branches()[BRANCH]
    done = follow_up(opened, [*looks, *improve(threads=ANSWERS)])
    assert done.outputs["outcome"] == "completed", done.log
    outputs = [each["output"] for each in opened.events(done) if each["event"] == "tool_call"][: len(looks)]
    assert all("looked" in output for output in outputs)
    assert codecs.encode("[core]", "rot13") in outputs[0]
    for secret in (PAYLOAD, LOGIN["private_key"]):
        assert codecs.encode(secret, "rot13") not in "".join(outputs)
    assert opened.branches()[BRANCH] != before
    assert ((checkout / ".git/config").read_bytes(), json.loads(login.read_text())) == (config, LOGIN)
