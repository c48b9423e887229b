"""Which connection a call takes: the one before, when that is fresh and whole."""

from __future__ import annotations

import time

import pytest

from stepflow.domain.conversation import ModelFault
from tests.model.asking import ask
from tests.servers.messages_api import Answer, Drop, Failure, MessagesApi, says

LONG = " ".join(["word"] * 200)


def connections(api: MessagesApi) -> list[int]:
    """In the order of the requests, numbered as they first appear."""
    seen = [request.connection for request in api.requests]
    return [sorted(set(seen), key=seen.index).index(one) for one in seen]


def test_quick_turns_share_a_connection(serve):
    model, api = serve(says("one"), says("two"), says("three"))
    assert [model.ask(ask()).text for _ in range(3)] == ["one", "two", "three"]
    assert connections(api) == [0, 0, 0]


def test_after_a_long_tool_call_there_is_a_new_connection(serve, monkeypatch):
    monkeypatch.setattr("stepflow.model.http_client.IDLE_SECONDS", 0.05)
    model, api = serve(says("one"), says("two"))
    model.ask(ask())
    time.sleep(0.1)
    assert model.ask(ask()).text == "two"
    assert connections(api) == [0, 1]


@pytest.mark.whole
@pytest.mark.parametrize(
    ("broken", "seconds"),
    [
        pytest.param(says(LONG, reset_after=4), None, id="reset"),
        pytest.param(says(LONG, garble_at=4), None, id="garbled"),
        pytest.param(Drop(), None, id="dropped"),
        pytest.param(says(LONG, pause=0.1), 1, id="slow"),
        pytest.param(Answer(content=(), drip=0.02), 1, id="slow in its headers"),
        pytest.param(says(LONG, flood=10, pause=0.1), 1, id="slow with comments"),
    ],
)
def test_what_a_fault_left_of_a_connection_is_not_used_again(serve, broken: Answer | Drop, seconds: float | None):
    """Only the broken answer has little time: the others may be slow on a busy machine."""
    model, api = serve(says("one"), broken, says("two"))
    assert model.ask(ask()).text == "one"
    assert isinstance(model.ask(ask(seconds=seconds)), ModelFault)
    assert model.ask(ask()).text == "two"
    assert connections(api) == [0, 0, 1]


def test_a_refusal_that_came_whole_costs_no_connection(serve):
    model, api = serve(Failure(status=529), says("two"))
    assert isinstance(model.ask(ask()), ModelFault)
    assert model.ask(ask()).text == "two"
    assert connections(api) == [0, 0]


def test_a_server_that_closes_between_two_turns_is_called_anew(serve):
    model, api = serve(says("one"), says("two"))
    model.ask(ask())
    api.close_connections()
    assert model.ask(ask()).text == "two"
    assert connections(api) == [0, 1]
