"""A run whose model is llama.cpp's own server: it ignores what it is asked for, or is made to answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stepflow.domain.conversation import ModelTurn
from stepflow.model.anthropic_model import AnthropicModel
from tests.checkout import Invocation, Runner, labeled
from tests.local_model.conftest import Serve
from tests.model.asking import ask

pytestmark = [pytest.mark.local_model, pytest.mark.timeout(900)]

#: What the server's own grammar lets pass: the answer of a check that passes, and a short message.
PASSES = {
    "type": "object",
    "properties": {"result": {"enum": ["ok"]}, "message": {"type": "string", "maxLength": 80}},
    "required": ["result", "message"],
    "additionalProperties": False,
}
GREETING = labeled("agent:looker", title="A greeting", body="hello, world")
SCHEMA = {"type": "object", "properties": {"result": {"enum": ["ok", "ng"]}}, "required": ["result"]}


def events_of(done: Invocation) -> list[dict[str, Any]]:
    lines = (Path(done.outputs["run-folder"]) / "journal.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_the_server_speaks_the_messages_api_and_heeds_no_output_config(serve: Serve) -> None:
    with AnthropicModel("sk-of-a-local-server", serve()) as model:
        turn = model.ask(ask("Is `hello` a greeting?", model="smollm2", schema=SCHEMA))
    assert isinstance(turn, ModelTurn), turn
    assert turn.usage.output_tokens > 0
    assert not turn.text.lstrip().startswith("{")


def test_prose_ends_the_run_as_specified_with_every_format_retry_in_sight(serve: Serve, runner: Runner) -> None:
    done = runner.run(GREETING, model={"base-url": serve()})
    print(done.log)
    assert (done.outputs["outcome"], done.exit_code) == ("routing_failed", 1), done.log
    assert '"onFail" leads nowhere' in done.outputs["reason"], "an answer that cannot be read has failed its check"
    events = events_of(done)
    assert [event["remedy"] for event in events if event["event"] == "request_adapted"] == ["ask_in_words"]
    assert done.log.count("is asked for structured output") == 2
    retries = [event for event in events if event["event"] == "user_message" and event["format_retry"]]
    assert len(retries) == 4, "two in each of the two attempts that the step has"
    assert done.log.count("format retry:") == 4


def test_a_server_that_its_own_schema_makes_answer_in_form_completes_an_agent(serve: Serve, runner: Runner) -> None:
    # With its template engine this server holds the beginning of its own answer against the schema and refuses itself.
    server = serve("--json-schema", json.dumps(PASSES), "--no-jinja")
    done = runner.run(GREETING, model={"base-url": server})
    print(done.log)
    assert done.outputs["outcome"] == "completed", done.log
    assert (done.outputs["iterations"], done.exit_code) == ("2", 0)
    assert {event["event"] for event in events_of(done)}.isdisjoint({"request_adapted", "user_message"})
    assert int(done.outputs["tokens-out"]) > 0
