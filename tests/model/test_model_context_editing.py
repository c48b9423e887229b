"""Room in a long conversation: the service makes it, and what we send stays what it was."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stepflow.domain.conversation import Message, ModelTurn, Remedy, ToolCall, ToolSpec, tool_result_block
from stepflow.model.wire import plan_clearing
from tests.model.asking import ask, fault_of
from tests.servers.messages_api import calls, says

READ = ToolSpec(name="read", description="Read a file.", input_schema={"type": "object", "properties": {}})
WINDOW = 24_000


def converse(model, *, results: int, characters: int) -> list[ModelTurn]:
    """A conversation of so many calls, each with a result of so many characters."""
    request, turns = ask(tools=(READ,)), []
    for number in range(results + 1):
        turn = model.ask(request)
        assert isinstance(turn, ModelTurn), turn
        turns.append(turn)
        text = f"{number} " * (characters // 3)
        answers = [tool_result_block(ToolCall(**vars(use), output=text)) for use in turn.tool_uses]
        told = (Message(role="assistant", content=turn.content), Message(role="user", content=tuple(answers)))
        request = replace(request, messages=(*request.messages, *told))
    return turns


@pytest.mark.whole
def test_a_conversation_twice_as_long_as_its_window_completes(serve):
    replies = [calls(("read", {"path": f"file-{number}"}), first_id=number) for number in range(60)]
    model, api = serve(*replies, says("Done."), window=WINDOW)
    turns = converse(model, results=60, characters=4_000)
    assert turns[-1].text == "Done."
    cleared = [turn.cleared for turn in turns if turn.cleared]
    assert cleared
    assert cleared[-1].results > 20
    assert cleared[-1].tokens > 0.25 * WINDOW
    assert "[Old tool result" not in str(api.bodies[-1]), "nothing is taken out of what is sent"
    betas = {request.headers.get("anthropic-beta") for request in api.requests if request.method == "POST"}
    assert betas == {"context-management-2025-06-27"}, "from the first request of the conversation"
    assert sum(request.method == "GET" for request in api.requests) == 1, "the list is asked once"


def test_without_tools_no_list_is_asked_and_no_room(serve):
    model, api = serve(says("Done."), window=WINDOW)
    assert isinstance(model.ask(ask()), ModelTurn)
    (request,) = api.requests
    assert "context_management" not in request.body


def test_where_the_list_says_nothing_a_conversation_that_is_too_long_has_to_begin_again(serve):
    model, api = serve(says("Done."))
    assert isinstance(model.ask(ask(tools=(READ,))), ModelTurn)
    assert "context_management" not in api.bodies[0]
    api.window = 100
    assert fault_of(model, ask("x" * 2_000, tools=(READ,))).remedy is Remedy.SHORTEN


def test_room_is_made_before_a_request_costs_more_per_token():
    entry = {
        "max_input_tokens": 1_000_000,
        "capabilities": {"context_management": {"clear_tool_uses_20250919": {"supported": True}}},
    }
    values = [plan_clearing(entry, price_step=step)["edits"][0]["trigger"]["value"] for step in (None, 100_000)]
    assert values == [750_000, 75_000]
