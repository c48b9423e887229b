"""A model or a server that does not answer as it is asked to ends the run as specified, or is asked in another way."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.checkout import Invocation
from tests.readable import stumbles
from tests.servers.messages_api import Answer, Failure, Reply, answers, calls, says
from tests.world import CLOSING, COMMIT, World, answer, bash, label_event, solve, understood

pytestmark = pytest.mark.whole

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
        pytest.param(
            [says("{", stop_reason="max_tokens")] * 9,
            "routing_failed",
            6,
            ["no JSON object", "cut off at the limit of one answer", "raise `maxOutputTokens`"],
            id="cut",
        ),
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
    done = world.run(lambda _: says("blah " * 400_000), limits={"usd": 1000})
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


Body = dict[str, Any]
STEPS = [
    answer("initial.issue", "next", understanding="the greeting leaves the world out"),
    answer("continuation.issue", "handoff", summary="the world is greeted"),
    answer("closure.issue", "closing", **CLOSING),
]
EDIT = ("bash", {"command": f"echo 'hello, world' > greeting.txt && {COMMIT}"})


def object_of(answer: Answer) -> Body:
    return json.loads(answer.content[0]["text"])


def fenced(answer: Answer) -> Reply:
    return says(f"Here you are:\n\n```json\n{json.dumps(object_of(answer), indent=2)}\n```\n\nAnything else?")


def knows_words(body: Body) -> bool:
    return "fits the JSON Schema below" in json.dumps(body["messages"])


def heeds_output_config(body: Body, wanted: Answer) -> Reply:
    return wanted if "output_config" in body else PROSE


def heeds_words(body: Body, wanted: Answer) -> Reply:
    """It ignores output_config, and does what it reads."""
    return fenced(wanted) if knows_words(body) else PROSE


def refuses_output_config(body: Body, wanted: Answer) -> Reply:
    if "output_config" in body:
        refusal = "output_config: Extra inputs are not permitted"
        return Failure(status=400, error="invalid_request_error", message=refusal)
    return heeds_words(body, wanted)


def always_fences(_body: Body, wanted: Answer) -> Reply:
    return fenced(wanted)


def heeds_nothing(_body: Body, _wanted: Answer) -> Reply:
    return PROSE


@dataclass
class Server:
    """Walks the steps, one conversation each; in the second a file is changed by a tool first."""

    answer_as: Callable[[Body, Answer], Reply]
    conversations: list[str] = field(default_factory=list)

    def __call__(self, body: Body) -> Reply:
        opening = json.dumps(body["messages"][0]["content"][0])
        if len(body["messages"]) == 1 and opening not in self.conversations[-1:]:
            self.conversations.append(opening)
        step = min(len(self.conversations), len(STEPS)) - 1
        if step == 1 and len(body["messages"]) == 1 and not isinstance(self.answer_as(body, STEPS[1]), Failure):
            return calls(EDIT)
        return self.answer_as(body, STEPS[step])


@pytest.mark.parametrize(
    ("server", "adapted", "retries"),
    [
        pytest.param(heeds_output_config, 0, 0, id="heeds-output-config"),
        pytest.param(refuses_output_config, 1, 0, id="refuses-output-config"),
        pytest.param(heeds_words, 1, 1, id="ignores-output-config"),
        pytest.param(always_fences, 0, 0, id="fences-its-json"),
    ],
)
def test_a_run_completes_however_the_server_must_be_asked(
    world: World, server: Callable[[Body, Answer], Reply], adapted: int, retries: int
) -> None:
    done = world.run(Server(server))
    assert done.outputs["outcome"] == "completed", done.log
    assert done.outputs["validated"] == "true"
    events = world.events(done)
    assert [event["remedy"] for event in events if event["event"] == "request_adapted"] == ["ask_in_words"] * adapted
    assert done.log.count("answers are requested with the schema in words") == adapted, "it is said once"
    assert done.log.count("format retry:") == retries
    assert int(done.outputs["iterations"]) == 3
    assert world.clock.slept == []


def test_a_server_that_heeds_nothing_ends_the_run_as_a_missing_answer_does(world: World) -> None:
    done = world.run(Server(heeds_nothing))
    assert (done.outputs["outcome"], done.exit_code) == ("routing_failed", 1)
    assert "no JSON object" in done.outputs["reason"]
    assert (len(world.model.bodies), done.log.count("format retry:")) == (6, 4)
    assert world.wrote_nothing(but_comments=1)


@pytest.mark.parametrize("server", [refuses_output_config, heeds_words])
def test_a_recording_plays_again_without_a_server_and_without_the_detours(
    world: World, server: Callable[[Body, Answer], Reply]
) -> None:
    world.record()
    done = world.run(Server(server))
    recorded = done.folder / "recorded.yaml"
    again = world.runner.run(label_event(), scenario=str(recorded), boundary="dry-run")
    assert again.outputs["outcome"] == "completed", again.log
    assert again.outputs["iterations"] == done.outputs["iterations"]
    assert again.log.count("format retry:") == 0


def test_a_run_that_goes_on_asks_as_it_had_learnt_to(world: World) -> None:
    folder = world.runner.folder / "mine"
    server = Server(heeds_words)

    def fails_later(body: Body) -> Reply:
        reply = server(body)
        last = len(server.conversations) == 3
        return Failure(status=400, error="invalid_request_error", message="messages: not today") if last else reply

    world.record()
    first = world.run(fails_later, run_folder=str(folder), on_failure="nothing")
    assert first.outputs["outcome"] == "model_failed", first.log
    requests = len(world.model.bodies)
    done = world.run(server, run_folder=str(folder))
    assert done.outputs["outcome"] == "completed", done.log
    assert all("output_config" not in body and "tool_choice" not in body for body in world.model.bodies[requests:])
    assert [event["remedy"] for event in world.events(done) if event["event"] == "request_adapted"] == ["ask_in_words"]
    again = world.runner.run(label_event(), scenario=str(folder / "recorded.yaml"), boundary="dry-run")
    assert again.outputs["outcome"] == "completed", again.log


def test_within_a_conversation_the_prefix_stays_whatever_the_server_heeds(world: World) -> None:
    world.run(Server(heeds_words))
    bodies = world.model.bodies
    prefixes = [json.dumps([body.get("tools"), body.get("system")]) for body in bodies]
    assert len(set(prefixes[:2])) == len(set(prefixes[2:4])) == 1


def test_an_agent_whose_schema_has_a_map_survives_an_answer_in_prose(world: World) -> None:
    """The server binds each answer to all that came before it, as models of late 2026 do."""
    world.edit(
        "schemas/steps.json",
        lambda schema: schema["definitions"]["initial"]["properties"].update(notes={"type": "object"}),
    )
    replies = [PROSE, STEPS[0], calls(EDIT), *STEPS[1:]]
    done = world.run(replies)
    assert done.outputs["outcome"] == "completed", done.log
    assert "fits the JSON Schema below" in json.dumps(world.model.bodies[0]["messages"])
