"""Every way a call can fail becomes a value: transient or not, what to change, never the key."""

from __future__ import annotations

import time
from email.utils import formatdate

import pytest

from stepflow.domain.conversation import ModelFault, ModelRequest, ModelTurn, Remedy
from stepflow.model.anthropic_model import AnthropicModel
from tests.model.asking import KEY, ask, fault_of
from tests.servers.messages_api import Answer, Drop, Failure, calls, says
from tests.servers.private_network import closed_port

LONG = "word " * 20


def event(position: int, name: str, data) -> dict:
    return {"extra_events": ((position, name, data),)}


def stream_error(kind: str) -> Answer:
    return says(LONG, **event(3, "error", {"type": "error", "error": {"type": kind, "message": "in the middle"}}))


TRANSIENT = {
    "rate limit": Failure(status=429, error="rate_limit_error"),
    "overload": Failure(status=529, error="overloaded_error"),
    "server error": Failure(status=500),
    "bad gateway with a web page": Failure(status=502, page="<!doctype html><h1>Bad gateway</h1>"),
    "request timeout": Failure(status=408, error="timeout_error"),
    "connection dropped before the answer": Drop(),
    "connection reset after the headers": says(LONG, reset_after=0),
    "connection reset in the middle": says(LONG, reset_after=5),
    "nothing in the stream": says(LONG, cut_after=0),
    "stream cut in the middle": says(LONG, cut_after=5),
    "stream cut before its end": Answer(content=({"type": "text", "text": "abc"},), cut_after=6),
    "no stop reason": says("abc", stop_reason=None),
    "an event that is no JSON": says(LONG, garble_at=4),
    "an event that is no object": says(LONG, **event(2, "content_block_delta", [])),
    "a delta for no block": says(
        LONG, **event(2, "content_block_delta", {"type": "content_block_delta", "index": 9, "delta": {}})
    ),
    "a message that is no object": says(
        LONG, **event(0, "message_start", {"type": "message_start", "message": "hello"})
    ),
    "overload in the middle": stream_error("overloaded_error"),
    "server error in the middle": stream_error("api_error"),
    "rate limit in the middle": stream_error("rate_limit_error"),
    "timeout in the middle": stream_error("timeout_error"),
    "conflict": Failure(status=409, error="conflict_error"),
    "conflict told by a proxy": Failure(status=409, page="<h1>Locked</h1>"),
    "a server that says to try again": Failure(
        status=400, error="invalid_request_error", headers={"x-should-retry": "true"}
    ),
}

LASTING = {
    "401": (Failure(status=401, error="authentication_error", message=f"bad key {KEY}"), "`anthropic-api-key`"),
    "402": (Failure(status=402, error="billing_error"), "credit"),
    "403": (Failure(status=403, error="permission_error"), "`model`"),
    "404": (Failure(status=404, error="not_found_error", message="model: claude-nope"), "`model`"),
    "404 of another server": (Failure(status=404, page="<h1>Not found</h1>"), "`model.base-url`"),
    "413": (Failure(status=413, error="invalid_request_error"), "too large"),
    "400 context": (
        Failure(
            status=400,
            error="invalid_request_error",
            message="prompt is too long: 210000 tokens > 200000 maximum",
        ),
        "larger context window",
    ),
    "400 credit": (
        Failure(status=400, error="invalid_request_error", message="Your credit balance is too low"),
        "Add credit",
    ),
    "400": (Failure(status=400, error="invalid_request_error", message="messages.0: no"), "`model`"),
    "spend limit": (
        Failure(status=429, error="rate_limit_error", details={"error_code": "enforced_spend_limit_reached"}),
        "spend limit",
    ),
    "bad request in the middle": (stream_error("invalid_request_error"), "`model`"),
    "403 billing": (
        Failure(status=403, error="permission_error", message="Your organization has a billing problem."),
        "Add credit",
    ),
    "400 usage limit": (
        Failure(status=400, error="invalid_request_error", message="You have reached your specified API usage limits."),
        "raise the spend limit",
    ),
    "400 disabled": (
        Failure(status=400, error="invalid_request_error", message="This organization has been disabled."),
        "account is disabled",
    ),
    "a server that says not to try again": (
        Failure(status=529, error="overloaded_error", headers={"x-should-retry": "false"}),
        "status page",
    ),
}

for _status in (408, 409, 429, 500):
    LASTING[f"a server that says not to try {_status} again"] = (
        Failure(status=_status, error="api_error", headers={"x-should-retry": "false"}),
        "",
    )

OVERFLOWS = {
    "too long": (400, "prompt is too long: 210000 tokens > 200000 maximum"),
    "no room for the answer": (
        400,
        "input length and `max_tokens` exceed context limit: 190000 + 32000 > 200000, decrease input length or "
        "`max_tokens` and try again",
    ),
    "too many bytes": (413, "Request exceeds the maximum size"),
    "another server": (400, "the request exceeds the available context size. try increasing the context size"),
}


def fault_from(serve, reply, request: ModelRequest | None = None, **timeouts: float) -> ModelFault:
    """What comes of one call of a server that gives this reply."""
    model, _ = serve(reply, model=timeouts)
    return fault_of(model, request)


@pytest.mark.sample(4)
@pytest.mark.parametrize("case", TRANSIENT)
def test_what_may_pass_is_transient_and_the_next_call_works(serve, case):
    model, api = serve(TRANSIENT[case], says("back again"))
    fault = fault_of(model)
    assert fault.transient
    assert fault.hint
    assert api.url in fault.reason
    assert "Traceback" not in fault.reason
    assert "<h1>" not in fault.reason, "no web page is printed"
    assert len(api.bodies) == 1, "one call, one try"
    assert model.ask(ask()).text == "back again"


@pytest.mark.parametrize("case", LASTING)
def test_what_stays_wrong_is_not_tried_again_and_says_what_to_change(serve, case):
    reply, hint = LASTING[case]
    fault = fault_from(serve, reply)
    assert not fault.transient
    assert hint in fault.hint
    assert fault.retry_after is None
    assert (fault.remedy is Remedy.SHORTEN) == (case in ("400 context", "413"))


@pytest.mark.parametrize("missing", [1, 2, 9, 20])
def test_a_tool_call_whose_input_is_cut_off_is_never_given_on(serve, missing):
    call = ("bash", {"command": "rm -rf build/old", "timeout_ms": 5000})
    model, _ = serve(calls(call, short_inputs=missing), calls(call))
    fault = fault_of(model)
    assert fault.transient
    assert "the input of a tool call is incomplete" in fault.reason
    assert model.ask(ask()).tool_uses[0].input == call[1]


def test_at_the_output_limit_a_call_may_be_cut_off(serve):
    """The flow answers such a call instead of running it."""
    model, _ = serve(
        Answer(content=calls(("bash", {"command": "make all"})).content, stop_reason="max_tokens", short_inputs=5)
    )
    assert model.ask(ask()).stop_reason == "max_tokens"


def test_a_call_without_input_is_whole(serve):
    model, _ = serve(calls(("bash", {}), short_inputs=2))
    assert model.ask(ask()).tool_uses[0].input == {}


@pytest.mark.parametrize("case", OVERFLOWS)
def test_a_conversation_that_does_not_fit_is_told_apart(serve, case):
    status, message = OVERFLOWS[case]
    reply = Failure(status=status, error="invalid_request_error", message=message)
    fault = fault_from(serve, reply, ask(schema={"type": "object", "properties": {}}))
    assert (fault.remedy, fault.transient) == (Remedy.SHORTEN, False)


def test_a_key_that_worked_before_was_revoked(serve):
    refused = Failure(status=401, error="authentication_error", message="invalid x-api-key")
    model, _ = serve(refused, says("ok"), refused, Failure(status=403, error="billing_error", message="credit balance"))
    hints = [getattr(model.ask(ask()), "hint", "") for _ in range(4)]
    assert "Check the secret" in hints[0]
    assert "revoked" in hints[2]
    assert "Add credit" in hints[3]


@pytest.mark.parametrize("reply", [LASTING["401"][0], Failure(status=500, message="Bearer sk-ant-other_key-1 leaked")])
def test_no_fault_carries_a_key(serve, reply):
    fault = fault_from(serve, reply)
    assert "sk-ant" not in fault.reason + fault.hint
    assert "[redacted]" in fault.reason


def test_a_long_or_many_lined_message_of_the_service_is_cut_and_put_on_one_line(serve):
    fault = fault_from(serve, Failure(status=400, error="invalid_request_error", message="::error::x\n" * 400))
    assert "\n" not in fault.reason
    assert len(fault.reason) < 700


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("7", 7),
        ("0.5", 0.5),
        ("-3", 0),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
        ("soon", None),
        ("", None),
        ("nan", None),
        ("inf", None),
    ],
)
def test_retry_after_is_seconds_or_a_date_and_never_below_zero(serve, value, seconds):
    fault = fault_from(serve, Failure(status=529, error="overloaded_error", headers={"retry-after": value}))
    assert fault.transient
    assert fault.retry_after == seconds


def test_retry_after_in_an_hour_is_an_hour_from_now(serve):
    in_an_hour = formatdate(time.time() + 3600, usegmt=True)
    fault = fault_from(serve, Failure(status=529, error="overloaded_error", headers={"retry-after": in_an_hour}))
    assert fault.retry_after == pytest.approx(3500, abs=110)


@pytest.mark.parametrize("reply", [Drop(silent=0.3), says(LONG, pause=0.25)], ids=["at once", "in the stream"])
def test_a_service_that_falls_silent_times_out(serve, reply):
    fault = fault_from(serve, reply, read_timeout=0.05)
    assert fault.transient
    assert "did not answer in time" in fault.reason


@pytest.mark.whole
def test_a_slow_stream_that_goes_on_is_waited_for(serve):
    """The whole answer takes longer than a silence may, each piece of it far less."""
    model, _ = serve(says(LONG, pause=0.08), model={"read_timeout": 1})
    started = time.monotonic()
    assert isinstance(model.ask(ask()), ModelTurn)
    assert time.monotonic() - started > 1


@pytest.mark.whole
@pytest.mark.parametrize(
    "drip",
    [
        pytest.param(Answer(content=(), drip=0.02), id="headers"),
        pytest.param(says(LONG, pause=0.04), id="events"),
        pytest.param(says(LONG, flood=10, pause=0.01), id="comments"),
    ],
)
def test_no_drip_stretches_the_time_of_a_call(serve, drip):
    started = time.monotonic()
    fault = fault_from(serve, drip, read_timeout=5, longest_call=0.2)
    assert 0.2 <= time.monotonic() - started < 10
    assert fault.transient
    assert "had not finished its answer" in fault.reason


def test_a_request_may_allow_less_time_than_the_model(serve):
    started = time.monotonic()
    assert "had not finished" in fault_from(serve, says(LONG, pause=0.05), ask(seconds=0.1), read_timeout=5).reason
    assert time.monotonic() - started < 10


@pytest.mark.parametrize("wait", [True, False])
def test_a_refused_connection_passes_unless_nobody_waits_for_it(wait):
    with AnthropicModel(KEY, f"http://127.0.0.1:{closed_port()}", wait_when_refused=wait) as model:
        fault = fault_of(model)
    assert "Connection refused" in fault.reason
    assert "`model.base-url`" in fault.hint
    assert fault.transient is wait


def test_a_look_up_is_bounded_too(serve, monkeypatch):
    monkeypatch.setattr("stepflow.model.wire._LONGEST_LOOK_UP", 0.1)
    model, api = serve()
    api.list_of_models = Drop(silent=30)
    started = time.monotonic()
    assert "had not finished" in model.probe("sonnet").reason
    assert time.monotonic() - started < 10


@pytest.mark.parametrize(
    "reply", [says(LONG, flood=50_000), Failure(status=502, page="<p>" * 500_000)], ids=["a stream", "a refusal"]
)
def test_an_answer_without_end_is_cut_by_its_size(serve, monkeypatch, reply):
    monkeypatch.setattr("stepflow.model.http_client.MOST_BYTES", 1_000_000)
    model, _ = serve(reply, says("back again"))
    fault = fault_of(model)
    assert fault.transient
    assert "does not end after 1000000 bytes" in fault.reason
    assert model.ask(ask()).text == "back again"


def test_an_answer_that_is_no_stream_is_told_by_its_kind(serve):
    fault = fault_from(serve, Failure(status=200, page="<h1>Log in to the hotel network</h1>"))
    assert fault.transient
    assert "text/html" in fault.reason


def test_an_event_of_a_kind_that_is_not_known_yet_does_no_harm(serve):
    model, _ = serve(says("fine", **event(2, "future_event", {"type": "future_event", "value": 1})))
    assert model.ask(ask()).text == "fine"


USED = {"input_tokens": 1000, "cache_read_input_tokens": 200, "output_tokens": 50}


@pytest.mark.parametrize(
    ("reply", "output_tokens"),
    [
        (says(LONG, usage=USED, reset_after=5), 1),
        (says(LONG, usage=USED, cut_after=5), 1),
        (says("x", usage=USED, cut_after=6), 50),
        (says(LONG, usage=USED, garble_at=4), 1),
        (says(LONG, usage=USED, stop_reason="brand_new"), 50),
        (calls(("bash", {"command": "ls"}), usage=USED, short_inputs=2), 50),
    ],
    ids=["reset", "cut off", "cut off at its end", "garbled", "a reason that nobody knows", "a call without its end"],
)
def test_what_an_answer_had_used_when_it_broke_off_is_told(serve, reply, output_tokens):
    fault = fault_from(serve, reply)
    assert (fault.usage.input_tokens, fault.usage.cache_read_tokens) == (1000, 200)
    assert fault.usage.output_tokens == output_tokens
    assert fault.cost_usd


@pytest.mark.whole
def test_an_answer_that_is_cut_by_its_deadline_has_used_what_it_told(serve):
    assert fault_from(serve, says(LONG, usage=USED, pause=0.3), ask(seconds=2)).usage.input_tokens == 1000


@pytest.mark.parametrize("reply", [Failure(status=529, error="overloaded_error"), Drop(), says(LONG, reset_after=0)])
def test_a_call_that_no_answer_began_to_has_used_nothing(serve, reply):
    fault = fault_from(serve, reply)
    assert (fault.usage.total, fault.cost_usd) == (0, 0.0)
