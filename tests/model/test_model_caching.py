"""Breakpoints: what later requests begin with is paid for once."""

from __future__ import annotations

from asking import ask

from stepflow.domain.agent.agent_settings import TOOL_SPECS
from stepflow.domain.conversation import Message, text_block
from stepflow.model.wire import mark_prefix, request_body

SYSTEM = "You work on an issue.\n\n## Answer contract\n\nAnswer."
CACHEABLE = SYSTEM.index("##")


def body_of(**more):
    given = {"system": SYSTEM, "cacheable": CACHEABLE, "tools": TOOL_SPECS} | more
    return request_body(ask(**given), max_tokens=100)


def marked(blocks):
    return ["cache_control" in block for block in blocks]


def test_the_last_tool_both_parts_of_the_system_prompt_and_the_newest_message_are_breakpoints():
    body = body_of()
    assert marked(body["tools"]) == [False] * 5 + [True]
    assert [block["text"] for block in body["system"]] == [SYSTEM[:CACHEABLE], SYSTEM[CACHEABLE:]]
    assert marked(body["system"]) == [True, True]
    assert body["cache_control"] == {"type": "ephemeral"}


def test_another_step_begins_with_the_same_bytes():
    one = body_of()
    other = body_of(
        system=SYSTEM[:CACHEABLE] + "## Answer contract\n\nAnother one.",
        messages=(Message(role="user", content=(text_block("Go on."),)),),
    )
    assert (one["tools"], one["system"][0]) == (other["tools"], other["system"][0])
    assert one["system"][1] != other["system"][1]


def test_a_prompt_of_one_part_is_one_block():
    assert len(body_of(cacheable=0)["system"]) == 1
    assert len(body_of(cacheable=len(SYSTEM))["system"]) == 1
    assert "system" not in body_of(system="", cacheable=0)


def test_a_body_whose_breakpoints_were_refused_stays_as_it_is():
    body = {"model": "m", "system": SYSTEM, "tools": [{"name": "bash"}]}
    assert mark_prefix(body, cacheable=CACHEABLE) == body
