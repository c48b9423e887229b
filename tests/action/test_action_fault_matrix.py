"""Each fault of the model's service at each moment of a run: outcome, exit code, what is kept, how often it asks.

The table is printed at the end of the tests, one line per cell. Each fault is met at one moment at least, and a change
must pass seven of these cells, far apart; STEPFLOW_FULL=1 tries the whole table.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from email.utils import formatdate
from typing import Any

import pytest

from stepflow.model.anthropic_model import AnthropicModel
from tests.checkout import Invocation, git
from tests.covering import covering
from tests.servers.messages_api import Answer, Drop, Failure, Reply, says
from tests.world import BRANCH, World, answer, bash, solve, understood

pytestmark = pytest.mark.whole

#: How many turns of `solve()` are answered before the fault: the step's first call, between two calls of the work
#: step (its commit is made), the closure's call.
MOMENTS = {"first turn": 0, "mid-tools": 2, "closure": 3}
COMMITTED = 2
HELLO = "hello, world\n"


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What the service does, and what must come of it. `replies` are given once, in a row; `always` forever.

    `outcome` completed: the run goes on as if nothing had been. `tries` are the calls that the fault costs, `slept`
    the waits; `words` is in reason, comment and summary of a failed run. `seconds` bound a call (silence, whole call).
    """

    replies: Callable[[], tuple[Reply, ...]] = tuple
    always: Reply | None = None
    outcome: str = "completed"
    slept: tuple[float, ...] = ()
    words: tuple[str, ...] = ()
    tries: int = 1
    at_an_opening: tuple[str, ...] = ()
    """Words of the failure that this is instead, where the conversation is only an opening."""
    steps_more: int = 0
    inputs: tuple[tuple[str, str], ...] = ()
    seconds: tuple[float, float] | None = None


def passing(reply: Reply | Callable[[], Reply], wait: float = 5, **more: Any) -> Fault:
    """A fault that happens once."""
    return Fault(replies=lambda: (reply() if callable(reply) else reply,), slept=(wait,), **more)


def lasting(reply: Reply, *words: str, **more: Any) -> Fault:
    """A fault that ends the run at once."""
    return Fault(replies=lambda: (reply,), words=words, **{"outcome": "model_failed", **more})


def bad(message: str, status: int = 400, error: str = "invalid_request_error", **more: Any) -> Failure:
    return Failure(status=status, error=error, message=message, **more)


def limited(after: str | None) -> Failure:
    return Failure(status=429, error="rate_limit_error", headers={} if after is None else {"retry-after": after})


def stream_error(kind: str) -> Answer:
    error = {"type": "error", "error": {"type": kind, "message": "in the middle"}}
    return says("never used", extra_events=((3, "error", error),))


OPENING = ("does not fit the model's context window", "larger context window")

FAULTS = {
    "429, retry-after 7": passing(limited("7"), 7),
    "429, retry-after a date": passing(lambda: limited(formatdate(time.time() + 30, usegmt=True)), 29),
    "429, no retry-after": passing(limited(None)),
    "429, twice, then 529": Fault(
        replies=lambda: (limited("1"), limited(None), Failure(status=529, error="overloaded_error")),
        slept=(1, 10, 20),
        tries=3,
    ),
    "429, retry-after forever": lasting(limited("1000000"), "asks to wait 1000000 s", "limits.minutes"),
    "429, until the deadline": Fault(
        always=limited("1200"), outcome="model_failed", slept=(1200, 1200), tries=3, words=("It asks to wait 1200 s",)
    ),
    "429, spend limit": lasting(
        bad("limit", 429, "rate_limit_error", details={"error_code": "enforced_spend_limit_reached"}), "spend limit"
    ),
    "529": passing(Failure(status=529, error="overloaded_error")),
    "500": passing(Failure(status=500)),
    "500, forever": Fault(
        always=Failure(status=500), outcome="model_failed", slept=(5, 10, 20, 40), tries=5, words=("5 tries", "status")
    ),
    "500, past a near deadline": Fault(
        always=Failure(status=500),
        outcome="timed_out",
        slept=(5, 10, 20, 20),
        tries=4,
        words=("limits.minutes",),
        inputs=(("limits", "minutes: 1"),),
    ),
    "502, a web page": passing(Failure(status=502, page="<!doctype html><h1>Bad gateway</h1>")),
    "connection dropped": passing(Drop()),
    "reset mid-stream": passing(says("half of it", reset_after=4)),
    "silence (read timeout)": passing(Drop(silent=4), seconds=(2, 60)),
    "slow drip": passing(Answer(content=(), drip=0.05), seconds=(60, 4)),
    "truncated stream": passing(says("half of it", cut_after=4)),
    "malformed SSE": passing(says("half of it", garble_at=3)),
    "overload mid-stream": passing(stream_error("overloaded_error")),
    "context overflow (400)": Fault(
        replies=lambda: (bad("prompt is too long: 210000 tokens > 200000 maximum"),),
        at_an_opening=OPENING,
        steps_more=1,
    ),
    "context overflow (stop)": Fault(
        replies=lambda: (says('{"next', stop_reason="model_context_window_exceeded"),),
        at_an_opening=OPENING,
        steps_more=1,
    ),
    "key revoked (401)": lasting(bad("invalid x-api-key", 401, "authentication_error"), "401", "key"),
    "credit exhausted (400)": lasting(bad("Your credit balance is too low to access the API."), "Add credit"),
    "billing (403)": lasting(bad("There is a billing problem.", 403, "permission_error"), "Add credit"),
    "model removed (404)": lasting(bad("model: claude-old", 404, "not_found_error"), "claude-old", "Check the input"),
    "bad request (400)": lasting(bad("messages: too odd"), "too odd"),
    "refusal": lasting(says("No.", stop_reason="refusal"), "refused", outcome="model_refused"),
}


@pytest.mark.sample(7)
@pytest.mark.parametrize(("name", "moment"), covering(tuple(FAULTS), tuple(MOMENTS)))
def test_a_fault_of_the_service(
    world: World, name: str, moment: str, show: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    fault, before = FAULTS[name], MOMENTS[moment]
    if fault.seconds is not None:
        usual = AnthropicModel.__init__.__kwdefaults__
        assert usual is not None
        monkeypatch.setitem(usual, "read_timeout", fault.seconds[0])
        monkeypatch.setitem(usual, "longest_call", fault.seconds[1])
    is_opening = bool(fault.at_an_opening) and moment != "mid-tools"
    outcome = "model_failed" if is_opening else fault.outcome
    done = world.run(disturbed(fault, before), on_failure="push-branch", **dict(fault.inputs))

    ended = (done.outputs["outcome"], done.exit_code)
    assert ended == (outcome, 0 if outcome == "completed" else 1), done.log
    more = fault.steps_more if not is_opening else 0
    turns = len(solve()) if outcome == "completed" else before
    assert len(world.model.bodies) == turns + fault.tries
    assert_waited(world, done, fault.slept)
    assert_nothing_twice(world)
    if outcome == "completed":
        assert_no_stain(world, done, iterations=3 + more)
    else:
        assert_kept(world, done, committed=before >= COMMITTED)
        assert_told(world, done, outcome, fault.at_an_opening if is_opening else fault.words)
    waits = ", ".join(f"{seconds:.0f}" for seconds in world.clock.slept) or "-"
    show(
        f"provider fault | {name:<26} | {moment:<10} | {outcome:<12} | exit {done.exit_code} | "
        f"calls {len(world.model.bodies):>2} | waits {waits}"
    )


def disturbed(fault: Fault, before: int) -> Iterator[Reply]:
    """The usual run, and the fault in it."""
    script = solve()
    yield from script[:before]
    yield from fault.replies()
    while fault.always is not None:
        yield fault.always
    yield from script[before:]


def assert_waited(world: World, done: Invocation, slept: tuple[float, ...]) -> None:
    """Waited as long as said, through the clock, and each wait is told: in the job's log and the journal."""
    assert len(world.clock.slept) == len(slept)
    for real, expected in zip(world.clock.slept, slept, strict=True):
        assert abs(real - expected) <= max(1.5, expected / 4), world.clock.slept
    waits = [event for event in world.events(done) if event["event"] == "model_waited"]
    assert [wait["seconds"] for wait in waits] == world.clock.slept
    assert all(wait["seconds"] <= wait["deadline_in"] for wait in waits)
    waiting = [line for line in done.log.splitlines() if "waiting" in line and "for the model (try" in line]
    assert len(waiting) == len(waits)
    assert all("left before the deadline" in line for line in waiting)
    for text in (done.log, done.summary, *world.comments()):
        assert "Traceback" not in text


def assert_nothing_twice(world: World) -> None:
    """One of each at most: comment, pull request, branch of its own; and no write was made twice."""
    assert len(world.comments()) == 1
    assert len(world.pulls()) <= 1
    assert len(world.branches()) <= 2
    creations = [write for write in world.github.writes() if write.startswith("POST")]
    assert len(creations) == len(set(creations)), creations


def assert_no_stain(world: World, done: Invocation, *, iterations: int) -> None:
    """A run that recovered looks like one that nothing happened to."""
    assert done.annotations == []
    assert done.outputs["iterations"] == str(iterations)
    assert done.outputs["reason"] == "Completion loop: closure.issue is through"
    assert (len(world.pulls()), done.outputs["validated"]) == (1, "true")
    assert git("show", f"{BRANCH}:greeting.txt", cwd=world.served) == HELLO
    assert git("rev-list", "--count", f"main..{BRANCH}", cwd=world.served).strip() == "1"
    for text in (done.summary, *world.comments()):
        assert not [
            word
            for word in ("rate_limit", "overloaded", "scripted failure", "for the model (try", "too long")
            if word in text
        ]


def assert_kept(world: World, done: Invocation, *, committed: bool) -> None:
    """What was done is on the branch, and nothing says that it is finished."""
    assert (world.pulls(), world.labels()) == ([], {"agent:fixer", "bug"})
    kept = world.branches().keys() - {"main"}
    assert len(kept) == committed
    for branch in kept:
        assert branch.startswith("stepflow/fixer/run-")
        assert git("show", f"{branch}:greeting.txt", cwd=world.served) == HELLO
    assert world.events(done)[-1]["event"] == "run_finished"


def assert_told(world: World, done: Invocation, outcome: str, words: tuple[str, ...]) -> None:
    """Outcome and cause are in the comment, the summary, the outputs and one annotation."""
    assert [line.split("::")[1].split(" ")[0] for line in done.annotations] == ["error"]
    for text in (done.outputs["reason"], done.summary, done.annotations[0], world.comments()[0]):
        readable = text.replace("\\", "")
        assert [word for word in words if word not in readable] == [], readable
    assert outcome in world.comments()[0]


# --- what a table cannot say -----------------------------------------------------------------------------------

THOUGHT = {"type": "thinking", "thinking": "Let me look.", "signature": "c2lnbmF0dXJl"}


def reading(number: int) -> Answer:
    """A turn that thinks, says something that no version knows yet, and reads a lot."""
    use = {"type": "tool_use", "id": f"toolu_{number}", "name": "bash", "input": {"command": f"seq {number} 2000"}}
    return Answer(content=(THOUGHT, {"type": "new_kind", "payload": [number]}, use), stop_reason="tool_use")


def test_a_step_whose_conversation_outgrew_the_model_begins_again_and_nothing_it_did_is_lost(world: World) -> None:
    too_long = bad("prompt is too long: 210000 tokens > 200000 maximum")
    script = [understood(), *map(reading, range(1, 5)), too_long, *solve()[1:]]
    done = world.run(script)
    assert (done.exit_code, done.outputs["iterations"]) == (0, "4"), done.log
    outgrown, again = world.model.bodies[5:7]
    assert len(outgrown["messages"]) == 9, "the conversation was sent as it was"
    assert len(again["messages"]) == 1
    assert "bash (4 calls)" in str(again["messages"])
    assert "the step starts over" in done.log
    assert done.annotations == []


def test_blocks_and_events_of_kinds_that_no_version_knows_change_nothing(world: World) -> None:
    first = understood()
    odd = Answer(
        content=({"type": "new_kind", "payload": 1}, *first.content),
        extra_events=((2, "future_event", {"type": "future_event", "value": 1}),),
    )
    done = world.run([odd, *solve()[1:]])
    assert (done.exit_code, done.outputs["iterations"], world.clock.slept) == (0, "3", []), done.log


def test_a_key_that_is_revoked_in_the_middle_is_told_as_such(world: World) -> None:
    refused = bad("invalid x-api-key", 401, "authentication_error")
    done = world.run([understood(), bash("true"), refused])
    assert "revoked" in done.outputs["reason"]
    assert "revoked" in world.comments()[0]


def test_a_closure_that_outgrew_the_model_goes_back_to_work_and_closes_later(world: World) -> None:
    too_long = bad("prompt is too long")
    closing = solve()[-1]
    handed_over = answer("continuation.issue", "handoff", summary="the world is greeted")
    done = world.run([*solve()[:3], bash("cat greeting.txt"), too_long, handed_over, closing])
    assert (done.exit_code, done.outputs["iterations"]) == (0, "5"), done.log
    assert (len(world.pulls()), len(world.comments())) == (1, 1)
