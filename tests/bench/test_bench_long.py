"""What a long conversation is billed, counted: with hundreds of calls, with many calls in a turn, in a small window."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from bench.billing import Accounts
from bench.flows import make_flow
from bench.long import KEY, WINDOW, bill, make_long_step, run_bare_loop, serve_long
from stepflow import StepFlowRunner, load_agent
from stepflow.domain.agent.agent_settings import TOOL_SPECS
from stepflow.domain.conversation import Message, ModelRequest, ToolCall, text_block, tool_result_block
from stepflow.model.anthropic_model import AnthropicModel
from stepflow.model.wire import plan_clearing, request_body
from tests.bench.test_bench_bounds import Notes

CLEARS = {
    "max_input_tokens": 20_000,
    "capabilities": {"context_management": {"clear_tool_uses_20250919": {"supported": True}}},
}
RESULT = 2_000


@pytest.mark.whole
@pytest.mark.weekly
def test_a_step_of_two_hundred_calls_in_a_small_window_is_billed_as_a_bare_loop_with_perfect_caching(tmp_path: Path):
    """400 KB of results in a window of 120,000 tokens; the bare loop has room for all of it."""
    checkout = make_long_step(tmp_path)
    with serve_long(window=WINDOW) as api, AnthropicModel(KEY, api.url) as model:
        agent = load_agent(checkout / ".agent" / "bencher")
        result = StepFlowRunner(agent, model=model, tools=Notes(checkout)).run(cwd=checkout)
        assert result.success, result.reason
    own, floor = bill(api.bodies), bill(run_bare_loop(tmp_path), is_perfect=True)
    assert own.billed <= 1.1 * floor.billed
    assert own.usd <= 1.1 * floor.usd


@pytest.mark.whole
def test_a_flow_of_33_steps_is_billed_as_a_bare_loop_with_perfect_caching(tmp_path: Path):
    """Although it describes six tools instead of one, and says which answer each step owes."""
    checkout = make_flow(tmp_path, 33)
    with serve_long(window=WINDOW) as api, AnthropicModel(KEY, api.url) as model:
        agent = load_agent(checkout / ".agent" / "bencher")
        result = StepFlowRunner(agent, model=model, tools=Notes(checkout)).run(cwd=checkout)
        assert result.success, result.reason
    own, floor = bill(api.bodies), bill(run_bare_loop(tmp_path), is_perfect=True)
    assert own.billed <= 1.1 * floor.billed
    assert own.usd <= 1.1 * floor.usd


def converse(*, turns: int, calls: int) -> list[dict]:
    """The bodies of a conversation of so many turns, each with so many calls."""
    request = ModelRequest(
        step_id="initial.issue",
        iteration=1,
        model="opus",
        system="You work on an issue. This is the step that reads.",
        cacheable=21,
        messages=(Message(role="user", content=(text_block("Read everything."),)),),
        tools=TOOL_SPECS,
    )
    bodies = []
    for turn in range(turns):
        bodies.append(request_body(request, max_tokens=32_000))
        ids = [f"toolu_{turn}_{number}" for number in range(calls)]
        uses = tuple({"type": "tool_use", "id": id_, "name": "read", "input": {"file_path": id_}} for id_ in ids)
        results = tuple(
            tool_result_block(ToolCall(tool_use_id=id_, name="read", input={}, output=id_ * (RESULT // len(id_))))
            for id_ in ids
        )
        told = Message(role="assistant", content=uses), Message(role="user", content=results)
        request = replace(request, messages=(*request.messages, *told))
    return bodies


@pytest.mark.parametrize("calls", [1, 4, 9, 12, 40])
def test_a_turn_of_many_calls_pays_only_for_what_is_new(calls: int) -> None:
    accounts = Accounts()
    for body in converse(turns=6, calls=calls):
        bill_ = accounts.take(body)
        new = sum(len(json.dumps(message)) for message in body["messages"][-2:]) // 4
        if len(body["messages"]) > 1:
            assert bill_.input == 0
            assert bill_.written <= 1.1 * new


@pytest.mark.parametrize("calls", [1, 2, 3])
def test_where_old_results_are_cleared_only_the_kept_ones_are_written_again(calls: int) -> None:
    bodies = [
        body | {"context_management": plan_clearing(CLEARS, price_step=None)}
        for body in converse(turns=60, calls=calls)
    ]
    bills = bill(bodies).bills
    first = next(number for number, (each, after) in enumerate(pairwise(bills)) if after.read < each.read) + 1
    kept = (5 + calls) * (RESULT + 200) // 4
    assert len(bills) - first > 10
    assert all(each.written <= kept for each in bills[first + 1 :])
