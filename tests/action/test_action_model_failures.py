"""A model that misbehaves, or a service that does, ends in the specified outcome and writes nothing but its report."""

from __future__ import annotations

import pytest

from tests.checkout import Invocation
from tests.readable import stumbles
from tests.servers.messages_api import Reply, answers, calls, says
from tests.world import World, answer, bash, solve, understood

pytestmark = [pytest.mark.whole, pytest.mark.usefixtures("unchecked_base")]

CLAIM = answer("closure.issue", "closing", comment="done")
HANDED_OVER = answer("continuation.issue", "handoff", summary="done")


def assert_told(world: World, done: Invocation, outcome: str, *words: str, exit_code: int = 1) -> None:
    """Outcome and exit code, one error that people can act on, and on GitHub nothing but the report of the failure."""
    assert (done.outputs["outcome"], done.exit_code) == (outcome, exit_code), done.log
    assert (done.outputs["success"], done.outputs["validated"]) == ("false", "false")
    assert "Traceback" not in done.log
    assert [line.split("::")[1].split(" ")[0] for line in done.annotations] == ["error"], done.annotations
    assert f"**Reason** (`{outcome}`): " in done.summary
    assert "**What to do next:**" in done.summary
    assert world.events(done)[-1]["event"] == "run_finished"
    assert world.wrote_nothing(but_comments=1), world.github.writes()
    (comment,) = world.comments()
    assert ("FAILED_STEP_ROUTING: " in done.outputs["reason"]) is (outcome == "routing_failed")
    assert "FAILED_STEP_ROUTING: " not in comment + done.summary + done.annotations[0]
    for text in (comment, done.summary, done.outputs["reason"], done.annotations[0]):
        readable = text.replace("\\", "")
        assert [word for word in words if word not in readable] == [], text
    assert outcome in comment
    assert "**What to do next:**" in comment
    assert stumbles(done.outputs["reason"]) == []
    assert [fault for line in done.log.splitlines() for fault in stumbles(line) if "│" not in line] == []
    assert done.outputs["comment-url"].startswith(world.git_server.url)
    assert done.outputs["comment-url"] in done.summary
    for name in ("report.json", "effects.json", "journal.jsonl"):
        assert (done.folder / name).stat().st_size > 0


PROSE = says("I had a look and all is well.")
BROKEN_JSON = says('{"stepId": "initial.issue", "next_action": {"action": "next",')


@pytest.mark.parametrize(
    ("script", "outcome", "turns", "words"),
    [
        pytest.param([PROSE] * 9, "routing_failed", 6, ["no JSON object"], id="prose"),
        pytest.param([BROKEN_JSON] * 9, "routing_failed", 6, ["no JSON object"], id="broken"),
        pytest.param(
            [answer("initial.issue", "dance", understanding="x")] * 9,
            "routing_failed",
            3,
            ["dance", "next"],
            id="unknown-intent",
        ),
        pytest.param(
            [answer("initial.issue", "closing", understanding="x")] * 9,
            "routing_failed",
            3,
            ["closing", "next"],
            id="closing-from-a-work-step",
        ),
        pytest.param(
            [answers({"stepId": "initial.issue", "understanding": "x"})] * 9,
            "routing_failed",
            3,
            ["next_action.action"],
            id="no-intent",
        ),
        pytest.param(
            [says("No.", stop_reason="refusal", stop_details={"type": "refusal", "category": "cyber"})],
            "model_refused",
            1,
            ["safeguards refused this as", "cyber"],
            id="refusal",
        ),
        pytest.param([says("{", stop_reason="max_tokens")] * 9, "routing_failed", 6, ["no JSON object"], id="cut"),
    ],
)
def test_a_model_that_misbehaves_ends_the_run(
    world: World, script: list[Reply], outcome: str, turns: int, words: list[str]
) -> None:
    done = world.run(script)
    assert_told(world, done, outcome, *words)
    assert len(world.model.bodies) == turns
    assert world.clock.slept == []


def test_a_closing_that_never_fits_its_schema_does_not_close(world: World) -> None:
    misfit = answers({"stepId": "closure.issue", "next_action": {"action": "closing"}, "comment": "done"})
    done = world.run([understood(), HANDED_OVER, misfit, misfit, misfit, *[HANDED_OVER, misfit, misfit, misfit] * 9])
    assert_told(world, done, "limit_reached", "9 iterations")
    assert all(line["event"] != "validator_ran" for line in world.events(done))


def test_a_call_of_an_unknown_tool_is_answered_and_the_run_goes_on(world: World) -> None:
    odd = calls(
        ("post_to_github", {"body": "hi"}), ("bash", {}), ("read", {"file_path": 3}), ("bash", {"command": "true"})
    )
    done = world.run([odd, *solve()])
    assert done.exit_code == 0, done.log
    results = world.model.bodies[1]["messages"][-1]["content"]
    assert [result.get("is_error", False) for result in results] == [True, True, True, False]
    assert "post_to_github" in results[0]["content"]
    assert "bash, read, write, edit, glob, grep" in results[0]["content"]
    assert '✗ post_to_github {"body":"hi"} (denied: the step may not use it' in done.log


def test_a_model_that_calls_tools_forever_is_stopped(world: World) -> None:
    world.edit("agent.json", lambda agent: agent["runner"]["verdict"]["config"].update(maxTurnsPerStep=4))
    done = world.run(lambda _: bash("true"))
    assert_told(world, done, "limit_reached", "4 model turns", "initial.issue")
    assert len(world.model.bodies) == 4


def test_two_megabytes_of_prose_are_an_answer_without_an_object(world: World) -> None:
    done = world.run(lambda _: says("blah " * 400_000), budget_usd="1000")
    assert_told(world, done, "routing_failed", "no JSON object")
    assert_small(world, done)


def test_two_megabytes_in_an_answer_are_cut_wherever_people_or_github_see_them(world: World) -> None:
    huge = "x" * 2_000_000
    closing = answers(
        {
            "stepId": "closure.issue",
            "next_action": {"action": "closing", "reason": f"big {huge}"},
            "comment": huge,
            "verdict": huge,
            "pull_request": {"title": huge, "body": huge},
        }
    )
    done = world.run([*solve()[:-1], closing])
    assert (done.exit_code, done.outputs["outcome"]) == (0, "completed"), done.log[-3000:]
    assert done.outputs["structured-output"].startswith('{"stepId":"closure.issue"')
    assert done.outputs["structured-output"].endswith("…")
    assert_small(world, done)


def test_two_megabytes_of_reason_for_an_abort_are_cut_too(world: World) -> None:
    done = world.run([answer("initial.issue", "abort", reason="y" * 2_000_000)])
    assert (done.exit_code, done.outputs["outcome"]) == (1, "aborted"), done.log[-3000:]
    assert_small(world, done)


def assert_small(world: World, done: Invocation) -> None:
    """Nothing is longer than GitHub takes."""
    assert sum(len(value.encode()) for value in done.outputs.values()) < 200_000
    assert len(done.summary.encode()) < 1024 * 1024
    assert max(len(line) for line in done.log.splitlines()) < 10_000
    assert max(map(len, world.comments())) <= 65_536
    assert all(len(pull["title"]) <= 256 and len(pull["body"]) <= 65_536 for pull in world.pulls())
