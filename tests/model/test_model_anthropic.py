"""The adapter to the Messages API, over real HTTP: what is sent, what comes back."""

from __future__ import annotations

import json

import pytest

from stepflow.domain.conversation import (
    Message,
    ModelTurn,
    Refusal,
    StopReason,
    ToolCall,
    ToolSpec,
    ToolUse,
    Usage,
    text_block,
    tool_result_block,
)
from stepflow.errors import InputError
from stepflow.model.anthropic_model import AnthropicModel
from tests.model.asking import KEY, ask, fault_of
from tests.servers.messages_api import Answer, Failure, MessagesApi, answers, calls, says

BASH = ToolSpec(
    name="bash",
    description="Run a command.",
    input_schema={"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
)
READ = ToolSpec(name="read", description="Read a file.", input_schema={"type": "object", "properties": {}})
SCHEMA = {"type": "object", "properties": {"stepId": {"type": "string", "minLength": 1}}, "required": ["stepId"]}


def goes_on(request, turn: ModelTurn, *blocks):
    """The request for the turn after this one."""
    return ask(
        tools=request.tools,
        messages=(
            *request.messages,
            Message(role="assistant", content=turn.content),
            Message(role="user", content=blocks),
        ),
    )


def said_to(body: dict) -> str:
    """The system prompt of a request, however many blocks it is sent in."""
    system = body["system"]
    return system if isinstance(system, str) else "".join(block["text"] for block in system)


def test_a_plain_answer_comes_back_as_a_turn(serve):
    model, api = serve(says("The parser is fixed."))
    turn = model.ask(ask())
    assert isinstance(turn, ModelTurn)
    assert (turn.text, turn.stop_reason, turn.model) == (
        "The parser is fixed.",
        StopReason.END_TURN,
        "claude-sonnet-5-5",
    )
    assert turn.cost_usd > 0
    [body] = api.bodies
    assert said_to(body) == "You work on an issue."
    assert body["messages"] == [{"role": "user", "content": [{"type": "text", "text": "Fix the parser."}]}]
    assert body["stream"] is True


def test_a_tool_call_and_its_result_make_a_round_trip(serve):
    model, api = serve(calls(("bash", {"command": "ls", "timeout_ms": None})), says("Done."))
    request = ask(tools=(BASH,))
    turn = model.ask(request)
    assert turn.stop_reason is StopReason.TOOL_USE
    assert turn.tool_uses == (
        ToolUse(tool_use_id="toolu_srv_1", name="bash", input={"command": "ls", "timeout_ms": None}),
    )
    result = tool_result_block(ToolCall(tool_use_id="toolu_srv_1", name="bash", input={}, output=""))
    assert model.ask(goes_on(request, turn, result)).text == "Done."
    assert api.bodies[1]["messages"][2]["content"] == [result]


def test_thinking_is_sent_back_with_its_signature(serve):
    thinking = {"type": "thinking", "thinking": "First I look at the tests.", "signature": "c2lnbmF0dXJl"}
    hidden = {"type": "redacted_thinking", "data": "b3BhcXVl"}
    tool = {"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {"command": "ls"}}
    model, _ = serve(Answer(content=(thinking, hidden, tool), stop_reason="tool_use"), says("Done."))
    request = ask(tools=(BASH,))
    turn = model.ask(request)
    assert turn.content == (thinking, hidden, tool)
    # The server refuses a thinking block whose signature it did not give.
    again = model.ask(
        goes_on(request, turn, tool_result_block(ToolCall(tool_use_id="toolu_1", name="bash", input={}, output="a.py")))
    )
    assert isinstance(again, ModelTurn)


def test_blocks_of_a_kind_that_is_not_known_yet_are_kept(serve):
    new = {"type": "new_kind", "payload": {"deep": [1, None]}}
    model, _ = serve(Answer(content=(new, {"type": "text", "text": "ok"})))
    assert model.ask(ask()).content == (new, {"type": "text", "text": "ok"})


def test_empty_texts_are_left_out_because_the_api_would_not_take_them_back(serve):
    model, _ = serve(Answer(content=({"type": "text", "text": ""}, {"type": "text", "text": "ok"})), says("fine"))
    request = ask()
    turn = model.ask(request)
    assert turn.content == (text_block("ok"),)
    assert model.ask(goes_on(request, turn, text_block("go on"))).text == "fine"


def test_a_schema_and_tools_go_in_one_request(serve):
    model, api = serve(answers({"stepId": "initial.issue"}))
    turn = model.ask(ask(schema=SCHEMA, tools=(BASH, READ)))
    assert turn.text == '{"stepId":"initial.issue"}'
    [body] = api.bodies
    assert [tool["name"] for tool in body["tools"]] == ["bash", "read"]
    sent = body["output_config"]["format"]
    assert sent["type"] == "json_schema"
    assert sent["schema"]["additionalProperties"] is False
    assert "minLength" in sent["schema"]["properties"]["stepId"]["description"]
    assert "minLength" in SCHEMA["properties"]["stepId"], "the author's schema stays as it is"


def test_without_a_schema_no_format_is_asked_for(serve):
    model, api = serve(says("ok"))
    model.ask(ask(system=""))
    assert not {"output_config", "tools", "system"} & api.bodies[0].keys()


def test_a_schema_that_the_service_cannot_express_is_not_sent(serve):
    model, api = serve(says("{}"))
    anything = {"type": "object", "properties": {"data": {"description": "whatever fits"}}}
    model.ask(ask(schema=anything))
    [body] = api.bodies
    assert "output_config" not in body
    assert said_to(body) == "You work on an issue."


def test_a_turn_pays_only_for_what_is_new(serve):
    model, _ = serve(calls(("bash", {"command": "ls"})), says("Done."), says("Other step."))
    request = ask("long " * 400, tools=(BASH,))
    first = model.ask(request)
    assert (first.usage.cache_read_tokens, first.usage.cache_write_tokens > 400) == (0, True)
    result = tool_result_block(ToolCall(tool_use_id="toolu_srv_1", name="bash", input={}, output="a.py"))
    second = model.ask(goes_on(request, first, result))
    assert second.usage.cache_read_tokens == first.usage.tokens_in
    assert second.usage.cache_write_tokens < 100
    assert second.cost_usd < first.cost_usd / 2


def test_the_same_request_is_sent_as_the_same_bytes(serve):
    model, api = serve(says("a"), says("b"))
    for _ in range(2):
        model.ask(ask(tools=(BASH, READ), schema=SCHEMA))
    first, second = api.bodies
    assert list(map(str, first.items())) == list(map(str, second.items()))
    assert first["cache_control"] == {"type": "ephemeral"}


def test_the_pinned_sdk_lists_no_other_stop_reason():
    from typing import get_args

    from anthropic.types import StopReason as Known

    assert set(get_args(Known)) == {reason.value for reason in StopReason}


def test_an_unknown_stop_reason_is_a_fault_that_says_so(serve):
    model, _ = serve(says("?", stop_reason="moved_on"))
    fault = fault_of(model)
    assert "'moved_on'" in fault.reason
    assert not fault.transient


def test_a_refusal_without_content_is_a_turn(serve):
    details = {"type": "refusal", "category": "cyber", "explanation": "This asks for an exploit."}
    model, _ = serve(
        Answer(content=(), stop_reason="refusal", stop_details=details),
        Answer(content=(), stop_reason="refusal", stop_details={"type": "refusal"}),
        Answer(content=(), stop_reason="refusal"),
    )
    turn = model.ask(ask())
    assert (turn.stop_reason, turn.content) == (StopReason.REFUSAL, ())
    assert turn.refusal == Refusal(category="cyber", explanation="This asks for an exploit.")
    assert [model.ask(ask()).refusal for _ in range(2)] == [Refusal()] * 2


def test_usage_is_taken_as_the_api_counts_it(serve):
    counted = {
        "input_tokens": 5,
        "cache_creation_input_tokens": 7,
        "cache_read_input_tokens": 11,
        "output_tokens": 13,
    }
    model, _ = serve(says("ok", usage=counted))
    turn = model.ask(ask())
    assert turn.usage == Usage(input_tokens=5, cache_write_tokens=7, cache_read_tokens=11, output_tokens=13)


@pytest.mark.parametrize(("geo", "factor"), [("us", 1.1), ("global", 1), (None, 1), ("not_available", 1)])
def test_inference_in_the_us_costs_a_tenth_more(serve, geo, factor):
    counted = {"input_tokens": 5_000, "cache_read_input_tokens": 11_000, "output_tokens": 13}
    model, _ = serve(says("ok", usage=counted), says("ok", usage={**counted, "inference_geo": geo}))
    plain, there = model.ask(ask()), model.ask(ask())
    assert there.cost_usd == pytest.approx(plain.cost_usd * factor)


def test_the_model_that_answered_is_named_and_priced(serve):
    model, api = serve(says("ok", model="claude-haiku-5-5"), says("ok", model="llama-local"), says("ok"))
    priced = model.ask(ask())
    assert priced.model == "claude-haiku-5-5"
    local = model.ask(ask())
    assert (local.model, local.cost_usd > 0) == ("llama-local", True), "the price asked for holds as the upper bound"
    assert model.ask(ask(model="my-own-model")).cost_usd is None
    assert [body["model"] for body in api.bodies] == ["claude-sonnet-5-5", "claude-sonnet-5-5", "my-own-model"]


def test_breakpoints_that_the_service_does_not_know_are_left_out_from_the_next_call_on(serve):
    field = "cache_control"
    model, api = serve(says("{}"), says("{}"), unknown_fields=frozenset({field}))
    fault = fault_of(model, ask(schema=SCHEMA))
    assert (fault.transient, fault.retry_after) == (True, 0.0)
    assert f"`{field}`" in fault.reason
    assert isinstance(model.ask(ask(schema=SCHEMA)), ModelTurn)
    assert isinstance(model.ask(ask(schema=SCHEMA)), ModelTurn)
    assert [field in body for body in api.bodies] == [True, False, False]
    assert field not in json.dumps(api.bodies[1]), "no block carries one either"


def test_a_broken_tool_schema_is_not_taken_for_a_refused_answer_schema(serve):
    model, _ = serve(says("never"))
    broken = ToolSpec(name="bash", description="", input_schema={"type": "array"})
    fault = fault_of(model, ask(schema=SCHEMA, tools=(broken,)))
    assert not fault.transient


def test_only_arguments_say_where_the_key_goes(serve, monkeypatch):
    for name in ("ANTHROPIC_BASE_URL", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9/evil")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-of-the-environment")
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "token-of-the-environment")
    monkeypatch.setenv("ANTHROPIC_CUSTOM_HEADERS", "x-evil: 1\nauthorization: Bearer stolen")
    model, api = serve(says("ok"))
    assert isinstance(model.ask(ask()), ModelTurn)
    [received] = api.requests
    assert KEY in received.headers["authorization"]
    assert not {"x-evil", "proxy-authorization"} & received.headers.keys()
    assert AnthropicModel(KEY).base_url == "https://api.anthropic.com"


def test_a_redirect_is_not_followed(serve):
    with MessagesApi([says("caught")]) as elsewhere:
        moved = Failure(status=307, headers={"location": f"{elsewhere.url}/v1/messages"}, page="<p>moved</p>")
        model, _ = serve(moved)
        fault = fault_of(model)
        assert not fault.transient
        assert "307" in fault.reason
        assert elsewhere.requests == []


@pytest.mark.parametrize("key", ["", "   ", "two words", "line\nbreak", "schlüssel"])
def test_a_key_that_cannot_be_one_is_an_input_error_that_does_not_show_it(key):
    with pytest.raises(InputError, match="anthropic-api-key") as caught:
        AnthropicModel(key)
    assert caught.value.hint
    assert not key.strip() or key not in str(caught.value)


def test_probe_asks_for_the_model_without_a_message(serve):
    model, api = serve(models=frozenset({"claude-sonnet-5-5"}))
    assert model.probe("sonnet") is None
    fault = model.probe("claude-nonsense")
    assert "claude-nonsense" in fault.reason
    assert "`model`" in fault.hint
    assert api.bodies == []


def test_probe_says_when_no_model_service_answers(serve):
    model, _ = serve(api_key="another-key")
    assert "`anthropic-api-key`" in model.probe("sonnet").hint
