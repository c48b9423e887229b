"""Servers that heed a request for structured output, and servers that do not: each run ends as it is specified to.

The server of each test behaves in one way throughout, whatever it is asked, as a real one does.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.servers.messages_api import Answer, Failure, Reply, calls, says
from tests.world import CLOSING, COMMIT, World, answer, label_event

pytestmark = [pytest.mark.whole, pytest.mark.usefixtures("unchecked_base")]

Body = dict[str, Any]
STEPS = [
    answer("initial.issue", "next", understanding="the greeting leaves the world out"),
    answer("continuation.issue", "handoff", summary="the world is greeted"),
    answer("closure.issue", "closing", **CLOSING),
]
EDIT = ("bash", {"command": f"echo 'hello, world' > greeting.txt && {COMMIT}"})
PROSE = says("I had a look, and all is well.")


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
    again = world.runner.run(label_event(), provider="scripted", scenario=str(recorded), boundary="dry-run")
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
    again = world.runner.run(
        label_event(), provider="scripted", scenario=str(folder / "recorded.yaml"), boundary="dry-run"
    )
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
