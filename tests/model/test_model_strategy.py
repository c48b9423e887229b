"""How the schema of an answer is asked for over the wire, and what a refusal says of the service."""

from __future__ import annotations

import pytest

from stepflow.domain.conversation import Message, ModelTurn, Remedy, ToolSpec, image_block, text_block
from stepflow.domain.run import ImageType, IssueImage
from stepflow.domain.words import Effort, Strategy
from tests.model.asking import ask, fault_of
from tests.servers.messages_api import Answer, Failure, says

BASH = ToolSpec(name="bash", description="Run a command.", input_schema={"type": "object", "properties": {}})
SCHEMA = {"type": "object", "properties": {"stepId": {"type": "string", "minLength": 1}}, "required": ["stepId"]}
SHOWN = Message(role="user", content=(image_block(IssueImage(address="a", type=ImageType.PNG, data="QUJD")),))


def test_a_schema_goes_by_output_config_and_nothing_of_the_prefix_depends_on_it(serve):
    model, api = serve(says("{}"), says("{}"))
    model.ask(ask(schema=SCHEMA, tools=(BASH,)))
    model.ask(ask(schema=SCHEMA, tools=(BASH,), strategy=Strategy.PROMPT))
    natively, in_words = api.bodies
    assert natively["output_config"]["format"]["type"] == "json_schema"
    assert "output_config" not in in_words
    assert [natively[part] for part in ("system", "tools", "messages")] == [
        in_words[part] for part in ("system", "tools", "messages")
    ]


def test_an_effort_goes_beside_the_schema_or_alone_and_only_where_it_is_said(serve):
    model, api = serve(says("{}"), says("{}"), says("{}"), says("{}"))
    for more in ({}, {"effort": Effort.XHIGH}):
        model.ask(ask(schema=SCHEMA, **more))
        model.ask(ask(**more))
    natively, bare, both, alone = api.bodies
    assert natively["output_config"].keys() == {"format"}
    assert "output_config" not in bare
    assert both["output_config"] == {"effort": "xhigh", **natively["output_config"]}
    assert alone == bare | {"output_config": {"effort": "xhigh"}}


@pytest.mark.parametrize(
    ("said", "request_"),
    [
        ("This model does not support the effort parameter.", ask(schema=SCHEMA, effort=Effort.LOW)),
        (
            "This model does not support effort level 'max'. Supported levels: high, low, medium.",
            ask(effort=Effort.MAX),
        ),
        (
            "output_config: Extra inputs are not permitted",
            ask(schema=SCHEMA, effort=Effort.LOW, strategy=Strategy.PROMPT),
        ),
    ],
)
def test_the_advice_after_a_refused_effort_names_it(serve, said, request_):
    model, _ = serve(Failure(status=400, error="invalid_request_error", message=said))
    fault = fault_of(model, request_)
    assert (fault.remedy, fault.transient) == (None, False)
    assert said in fault.reason
    assert "`effort`" in fault.hint
    model, _ = serve(Failure(status=400, error="invalid_request_error", message=said))
    assert "`effort`" not in fault_of(model, ask()).hint


@pytest.mark.parametrize(
    ("said", "request_", "remedy"),
    [
        ("output_config: Extra inputs are not permitted", ask(schema=SCHEMA), Remedy.ASK_IN_WORDS),
        ("structured outputs are not supported by this model", ask(schema=SCHEMA), Remedy.ASK_IN_WORDS),
        ("output_config.format.schema: property 'not' is not supported", ask(schema=SCHEMA), Remedy.ASK_IN_WORDS),
        ("The compiled grammar is too large", ask(schema=SCHEMA), Remedy.ASK_IN_WORDS),
        ("The compiled grammar is too large", ask(schema=SCHEMA, strategy=Strategy.PROMPT), None),
        ("The compiled grammar is too large", ask(), None),
        ("this model does not support tools", ask(schema=SCHEMA, tools=(BASH,)), None),
        ("tools.0.custom.input_schema: JSON schema is invalid", ask(schema=SCHEMA, tools=(BASH,)), None),
        (
            "messages.0.content.0: could not process image",
            ask(messages=(SHOWN,)),
            Remedy.LEAVE_OUT_IMAGES,
        ),
        ("messages.0.content.0: could not process image", ask(), None),
        (
            "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a different "
            "conversation. Remove the block.",
            ask(),
            Remedy.DROP_THINKING,
        ),
        ("This model does not support the effort parameter.", ask(schema=SCHEMA, effort=Effort.LOW), None),
        ("output_config.effort: Extra inputs are not permitted", ask(schema=SCHEMA, effort=Effort.LOW), None),
        ("output_config: Extra inputs are not permitted", ask(schema=SCHEMA, effort=Effort.LOW), Remedy.ASK_IN_WORDS),
        ("structured output is best effort, and off here", ask(schema=SCHEMA), Remedy.ASK_IN_WORDS),
        ("prompt is too long: 210000 tokens > 200000 maximum", ask(schema=SCHEMA), Remedy.SHORTEN),
    ],
)
def test_a_refusal_says_what_of_the_request_to_change(serve, said, request_, remedy):
    model, api = serve(Failure(status=400, error="invalid_request_error", message=said))
    fault = fault_of(model, request_)
    assert (fault.remedy, fault.transient, len(api.bodies)) == (remedy, False, 1)


def test_thinking_behind_something_else_is_refused_and_left_out_by_the_service_when_asked_to(serve):
    thinking = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
    first = Answer(content=(thinking, text_block("Read it.")))
    model, api = serve(first, says("done"))
    turn = model.ask(ask("Fix the parser."))
    assert isinstance(turn, ModelTurn)
    history = [
        Message(role="user", content=(text_block("Fix the lexer."),)),
        Message(role="assistant", content=turn.content),
        Message(role="user", content=(text_block("Go on."),)),
    ]
    changed = ask(messages=tuple(history))
    fault = fault_of(model, changed)
    assert fault.remedy is Remedy.DROP_THINKING
    assert isinstance(model.ask(ask(messages=tuple(history), drop_thinking=True)), ModelTurn)
    *_, dropped = api.bodies
    assert dropped["thinking"] == {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
    *_, request = api.requests
    assert request.headers["anthropic-beta"] == "thinking-binding-controls-2026-08-01"


def test_half_a_character_becomes_a_whole_one_wherever_the_model_wrote_it(serve):
    half = "the \ud83d end"
    content = (
        {"type": "thinking", "thinking": half, "signature": "c2ln"},
        text_block(half),
        {"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {"command": "ls"}},
    )
    model, _ = serve(Answer(content=content, stop_reason="tool_use"))
    turn = model.ask(ask(tools=(BASH,)))
    assert isinstance(turn, ModelTurn)
    assert turn.text == "the \ufffd end"
    assert turn.content[0]["thinking"] == "the \ufffd end"
    assert str(turn.content).encode()
