"""The scripted Messages API refuses what the real one refuses, so that a green test means something."""

from __future__ import annotations

import json
import urllib.error
import urllib.request

import pytest

from tests.servers.messages_api import MessagesApi, says

KEY = "sk-ant-test-key"
USER = {"role": "user", "content": "hi"}
CALL = {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "bash", "input": {}}]}
RESULT = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "ok"}]}
BODY = {"model": "m", "max_tokens": 10, "messages": [USER]}


def post(url: str, body: dict, **headers: str) -> tuple[int, dict]:
    request = urllib.request.Request(
        f"{url}/v1/messages",
        json.dumps(body).encode(),
        {"content-type": "application/json", "x-api-key": KEY, "anthropic-version": "2023-06-01", **headers},
    )
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, json.load(refused)


@pytest.mark.parametrize(
    ("change", "status", "words"),
    [
        ({"model": ""}, 400, "model"),
        ({"max_tokens": -1}, 400, "max_tokens"),
        ({"max_tokens": 0, "stream": True}, 400, "max_tokens: 0 is not supported with `stream`"),
        ({"max_tokens": 0}, 200, ""),
        ({"made_up": 1}, 400, "made_up: Extra inputs"),
        ({"messages": []}, 400, "at least one"),
        ({"messages": [USER, USER]}, 400, "alternate"),
        ({"messages": [CALL]}, 400, "alternate"),
        ({"messages": [{"role": "user", "content": []}]}, 400, "non-empty"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": ""}]}]}, 400, "non-empty"),
        ({"messages": [USER, CALL, USER]}, 400, "without `tool_result`"),
        ({"messages": [USER, {"role": "assistant", "content": "x"}, RESULT]}, 400, "unexpected `tool_use_id`"),
        ({"messages": [USER, CALL]}, 400, "prefill"),
        ({"tools": [{"name": "a b", "input_schema": {"type": "object"}}]}, 400, "pattern"),
        ({"tools": [{"name": "a", "input_schema": {}}]}, 400, "input_schema"),
        ({"tools": [{"name": "a", "input_schema": {"type": "object"}}] * 2}, 400, "unique"),
        ({"output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}}, 400, "explicitly"),
        ({"messages": [USER, CALL, RESULT]}, 200, ""),
    ],
)
def test_requests_are_checked_as_the_api_checks_them(change, status, words):
    with MessagesApi([says("ok")]) as api:
        got, answer = post(api.url, BODY | change)
    assert got == status, answer
    assert status == 200 or words in answer["error"]["message"]


def test_a_wrong_key_and_an_unknown_model_are_refused():
    with MessagesApi([says("ok")], models=frozenset({"known"})) as api:
        assert post(api.url, BODY, **{"x-api-key": "wrong"})[0] == 401
        assert post(api.url, BODY)[0] == 404
        assert post(api.url, BODY | {"model": "known"})[0] == 200
        assert post(api.url, BODY | {"model": "known"})[1]["error"]["message"].endswith("no more replies")


def test_replies_may_be_computed_from_the_request():
    with MessagesApi(lambda body: says(body["messages"][0]["content"].upper())) as api:
        assert post(api.url, BODY)[1]["content"] == [{"type": "text", "text": "HI"}]
