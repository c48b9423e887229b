"""Chaos by somebody else: LLMock breaks the model's service under a whole run, and finds no misbehavior of ours."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from stepflow.model.anthropic_model import AnthropicModel
from tests.checkout import git
from tests.servers.llmock_server import open_llmock
from tests.world import BRANCH, CLOSING, COMMIT, World, answer

pytestmark = pytest.mark.whole

#: A model for each step, so that each fault finds its step.
MODELS = {"initial.issue": "chaos-1", "continuation.issue": "chaos-2", "closure.issue": "chaos-3"}
#: LLMock counts a token for four characters: the openings fit, two long results do not.
WINDOW = 9000
#: LLMock takes an answer that it had sent to its end for one that the client read to its end. So its answers are slow
#: and long enough for it to notice that the client left at a chunk that is no JSON.
PACE = {"LLMOCK_STREAM_CHUNK_DELAY_MS": "20"}
WORDY = "I count the lines first, " * 5


@dataclass
class BriskClock:
    """Waits that a service asks for are real, since LLMock measures them; our own longer ones take a tenth."""

    ahead: float = 0.0

    def now(self) -> float:
        return time.time() + self.ahead

    def sleep(self, seconds: float) -> None:
        real = seconds if seconds <= 2 else seconds / 10
        self.ahead += seconds - real
        time.sleep(real)


def at(step: str, behavior: str, **more: Any) -> dict[str, Any]:
    """One behavior of LLMock's for the calls of one step."""
    return {"type": behavior, "match": {"model": MODELS[step]}, **more}


def says(step: str, intent: str, *, times: int, **more: object) -> dict[str, Any]:
    text = answer(step, intent, **more).content[0]["text"]
    return at(step, "reply", text=text, times=times)


def runs(step: str, command: str, *, times: int, text: str = "") -> dict[str, Any]:
    return at(step, "reply", text=text, tool_calls=[{"name": "bash", "arguments": {"command": command}}], times=times)


def chaos() -> list[dict[str, Any]]:
    """Every fault that LLMock has for the Messages API, and beside it what the model says. A reply is used up by a
    call whose stream breaks, and by one whose conversation is too long."""
    first, work, last = MODELS
    return [
        at(first, "fail", status=429, retry_after=1),
        at(first, "fail", status=500),
        at(first, "stream_fault", kind="truncate", after_chunks=3),
        says(first, "next", times=2, understanding="the greeting leaves the world out"),
        at(work, "fail", status=529),
        at(work, "stream_fault", kind="disconnect", after_chunks=2),
        at(work, "stream_fault", kind="malformed", after_chunks=4),
        at(work, "tool_fault", kind="unknown_tool", times=3),
        at(work, "tool_fault", kind="malformed_arguments"),
        runs(work, "seq 1 3000", times=5, text=WORDY),
        runs(work, "seq 1 3001", times=1),
        runs(work, "seq 1 3002", times=1),
        runs(work, f"echo 'hello, world' > greeting.txt && {COMMIT}", times=2),
        says(work, "handoff", times=1, summary="the world is greeted"),
        at(last, "fail", status=503),
        at(last, "fail", status=502),
        at(last, "slow_first_token", seconds=0.2),
        at(last, "stream_fault", kind="stall", after_chunks=2, stall_seconds=4),
        says(last, "closing", times=2, **CLOSING),
    ]


def choose_models(world: World) -> None:
    def change(registry: dict[str, Any]) -> None:
        for step, model in MODELS.items():
            registry["steps"][step]["model"] = model

    world.edit("steps_registry.json", change)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A silence of two seconds is enough."""
    usual = AnthropicModel.__init__.__kwdefaults__
    assert usual is not None
    monkeypatch.setitem(usual, "read_timeout", 2.0)


@pytest.mark.weekly
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("impatient")
def test_a_run_through_every_fault_completes_and_llmock_finds_no_misbehavior(
    world: World, show: Callable[[str], None]
) -> None:
    choose_models(world)
    world.runner.clock = BriskClock()
    with open_llmock(LLMOCK_CONTEXT_WINDOW=str(WINDOW), LLMOCK_TOOL_MODE="off", **PACE) as server:
        server.queue(*chaos())
        done = world.run([], anthropic_base_url=server.messages_url, budget_tokens="1000000")
        requests, verdict, report = server.requests(), server.verdict(), server.report()
        left = server.pending()
    show(
        f"llmock | {done.outputs.get('outcome')} | calls {verdict['calls']}, attempts {verdict['attempts']}, faults "
        f"{verdict['faults_injected']}, errors {verdict['errors']}, warnings {verdict['warnings']}"
    )

    assert (done.exit_code, done.outputs["outcome"]) == (0, "completed"), done.log
    assert left == []
    assert verdict["findings"] == [], report.stdout
    assert (report.returncode, "PASS" in report.stdout) == (0, True), report.stdout + report.stderr
    faults = [request["fault"] for request in requests if request["fault"]]
    assert faults == [
        "scenario:429",
        "scenario:500",
        "stream:truncate@3",
        "scenario:529",
        "stream:disconnect@2",
        "stream:malformed@4",
        "context_window",
        "scenario:503",
        "scenario:502",
        "stream:stall@2",
    ]
    events = [event["event"] for event in world.events(done)]
    assert events.count("context_overflowed") == 1
    calls = [event for event in world.events(done) if event["event"] == "tool_call"]
    assert [(call["denied"], call["input"].get("command", "")[:10]) for call in calls] == [
        (True, "seq 1 3000"),
        (False, "seq 1 3000"),
        (False, "seq 1 3001"),
        (False, "seq 1 3002"),
        (False, "echo 'hell"),
    ]
    assert "Traceback" not in done.log
    assert done.annotations == []
    assert git("show", f"{BRANCH}:greeting.txt", cwd=world.served) == "hello, world\n"
    assert (len(world.pulls()), len(world.comments())) == (1, 1)


def test_the_verdict_is_no_formality() -> None:
    """LLMock does see a client that misbehaves: this one tries a refused call again at once."""
    from tests.model.asking import ask

    with open_llmock() as server, AnthropicModel("sk-ant-key-of-a-test", server.messages_url) as model:
        server.queue({"type": "fail", "status": 429, "retry_after": 1}, {"type": "fail", "status": 401})
        for _ in range(3):
            model.ask(ask())
        assert {finding["code"] for finding in server.verdict()["findings"]} == {
            "retry_after_ignored",
            "retried_non_retryable",
        }
        assert server.report().returncode == 1
